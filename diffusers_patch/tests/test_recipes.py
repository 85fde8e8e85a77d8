# SPDX-License-Identifier: MIT
"""The recipes of both backends, alone and together, in either order."""

import itertools
import os
import subprocess
import sys

import pytest

from diffusers_patch.edits import ABSENT, APPLIED, plan
from diffusers_patch.recipes import RECIPES
from diffusers_patch.tests import releases
from diffusers_patch.tests.test_hub_backend import UPSTREAM_SETTINGS, contents, dispatcher

ORDERS = [order for length in (1, 2) for order in itertools.permutations(RECIPES, length)]


def apply(order, tree):
    for name in order:
        plan(RECIPES[name](), tree).apply()


@pytest.mark.parametrize("order", ORDERS, ids="+".join)
def test_any_order_applies_once_and_then_changes_nothing(order, tree):
    apply(order, tree)
    once = contents(tree)
    for name in order:
        assert {state for _, state in plan(RECIPES[name](), tree).states} <= {APPLIED, ABSENT}
    apply(order, tree)
    assert contents(tree) == once
    for backend, name in (("AITER_SAGE", "aiter_backend"), ("AITER_SAGE_HUB", "hub_backend")):
        assert (f'    {backend} = "{backend.lower()}"' in dispatcher(tree).read_text()) == (name in order)


def test_both_orders_give_the_same_tree(tree):
    start = contents(tree)
    apply(("aiter_backend", "hub_backend"), tree)
    one = contents(tree)
    for path, content in start.items():
        path.write_bytes(content)
    apply(("hub_backend", "aiter_backend"), tree)
    assert contents(tree) == one


@pytest.mark.parametrize("order", ORDERS, ids="+".join)
def test_any_order_passes_upstream_lint_and_format(order, tree):
    ruff = releases.RUFF_FOLDER / "bin" / "ruff"
    if not ruff.is_file():
        pytest.skip("diffusers' ruff is not there: python -m diffusers_patch.tests.releases")
    plans = [plan(RECIPES[name](), tree) for name in order]
    apply(order, tree)
    settings = tree / "pyproject.toml"
    files = {change.path for planned in plans for change in planned.changes if change.path.suffix == ".py"}
    options = ["--no-cache", "--config", str(settings if settings.is_file() else UPSTREAM_SETTINGS)]
    # An installed package has no settings of its own, and its __init__.py files re-export without saying so.
    checked = [path for path in sorted(files) if settings.is_file() or path.name != "__init__.py"]
    subprocess.run([ruff, "check", *options, *checked], cwd=tree, check=True)
    subprocess.run([ruff, "format", "--check", *options, *sorted(files)], cwd=tree, check=True)


# What `import aiter` meets on people's machines: PyPI's unrelated project, an aiter without the operator, one that
# does not know the GPU, one whose libraries do not fit, one that cannot compile.
OTHER_AITERS = {
    "absent": None,
    "without the operator": "",
    "unknown GPU": "raise KeyError('gfx1201')",
    "broken library": "raise OSError('libamdhip64.so.6: cannot open shared object file')",
    "cannot compile": "raise SystemExit('no hipcc')",
}
PROGRAM = """
import logging, torch
torch.version.hip = "7.2.53211"
import diffusers
from diffusers.models import attention_dispatch as dispatch
assert not dispatch._CAN_USE_AITER_SAGE_ATTN
assert dispatch._AttentionBackendRegistry.get_active_backend()[0] == dispatch.AttentionBackendName.NATIVE
try:
    dispatch._check_attention_backend_requirements(dispatch.AttentionBackendName.AITER_SAGE)
except RuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize("aiter", OTHER_AITERS)
def test_importing_diffusers_neither_breaks_nor_warns_without_the_operator(aiter, tmp_path, patched_package):
    if (source := OTHER_AITERS[aiter]) is not None:
        (tmp_path / "aiter").mkdir()
        (tmp_path / "aiter" / "__init__.py").write_text(source)
        metadata = tmp_path / "amd_aiter-0.1.9.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: amd-aiter\nVersion: 0.1.9\n")
        (metadata / "top_level.txt").write_text("aiter\n")
        (metadata / "RECORD").write_text("aiter/__init__.py,,\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{patched_package}", "HF_HUB_OFFLINE": "1"}
    result = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "amd-aiter" in result.stdout and "gfx1201_sage_attention" in result.stdout
    assert "aiter" not in result.stderr


@pytest.fixture(scope="module")
def patched_package(tmp_path_factory):
    """The folder of a copy of the installed diffusers with the recipe of `aiter_sage`."""
    import shutil

    from diffusers_patch.__main__ import installed_diffusers

    folder = tmp_path_factory.mktemp("patched")
    shutil.copytree(installed_diffusers(), folder / "diffusers", ignore=shutil.ignore_patterns("__pycache__"))
    apply(("aiter_backend",), folder)
    return folder
