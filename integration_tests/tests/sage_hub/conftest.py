# SPDX-License-Identifier: MIT
"""Runs unmodified diffusers, which cannot share a process with the patched copy that with_diffusers/ imports.

These tests are therefore collected only when they are asked for: `pytest integration_tests/tests/sage_hub`.
"""

from pathlib import Path

import pytest

from integration_tests.harness.variant_delivery import load_variant, local_kernels

FOLDER = Path(__file__).parent


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    requested = [Path(argument.split("::")[0]).resolve() for argument in config.args]
    return None if any(path.is_relative_to(FOLDER) for path in requested) else True


@pytest.fixture
def sage_hub(rocm_torch, monkeypatch):
    """Lets diffusers load the built variant by itself, from LOCAL_KERNELS, onto the virtual device. The package."""
    from diffusers.models.attention_dispatch import (
        _HUB_KERNELS_REGISTRY,
        AttentionBackendName,
        _AttentionBackendRegistry,
    )

    # `kernels` keeps a package that it has loaded: diffusers then gets this one, which takes CPU tensors for ROCm ones.
    package = load_variant()
    monkeypatch.setenv("LOCAL_KERNELS", local_kernels())
    monkeypatch.setattr(_HUB_KERNELS_REGISTRY[AttentionBackendName.SAGE_HUB], "kernel_fn", None)
    yield package
    # set_attention_backend also sets the backend of the process, which nothing takes back.
    _AttentionBackendRegistry.set_active_backend(AttentionBackendName.NATIVE)
