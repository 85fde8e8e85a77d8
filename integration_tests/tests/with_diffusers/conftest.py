# SPDX-License-Identifier: MIT
"""Puts the patched diffusers under these tests, and ends each with the process on its default backend."""

import pytest

from diffusers_patch.recipes import RECIPES
from hub_kernel.build_hub_package import repo_id
from integration_tests.harness import patched_diffusers as patched
from integration_tests.harness.hub_delivery import built_variant, load_hub_kernel

patched.activate(*RECIPES)

from diffusers.models import attention_dispatch  # noqa: E402
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


@pytest.fixture(
    params=[AttentionBackendName.AITER_SAGE, AttentionBackendName.AITER_SAGE_HUB], ids=lambda name: name.value
)
def backend(request):
    return request.param


@pytest.fixture
def replace_kernel(backend, rocm_torch, monkeypatch):
    """`replace_kernel(function)` puts a function where the backend has its kernel, on a machine with the card."""

    def replace(function):
        if backend == AttentionBackendName.AITER_SAGE_HUB:
            monkeypatch.setattr(_HUB_KERNELS_REGISTRY[backend], "kernel_fn", function)
        else:
            monkeypatch.setattr(attention_dispatch, "aiter_sage_attention", function)

    return replace


@pytest.fixture
def kernel_calls(replace_kernel):
    """The arguments of each call of the backend's kernel, which here returns zeros instead of attention."""
    calls = []

    def record(q, k, v, softmax_scale):
        calls.append({"q": q, "k": k, "v": v, "softmax_scale": softmax_scale})
        return q.new_zeros(q.shape)

    replace_kernel(record)
    return calls


@pytest.fixture
def hub_kernel(rocm_torch, monkeypatch):
    """Lets diffusers load the built Hub kernel by itself, from LOCAL_KERNELS, onto the virtual device."""
    # `kernels` keeps a package that it has loaded: diffusers then gets this one, which takes CPU tensors for ROCm ones.
    load_hub_kernel()
    monkeypatch.setenv("LOCAL_KERNELS", f"{repo_id()}={built_variant()}")
    monkeypatch.setattr(_HUB_KERNELS_REGISTRY[AttentionBackendName.AITER_SAGE_HUB], "kernel_fn", None)
