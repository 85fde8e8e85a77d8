# SPDX-License-Identifier: MIT
"""The Hub package as users get it: built, then loaded by `kernels.get_kernel`.

Two things stand between a process whose torch is a CPU build and a ROCm machine, and are bridged only here. The
`kernels` package picks builds by `torch.version.hip` (set by the fixture `rocm_torch`). And torch's CPU tensors do not
say that they are on a GPU: `load_hub_kernel` replaces the package's `hip_module.device_facts`, the one function in
which it asks torch about a tensor's device, and nothing else. On a GPU nothing is replaced.
"""

import functools
import os
from pathlib import Path
from types import ModuleType
from unittest import mock

import torch

from hub_kernel.build_hub_package import build_hub_package, read_build_config, repo_id
from integration_tests.harness import device_under_test
from integration_tests.paths import DIST

# Code objects that earlier processes have built from the same sources.
CODE_OBJECTS = DIST / "code_objects"

_device_of_storage: dict[int, int] = {}


@functools.cache
def built_variant() -> Path:
    """The variant's folder in dist/hub_kernel, built once per process."""
    return build_hub_package(cache=CODE_OBJECTS)


def get_kernel(variant: Path, repo_id: str, version: int) -> ModuleType:
    """`kernels.get_kernel` with LOCAL_KERNELS leading to `variant`; torch must look like ROCm already."""
    import kernels

    with mock.patch.dict(os.environ, LOCAL_KERNELS=f"{repo_id}={variant}"):
        return kernels.get_kernel(repo_id, version=version)


def load_hub_kernel(variant: Path | None = None) -> ModuleType:
    """The package of `variant` (default: built here), loaded by `get_kernel`, for tensors of the device under test."""
    kernel = get_kernel(variant or built_variant(), repo_id(), read_build_config()["general"]["version"])
    launch_on_tests_tensors(kernel)
    return kernel


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
