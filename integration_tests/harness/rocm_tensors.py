# SPDX-License-Identifier: MIT
"""CPU tensors for ROCm ones, in a process whose torch is a CPU build on the virtual device.

Such tensors do not say that they are on a GPU. So a loaded package's `hip_module.device_facts` is replaced, the one
function in which it asks torch about a tensor's device, and nothing else. On a GPU nothing is replaced.
"""

import functools
from types import ModuleType

import torch

from integration_tests.harness import device_under_test

_device_of_storage: dict[int, int] = {}


def launch_on_tests_tensors(kernel: ModuleType) -> None:
    """Makes the launcher of a loaded package take CPU tensors for ROCm ones, where those are the virtual device's."""
    if device_under_test.is_virtual():
        kernel.hip_module.device_facts = functools.partial(_facts_of_a_rocm_tensor, kernel.hip_module.DeviceFacts)


def place_on_device(tensor: torch.Tensor, index: int) -> torch.Tensor:
    """Makes `tensor`, and every view of it, count as being on device `index` instead of the current one."""
    _device_of_storage[tensor.untyped_storage().data_ptr()] = index
    return tensor


def forget_placements() -> None:
    """Undoes `place_on_device`; memory is reused, so each test that places tensors ends with this."""
    _device_of_storage.clear()


def _facts_of_a_rocm_tensor(facts: type, tensor: torch.Tensor) -> tuple:
    index = _device_of_storage.get(tensor.untyped_storage().data_ptr(), torch.cuda.current_device())
    return facts("cuda", index, torch.cuda.current_stream(index).cuda_stream)
