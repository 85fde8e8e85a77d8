# SPDX-License-Identifier: MIT
"""Which kernels ran on the GPU, from torch's profiler: the GPU's own account, where the virtual device has records."""

from types import TracebackType

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


def timed_kernels_of(finished: profile) -> list[tuple[str, float]]:
    """Name and microseconds of each kernel in a finished profile, in the order of their starts. No copies."""
    events = [event for event in finished.events() if event.device_type == DeviceType.CUDA]
    events.sort(key=lambda event: event.time_range.start)
    # ROCm may name a kernel by its descriptor.
    kernels = [event for event in events if not event.name.startswith(("Mem", "Copy"))]
    return [(event.name.removesuffix(".kd"), event.time_range.elapsed_us()) for event in kernels]


class KernelTrace:
    """`with KernelTrace() as trace:` ... `trace.kernels()`: every kernel that has run since the block began."""

    def __init__(self) -> None:
        self._kernels: list[str] = []

    def __enter__(self) -> "KernelTrace":
        self._begin()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def kernels(self) -> list[str]:
        """Waits for the GPU. A profile can be read only once it has ended, so this ends one and begins the next."""
        self._end()
        self._begin()
        return list(self._kernels)

    def _begin(self) -> None:
        # Kernels that were queued before the block must not be counted in it.
        torch.cuda.synchronize()
        self._profile = profile(activities=[ProfilerActivity.CUDA])
        self._profile.__enter__()

    def _end(self) -> None:
        torch.cuda.synchronize()
        self._profile.__exit__(None, None, None)
        self._kernels += [name for name, _ in timed_kernels_of(self._profile)]
