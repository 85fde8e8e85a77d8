# SPDX-License-Identifier: MIT
"""The ROCm variant of sage-attention as users get it: built, then loaded by `kernels.get_kernel`.

Like `hub_delivery`, this replaces nothing in the package but the functions that ask torch about a tensor's device, and
those on the virtual device only.
"""

import functools
from pathlib import Path
from types import ModuleType

import torch

from hub_kernel.build_hub_package import read_build_config
from hub_kernel.build_sage_attention_variant import SAGE_ATTENTION_VARIANT, build_sage_attention_variant
from integration_tests.harness import device_under_test
from integration_tests.harness.hub_delivery import CODE_OBJECTS, get_kernel
from integration_tests.harness.rocm_tensors import launch_on_tests_tensors


@functools.cache
def built_variant() -> Path:
    """The variant's folder in dist/sage_attention_variant, built once per process."""
    return build_sage_attention_variant(cache=CODE_OBJECTS)


def general_config() -> dict:
    """[general] of the variant's build.toml: name, version and the id of the repository that it stands in for."""
    return read_build_config(SAGE_ATTENTION_VARIANT)["general"]


def local_kernels(variant: Path | None = None) -> str:
    """The value of LOCAL_KERNELS by which `get_kernel` finds `variant` (default: built here)."""
    return f"{general_config()['hub']['repo-id']}={variant or built_variant()}"


def load_variant(variant: Path | None = None) -> ModuleType:
    """The package of `variant`, loaded by `get_kernel`, for tensors of the device under test; torch is ROCm's."""
    general = general_config()
    package = get_kernel(variant or built_variant(), general["hub"]["repo-id"], general["version"])
    launch_on_tests_tensors(package)
    if device_under_test.is_virtual():
        package.core._architecture = _architecture_of_the_current_device
    return package


@torch.compiler.assume_constant_result
def _architecture_of_the_current_device(device: torch.device) -> str:
    return torch.cuda.get_device_properties(torch.cuda.current_device()).gcnArchName.split(":")[0]
