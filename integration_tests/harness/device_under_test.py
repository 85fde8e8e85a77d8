# SPDX-License-Identifier: MIT
"""The device that the tests of this process run on, and the one place that knows which it is.

It is the virtual gfx1201, or a real one when pytest (or a test's script) is given `--gpu hardware`. Tests do not ask:
what they make goes through `on_device`, torch comes from `rocm_torch`, launches from `launched_kernels`.
`--gpu dry-run` rehearses the choice of tests for hardware on the virtual device.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

from integration_tests.harness.launches import KERNELS
from integration_tests.harness.rocm_torch import RocmTorch
from integration_tests.harness.rocm_torch import rocm_torch as rocm_torch_on_virtual_gpu
from integration_tests.virtual_gpu import VirtualGpu

HARDWARE, DRY_RUN = "hardware", "dry-run"
GPU_MODES = (HARDWARE, DRY_RUN)

# Names every launch so far of the op's kernels, in order.
Launched = Callable[[], list[str]]

_Movable = TypeVar("_Movable", torch.Tensor, torch.nn.Module)

# The virtual device's memory is the CPU's.
_device = torch.device("cpu")


def use_gpu() -> None:
    """Makes this machine's gfx1201 the device under test. NoGpuError when there is none."""
    from integration_tests.harness.gpu_finder import find_gfx1201

    global _device
    _device = torch.device("cuda", find_gfx1201())
    torch.cuda.set_device(_device)


def is_virtual() -> bool:
    """Whether tests run on the virtual device, in a process whose torch is no ROCm build."""
    return _device.type == "cpu"


def torch_device() -> torch.device:
    """Where torch has to put a tensor for the device under test."""
    return _device


def on_device(movable: _Movable) -> _Movable:
    """A tensor or a module, moved to where the device under test reads it."""
    return movable.to(_device)


@contextmanager
def rocm_torch() -> Iterator[RocmTorch | None]:
    """torch as ROCm torch: CPU torch on the virtual device, or torch as it is on a GPU (None)."""
    if not is_virtual():
        yield None
        return
    with rocm_torch_on_virtual_gpu(VirtualGpu.load()) as answers:
        yield answers


@contextmanager
def launched_kernels() -> Iterator[Launched]:
    """What the block launches, by the virtual device's records or by a trace of the GPU."""
    if not is_virtual():
        from integration_tests.harness.kernel_trace import KernelTrace

        with KernelTrace() as trace:
            yield lambda: [name for name in trace.kernels() if name in KERNELS]
        return
    gpu = VirtualGpu.load()
    before = len(gpu.records())
    yield lambda: [record.kernel for record in gpu.records()[before:]]
