# SPDX-License-Identifier: MIT
"""The Hub package as users get it: built, then loaded by `kernels.get_kernel`.

The `kernels` package picks builds by `torch.version.hip`, set by the fixture `rocm_torch` where torch is a CPU build;
`rocm_tensors` makes up for what CPU tensors do not say.
"""

import functools
import os
from pathlib import Path
from types import ModuleType
from unittest import mock

from hub_kernel.build_hub_package import build_hub_package, read_build_config, repo_id
from integration_tests.harness.rocm_tensors import launch_on_tests_tensors
from integration_tests.paths import DIST

# Code objects that earlier processes have built from the same sources.
CODE_OBJECTS = DIST / "code_objects"


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
