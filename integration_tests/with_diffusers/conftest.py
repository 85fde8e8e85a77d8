# SPDX-License-Identifier: MIT
"""Puts the patched diffusers under these tests, and ends each with the process on its default backend."""

import pytest

from hub_kernel.build_hub_package import repo_id
from integration_tests.hub_delivery import built_variant, load_hub_kernel
from integration_tests.with_diffusers import patched

patched.activate()

from diffusers.models.attention_dispatch import (  # noqa: E402
    _HUB_KERNELS_REGISTRY,
    AttentionBackendName,
    _AttentionBackendRegistry,
)


@pytest.fixture(autouse=True)
def native_backend_afterwards():
    """set_attention_backend also sets the backend of the process, which nothing takes back."""
    yield
    _AttentionBackendRegistry.set_active_backend(AttentionBackendName.NATIVE)


@pytest.fixture
def kernel_calls(monkeypatch):
    """The keyword arguments of each call of the Hub kernel, which here returns zeros instead of attention."""
    calls = []

    def record(**arguments):
        calls.append(arguments)
        return arguments["q"].new_zeros(arguments["q"].shape)

    monkeypatch.setattr(_HUB_KERNELS_REGISTRY[AttentionBackendName.AITER_SAGE_HUB], "kernel_fn", record)
    return calls


@pytest.fixture
def hub_kernel(rocm_torch, monkeypatch):
    """Lets diffusers load the built Hub kernel by itself, from LOCAL_KERNELS, onto the virtual device."""
    # `kernels` keeps a package that it has loaded: diffusers then gets this one, which takes CPU tensors for ROCm ones.
    load_hub_kernel()
    monkeypatch.setenv("LOCAL_KERNELS", f"{repo_id()}={built_variant()}")
    monkeypatch.setattr(_HUB_KERNELS_REGISTRY[AttentionBackendName.AITER_SAGE_HUB], "kernel_fn", None)
