# SPDX-License-Identifier: MIT
"""Trees to edit: the installed diffusers, the downloaded releases, and a checkout given with --diffusers."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))
from diffusers_patch.__main__ import installed_diffusers  # noqa: E402
from diffusers_patch.recipes.shared import DISPATCHER, GUIDE, MINIMAX_H3_PAGE, TESTS  # noqa: E402
from diffusers_patch.tests import releases  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--diffusers", type=Path, help="a git checkout of diffusers to test the recipes against")


def pytest_generate_tests(metafunc):
    if "upstream" in metafunc.fixturenames:
        checkout = metafunc.config.getoption("--diffusers", default=None)
        trees = [installed_diffusers(), *releases.downloaded(), *([checkout] if checkout else [])]
        metafunc.parametrize("upstream", trees, ids=["installed", *(tree.name for tree in trees[1:])])


@pytest.fixture
def tree(upstream, tmp_path):
    """A copy of what the recipes look at in one upstream tree, in the layout of that tree."""
    is_package = (upstream / "models").is_dir()
    files = ["src/diffusers/__init__.py", DISPATCHER, GUIDE, MINIMAX_H3_PAGE, TESTS]
    files.append("pyproject.toml")
    for file in files:
        relative = file.removeprefix("src/diffusers/") if is_package else file
        if (is_package and relative == file) or not (upstream / relative).is_file():
            continue
        target = tmp_path / "diffusers" / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(upstream / relative, target)
    return tmp_path / "diffusers"
