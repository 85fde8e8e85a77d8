# SPDX-License-Identifier: MIT
"""The recipe on the aiter under test: whole, once, told apart by what only one kind of tree has."""

import json
import shutil
import subprocess

import pytest

from aiter_op import recipe
from diffusers_patch.edits import APPLIED, READY, EditError
from integration_tests import aiter_delivery

pytestmark = pytest.mark.aiter

CONFIG = "aiter/jit/optCompilerConfig.json"


@pytest.fixture
def base():
    return aiter_delivery.base_tree()


@pytest.fixture
def copy(base, tmp_path):
    """The base's files that the recipe changes, and those by which it knows the tree."""
    known = ["aiter/__init__.py", "csrc/include/aiter_tensor.h"]
    for file in {*known, *(edit.file for edit in recipe.recipe_for(base).edits)}:
        if (base / file).exists():
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(base / file, tmp_path / file)
    if (base / "aiter_meta").is_dir():
        (tmp_path / "aiter_meta" / "csrc").mkdir(parents=True)
    return tmp_path


def contents(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def test_an_untouched_base_takes_every_edit(base):
    assert {state for _, state in recipe.plan_for(base).states} == {READY}


def test_applying_twice_changes_nothing(copy):
    recipe.plan_for(copy).apply()
    after = contents(copy)
    second = recipe.plan_for(copy)
    assert {state for _, state in second.states} == {APPLIED} and second.changes == ()
    second.apply()
    assert contents(copy) == after


def test_the_config_gains_one_module_whose_sources_are_there(copy):
    before = json.loads((copy / CONFIG).read_text())
    recipe.plan_for(copy).apply()
    after = json.loads((copy / CONFIG).read_text())
    entry = after.pop(recipe.MODULE)
    assert after == before
    csrc = copy / ("aiter_meta/csrc" if (copy / "aiter_meta").is_dir() else "csrc")
    sources = [eval(source, {"AITER_CSRC_DIR": str(csrc)}) for source in entry["srcs"]]  # as aiter reads it
    assert len(sources) == 2 and all(csrc.joinpath(source).is_file() for source in sources)


def test_the_diff_applies_with_git_and_gives_the_same_tree(copy, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    shutil.copytree(copy, other, dirs_exist_ok=True)
    prepared = recipe.plan_for(copy)
    subprocess.run(["git", "apply", "-"], cwd=other, input=prepared.diff().encode(), check=True)
    prepared.apply()
    assert contents(copy) == contents(other)


def test_a_tree_that_lacks_an_anchor_is_left_alone(copy):
    export = copy / "aiter" / "__init__.py"
    export.write_text(export.read_text().replace("from .ops.mha import *", "from .ops.mha import mha"))
    before = contents(copy)
    with pytest.raises(EditError, match="aiter/__init__.py: the line .* occurs 0 times .*export"):
        recipe.plan_for(copy).apply()
    assert contents(copy) == before


def test_a_tree_of_neither_kind_is_told_what_was_looked_for(tmp_path):
    (tmp_path / "aiter").mkdir()
    (tmp_path / "aiter" / "__init__.py").write_text("")
    with pytest.raises(EditError, match=r"looked for csrc/include/aiter_tensor\.h .* and for aiter_meta/csrc"):
        recipe.plan_for(tmp_path)


@pytest.mark.parametrize("architectures, built", [(["gfx942", "gfx950"], False), (["gfx942", "gfx1201"], True)])
def test_wheels_of_other_architectures_do_not_build_the_module(
    virtual_gpu, rocm_torch, monkeypatch, architectures, built
):
    aiter = aiter_delivery.load_aiter()
    if recipe.recipe_for(aiter_delivery.base_tree()).name != "aiter_main":
        pytest.skip("wheels are built from main")
    monkeypatch.setattr(aiter.core, "get_gfx_list", lambda: architectures)
    modules, _ = aiter.core.get_args_of_build("all")
    assert (recipe.MODULE in {module["md_name"] for module in modules}) is built
