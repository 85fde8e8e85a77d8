# SPDX-License-Identifier: MIT
"""Makes torch's CPU build look like a ROCm build on the virtual gfx1201. The one place that patches torch.

Tensors stay CPU tensors: their memory is the device's memory.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from unittest import mock

import torch

from integration_tests.harness import torch_hip_library
from integration_tests.virtual_gpu import VirtualGpu

# What torch.version.hip reads in a PyTorch built for ROCm 7.2.
HIP_VERSION = "7.2.53211"


class RocmTorch:
    """What `torch.cuda` answers while `rocm_torch` is active, read from the virtual device."""

    def __init__(self, gpu: VirtualGpu):
        self.gpu = gpu
        self._streams: dict[int, int] = {}

    def use_stream(self, handle: int, device: int = 0) -> None:
        """Makes `handle`, a live HIP stream of `device`, torch's current stream there."""
        self._streams[device] = handle

    def current_stream(self, device: int | torch.device | None = None) -> SimpleNamespace:
        index = self._index(device)
        return SimpleNamespace(cuda_stream=self._streams.get(index, 0), device_index=index)

    def get_device_properties(self, device: int | torch.device | None = None) -> SimpleNamespace:
        properties = self.gpu.device_properties(self._index(device))
        return SimpleNamespace(**properties)

    def get_device_capability(self, device: int | torch.device | None = None) -> tuple[int, int]:
        properties = self.get_device_properties(device)
        return properties.major, properties.minor

    def _index(self, device: int | torch.device | None) -> int:
        index = device.index if isinstance(device, torch.device) else device
        return self.gpu.current_device() if index is None else index


@contextmanager
def rocm_torch(virtual_gpu: VirtualGpu) -> Iterator[RocmTorch]:
    """Patches what CPU torch lacks, for the length of the block."""
    answers = RocmTorch(virtual_gpu)
    torch_hip_library.load(virtual_gpu.path)
    replacements = {
        # `kernels` picks builds and `_ops` prefixes by this alone.
        "torch.version.hip": HIP_VERSION,
        # CPU torch has these functions, but they raise because it was built without a GPU. `torch.cuda.is_available`
        # stays False: torch.compile would go on to ask CUDA for its random-number state.
        "torch.cuda.device_count": virtual_gpu.device_count,
        "torch.cuda.current_device": virtual_gpu.current_device,
        "torch.cuda.set_device": virtual_gpu.set_device,
        "torch.cuda.current_stream": answers.current_stream,
        "torch.cuda.get_device_properties": answers.get_device_properties,
        "torch.cuda.get_device_capability": answers.get_device_capability,
    }
    with ExitStack() as patches:
        for target, replacement in replacements.items():
            patches.enter_context(mock.patch(target, replacement))
        yield answers
