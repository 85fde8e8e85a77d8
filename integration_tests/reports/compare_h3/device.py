# SPDX-License-Identifier: MIT
"""What a comparison runs on, a virtual or a real gfx1201: where its tensors are, its clock, its memory, its name."""

import contextlib
import os
import platform
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist

from aiter_op.ops.sage_attention_contract import ARCHITECTURE
from integration_tests.harness import device_under_test
from integration_tests.harness.gpu_finder import NoGpuError, find_gfx1201
from integration_tests.harness.launches import MAIN_KERNEL
from integration_tests.harness.rocm_torch import rocm_torch
from integration_tests.reports.compare_h3.case import VIRTUAL
from integration_tests.reports.hardware.description import describe_gpu, describe_versions
from integration_tests.tests.ulysses.context_parallel_on_cpu import context_parallel_on_cpu
from integration_tests.virtual_gpu import VirtualGpu


def _rank() -> int:
    """Of the processes that `torchrun` started, or of this one alone."""
    return int(os.environ.get("RANK", 0))


@contextlib.contextmanager
def _process_group(backend: str, **options) -> Iterator[None]:
    if "WORLD_SIZE" not in os.environ:
        yield
        return
    dist.init_process_group(backend, **options)
    try:
        yield
    finally:
        dist.destroy_process_group()


class VirtualDevice:
    """CPU tensors, the CPU's clock, and kernels that an emulator executes: its times say nothing about a GPU.

    With several, each process has one of its own.
    """

    def __init__(self) -> None:
        self.rank = _rank()
        self.torch_device = torch.device("cpu")
        self._gpu = VirtualGpu.load()

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        # The device in its name: see context_parallel_on_cpu.
        with rocm_torch(self._gpu), _process_group("cpu:gloo"):
            yield

    def context_parallel(self) -> contextlib.AbstractContextManager:
        """What Ulysses in diffusers needs on this device; diffusers must be the right one already."""
        return context_parallel_on_cpu() if dist.is_initialized() else contextlib.nullcontext()

    def expect_kernels(self) -> None:
        """The deliveries' kernels are for the virtual device unless they are told otherwise."""

    def facts(self) -> dict:
        cpu = platform.processor() or platform.machine()
        return {"measured_on": f"virtual {ARCHITECTURE}", "emulated_by": f"{cpu}, {os.cpu_count()} threads"}

    def mark(self) -> float:
        return time.perf_counter()

    def seconds(self, start: float, end: float) -> float:
        return end - start

    def begin_step(self) -> None:
        self._gpu.reset()
        self._gpu.reset_torch_peak()

    def end_step(self) -> dict:
        return {
            "peak_bytes": self._gpu.torch_peak(),
            "total_peak_bytes": None,
            "kernel_launches": self._gpu.launches(MAIN_KERNEL),
        }


class Gpu:
    """One rank's GPU. With several, `torchrun` has started one process for each."""

    def __init__(self) -> None:
        self.rank = _rank()
        try:
            first = find_gfx1201()
        except NoGpuError:  # another GPU: for diffusers' own backends only
            first = 0
        self.torch_device = torch.device("cuda", first + int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(self.torch_device)

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        with _process_group("nccl", device_id=self.torch_device):
            yield

    def context_parallel(self) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()

    def expect_kernels(self) -> None:
        """Makes the deliveries load their kernels for this machine's gfx1201. NoGpuError when there is none."""
        device_under_test.use_gpu()
        torch.cuda.set_device(self.torch_device)

    def facts(self) -> dict:
        if torch.version.hip is None:
            name = torch.cuda.get_device_name(self.torch_device)
            return {"measured_on": "hardware", "gpu": name, "cuda": torch.version.cuda}
        gpu, versions = describe_gpu(self.torch_device.index), describe_versions()
        return {
            "measured_on": "hardware",
            "gpu": gpu.name,
            "architecture": gpu.architecture,
            "driver": gpu.driver,
            "rocm": versions.rocm,
        }

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        end.synchronize()
        return start.elapsed_time(end) / 1000

    def begin_step(self) -> None:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        self._held = torch.cuda.memory_allocated()

    def end_step(self) -> dict:
        peak = torch.cuda.max_memory_allocated()
        peaks = torch.tensor([peak - self._held, peak], device=self.torch_device)
        if dist.is_initialized():
            dist.all_reduce(peaks, dist.ReduceOp.MAX)
        above, total = peaks.tolist()
        return {"peak_bytes": above, "total_peak_bytes": total, "kernel_launches": None}


def open_device(kind: str) -> VirtualDevice | Gpu:
    return VirtualDevice() if kind == VIRTUAL else Gpu()
