# SPDX-License-Identifier: MIT
"""The recipe on the aiter under test: whole, once, told apart by what only one kind of tree has."""

import json
import re
import shutil
import subprocess

import pytest

from aiter_op import recipe
from diffusers_patch.edits import APPLIED, READY, EditError
from diffusers_patch.tests.misfits import MISFITS, spoil
from integration_tests.harness import aiter_delivery

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


def assert_refused(copy, words):
    before = contents(copy)
    with pytest.raises(EditError, match=words):
        recipe.plan_for(copy).apply()
    assert contents(copy) == before


def test_a_tree_that_lacks_an_anchor_is_left_alone(copy):
    export = copy / "aiter" / "__init__.py"
    export.write_text(export.read_text().replace("from .ops.mha import *", "from .ops.mha import mha"))
    assert_refused(copy, "aiter/__init__.py: the line .* occurs 0 times .*export")


@pytest.mark.parametrize("misfit", MISFITS)
def test_every_anchor_that_is_lost_is_refused_by_its_file(copy, misfit):
    edits = recipe.recipe_for(copy).edits
    for edit in [edit for edit in edits if edit.scope or not misfit.startswith("moved")]:
        original = spoil(copy / edit.file, edit.anchor, misfit)
        assert_refused(copy, re.escape(edit.file))
        (copy / edit.file).write_bytes(original)


def test_a_partially_applied_tree_is_refused(copy):
    config = (copy / CONFIG).read_bytes()
    recipe.plan_for(copy).apply()
    (copy / CONFIG).write_bytes(config)
    assert_refused(copy, f"only partially applied(.|\\n)*missing: {CONFIG}")


def test_another_file_in_the_place_of_a_new_one_is_refused(copy):
    operator = copy / "aiter" / "ops" / "gfx1201_sage_attention.py"
    operator.parent.mkdir(exist_ok=True)
    operator.write_text("# somebody's own\n")
    assert_refused(copy, "aiter/ops/gfx1201_sage_attention.py: exists, but not as this recipe writes it")


def edited_files(copy):
    return sorted({copy / edit.file for edit in recipe.recipe_for(copy).edits})


def test_a_crlf_tree_stays_crlf(copy, tmp_path_factory):
    other = tmp_path_factory.mktemp("lf")
    shutil.copytree(copy, other, dirs_exist_ok=True)
    for path in edited_files(copy):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    for tree in (copy, other):
        recipe.plan_for(tree).apply()
    for path in edited_files(copy):
        reference = (other / path.relative_to(copy)).read_bytes()
        assert path.read_bytes() == reference.replace(b"\n", b"\r\n")
    assert recipe.plan_for(copy).changes == ()


def test_local_edits_elsewhere_are_kept(copy):
    local = b"\n\n# A local note.\n"
    python = [path for path in edited_files(copy) if path.suffix == ".py"]
    for path in python:
        path.write_bytes(path.read_bytes() + local)
    recipe.plan_for(copy).apply()
    assert python and all(path.read_bytes().endswith(local) for path in python)
    assert recipe.plan_for(copy).changes == ()


def test_a_tree_of_neither_kind_is_told_what_was_looked_for(tmp_path):
    (tmp_path / "aiter").mkdir()
    (tmp_path / "aiter" / "__init__.py").write_text("")
    with pytest.raises(EditError, match=r"looked for csrc/include/aiter_tensor\.h .* and for aiter_meta/csrc"):
        recipe.plan_for(tmp_path)
