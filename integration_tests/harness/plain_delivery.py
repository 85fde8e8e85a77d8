# SPDX-License-Identifier: MIT
"""The Hub package in an environment that has torch and nothing else: taken or built, and loaded from its folder.

The `kernels` package is not asked. Code objects that are there already, of the present sources, are taken; the others
are built with PyPI's ziglang.
"""

import functools
import importlib.util
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from hub_kernel import build_code_object, package_files
from integration_tests.harness.rocm_tensors import launch_on_tests_tensors
from integration_tests.paths import DIST, REPOSITORY, requirement


class NoCompilerError(RuntimeError):
    """Something must be compiled and nothing can. The text is one sentence, with the command that helps."""


@dataclass(frozen=True)
class Kernel:
    """One variant of the op's kernels."""

    name: str  # an identifier
    code_object: Path  # a folder, with manifest.json
    is_current: Callable[[Path], bool]
    build: Callable[[Path], object]


# Variants that are compared with one another; the first is the one that is delivered.
KERNELS = (
    Kernel(
        package_files.PACKAGE.name,
        build_code_object.DEFAULT_OUT,
        build_code_object.is_current,
        build_code_object.build_code_object,
    ),
)


def take_or_build(folder: Path, is_current: Callable[[Path], bool], build: Callable[[Path], object]) -> str:
    """Makes sure that `folder` holds a build of the present sources; "taken" or "built".

    NoCompilerError when it does not and ziglang is not installed.
    """
    if is_current(folder):
        return "taken"
    if importlib.util.find_spec("ziglang") is None:
        raise NoCompilerError(
            f"{folder.relative_to(REPOSITORY)} holds no build of the present sources, and ziglang, their compiler, "
            f"is not installed: python -m pip install {requirement('ziglang')}"
        )
    build(folder)
    return "built"


@functools.cache
def load(kernel: Kernel) -> ModuleType:
    """The package round a code object that is there, for tensors of the device under test."""
    folder = DIST / "plain_delivery" / kernel.name
    with build_code_object.staged(folder) as staging:
        package = staging / package_files.PACKAGE.name
        package_files.copy_package(package)
        for file in kernel.code_object.iterdir():
            shutil.copy(file, package)
        package_files.write_build_module(package)
        # Not the id of a Hub build, nor of another variant: one process may hold them all.
        name = f"plain_{kernel.name}_{package_files.content_id(package)}"
        package_files.write_ops_module(package, name)
    package = folder / package_files.PACKAGE.name
    spec = importlib.util.spec_from_file_location(
        name, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    launch_on_tests_tensors(module)
    return module
