# SPDX-License-Identifier: MIT
"""Who may know whom: arrows only downwards, and no delivery knows its tests."""

import ast
import re
from pathlib import Path

import pytest

from integration_tests.paths import REPOSITORY

TESTS = REPOSITORY / "integration_tests"

# From the ground up: each imports only from itself and from what stands before it.
WINGS = ("paths", "virtual_gpu", "oracle", "reference", "harness", "speed", "tests", "reports")
ON_TOP = ("conftest", "quick", "line_width")

PRODUCT = ("aiter_op", "hub_kernel", "diffusers_patch")

# Folder of the device -> the folders whose headers it includes.
DEVICE = {"core": {"core"}, "instructions": {"core", "instructions"}, "observers": {"core", "observers"}}


def imported_modules(path: Path) -> list[tuple[int, str]]:
    """(line, dotted name) of everything that a module imports by its full name."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
    return found


def upward_imports(root: Path) -> list[str]:
    faults = []
    for path in sorted(root.rglob("*.py")):
        wing = path.relative_to(root).parts[0].removesuffix(".py")
        if wing in ON_TOP:
            continue
        for line, name in imported_modules(path):
            package, _, rest = name.partition(".")
            target = rest.split(".")[0]
            if package == root.name and WINGS.index(target) > WINGS.index(wing):
                faults.append(f"{path.relative_to(root)}:{line} imports {name}")
    return faults


def test_wings_import_only_downwards():
    assert upward_imports(TESTS) == []


def test_an_upward_import_is_found(tmp_path):
    wing = tmp_path / "integration_tests" / "reference"
    wing.mkdir(parents=True)
    (wing / "model.py").write_text("from integration_tests.harness import inputs\n")
    faults = upward_imports(tmp_path / "integration_tests")
    assert faults == ["reference/model.py:1 imports integration_tests.harness.inputs"]


def test_every_folder_is_a_wing_with_its_line_on_the_map():
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == set(WINGS) - {"paths"}
    page = (TESTS / "README.md").read_text("utf-8")
    assert [wing for wing in WINGS if f"| [{wing}](" not in page] == ["paths"]


@pytest.mark.parametrize("package", PRODUCT)
def test_no_delivery_knows_integration_tests(package):
    shipped = [
        path
        for pattern in ("*.py", "*.j2", "*.h", "*.cu", "*.hip", "*.toml")
        for path in (REPOSITORY / package).rglob(pattern)
        if "tests" not in path.relative_to(REPOSITORY).parts and "pull_requests" not in path.parts
    ]
    assert shipped
    for path in shipped:
        text = path.read_text("utf-8")
        assert not re.search(
            r"^\s*(from|import) integration_tests|\{% *(import|include|extends)", text, re.MULTILINE
        ), path
    for path in (REPOSITORY / package).rglob("*.j2"):
        assert "{% import" not in path.read_text("utf-8"), path


@pytest.mark.parametrize("folder", DEVICE)
def test_layers_of_the_device_include_only_what_is_below(folder):
    files = [path for path in (TESTS / "virtual_gpu" / folder).rglob("*") if path.suffix in (".h", ".cpp")]
    assert files
    for path in files:
        for name in re.findall(r'^#include "([^"/]+)/', path.read_text("utf-8"), re.MULTILINE):
            assert name in DEVICE[folder], f"{path.name} includes {name}/"
