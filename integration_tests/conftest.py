# SPDX-License-Identifier: MIT
"""Puts the virtual gfx1201 under the tests, and the op of every delivery on it."""

import os
from collections.abc import Callable, Iterator

# huggingface_hub and diffusers read this once, when they are imported: no test may look for a kernel on the network.
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch  # noqa: F401  before the device is loaded: it then tracks every tensor that a test makes

from integration_tests import aiter_delivery
from integration_tests.hub_delivery import load_hub_kernel
from integration_tests.rocm_torch import RocmTorch
from integration_tests.rocm_torch import rocm_torch as rocm_torch_context
from integration_tests.virtual_gpu import VirtualGpu

# How to get the public op of each delivery; the tests of the op run once for each.
DELIVERIES: dict[str, Callable] = {
    "hub": lambda: load_hub_kernel().gfx1201_sage_attention,
    "aiter": lambda: aiter_delivery.load_aiter().gfx1201_sage_attention,
}


@pytest.fixture(scope="session")
def loaded_gpu() -> VirtualGpu:
    """The process's device, built when its sources have changed."""
    return VirtualGpu.load()


@pytest.fixture
def virtual_gpu(loaded_gpu: VirtualGpu) -> Iterator[VirtualGpu]:
    """The virtual device: one gfx1201, no launches recorded. A test may reconfigure it."""
    loaded_gpu.configure()
    loaded_gpu.reset()
    yield loaded_gpu
    loaded_gpu.configure()


@pytest.fixture
def rocm_torch(virtual_gpu: VirtualGpu) -> Iterator[RocmTorch]:
    """CPU torch as ROCm torch on the virtual device."""
    with rocm_torch_context(virtual_gpu) as answers:
        yield answers


@pytest.fixture(params=["hub", pytest.param("aiter", marks=pytest.mark.aiter)])
def sage_attention(request: pytest.FixtureRequest, rocm_torch: RocmTorch) -> Iterator[Callable]:
    """`sage_attention(q, k, v, softmax_scale)` of one delivery, on the virtual device.

    Whatever the test does with it, all waves of a work-group must have met the same barriers.
    """
    yield DELIVERIES[request.param]()
    assert not [record.kernel for record in rocm_torch.gpu.records() if record.uneven_barriers]
