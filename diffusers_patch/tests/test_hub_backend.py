# SPDX-License-Identifier: MIT
"""The recipe of `aiter_sage_hub` against real diffusers."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from diffusers_patch import __main__ as command_line
from diffusers_patch.__main__ import installed_diffusers, main
from diffusers_patch.edits import ABSENT, APPLIED, READY, EditError, plan
from diffusers_patch.recipes import hub_backend
from diffusers_patch.tests import releases

REPOSITORY = Path(__file__).parents[2]
UPSTREAM_SETTINGS = REPOSITORY / "diffusers_patch" / "additions" / "ruff.toml"


@pytest.fixture(scope="module")
def recipe():
    return hub_backend.recipe()


def contents(tree):
    return {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}


def dispatcher(tree):
    return next(tree.rglob("attention_dispatch.py"))


def test_recipe_only_adds_lines(recipe, tree):
    planned = plan(recipe, tree)
    before = {change.path: change.before.decode().splitlines() for change in planned.changes}
    planned.apply()
    removed = [line for line in planned.diff().splitlines() if line.startswith("-") and not line.startswith("--- ")]
    assert removed == []
    for path, lines in before.items():
        remaining = iter(path.read_text().splitlines())
        assert all(line in remaining for line in lines)  # in their order


def test_second_application_is_a_no_op(recipe, tree):
    plan(recipe, tree).apply()
    once = contents(tree)
    again = plan(recipe, tree)
    assert {state for _, state in again.states} <= {APPLIED, ABSENT}
    again.apply()
    assert contents(tree) == once


def test_source_edits_are_never_optional(recipe, tree):
    states = plan(recipe, tree).states
    assert all(state == READY for edit, state in states if edit.file == hub_backend.DISPATCHER)
    assert sum(edit.file == hub_backend.DISPATCHER for edit, _ in states) == 6


def test_diff_is_what_git_applies(recipe, tree, tmp_path):
    planned = plan(recipe, tree)
    root = tmp_path / "applied"
    for change in planned.changes:
        path = root / change.file
        path.parent.mkdir(parents=True)
        path.write_bytes(change.before)
    (tmp_path / "hub_backend.diff").write_bytes(planned.diff().encode())
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    subprocess.run(["git", "apply", "--whitespace=error-all", "../hub_backend.diff"], cwd=root, check=True)
    for change in planned.changes:
        assert (root / change.file).read_bytes() == change.after


def test_result_passes_upstream_lint_and_format(recipe, tree):
    ruff = releases.RUFF_FOLDER / "bin" / "ruff"
    if not ruff.is_file():
        pytest.skip("diffusers' ruff is not there: python -m diffusers_patch.tests.releases")
    planned = plan(recipe, tree)
    planned.apply()
    settings = tree / "pyproject.toml"
    files = [change.path for change in planned.changes if change.path.suffix == ".py"]
    options = ["--no-cache", "--config", str(settings if settings.is_file() else UPSTREAM_SETTINGS), *files]
    subprocess.run([ruff, "check", *options], cwd=tree, check=True)
    subprocess.run([ruff, "format", "--check", *options], cwd=tree, check=True)


def test_upstream_settings_are_restated_faithfully(upstream):
    """additions/ruff.toml stands in where a tree has no pyproject.toml."""
    if not (upstream / "pyproject.toml").is_file():
        pytest.skip("an installed package has no pyproject.toml")
    theirs = tomllib.loads((upstream / "pyproject.toml").read_text())["tool"]["ruff"]
    ours = tomllib.loads(UPSTREAM_SETTINGS.read_text())
    assert ours["line-length"] == theirs["line-length"]
    for setting in ("select", "ignore", "isort"):
        assert ours["lint"][setting] == theirs["lint"][setting]


def test_crlf_checkout_stays_crlf(recipe, tree):
    path = dispatcher(tree)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    plan(recipe, tree).apply()
    content = path.read_bytes()
    assert b"AITER_SAGE_HUB" in content and content.count(b"\n") == content.count(b"\r\n")


def test_local_changes_elsewhere_are_kept(recipe, tree):
    path = dispatcher(tree)
    local = b"\n\n# A local note.\nLOCAL = 1\n"
    path.write_bytes(path.read_bytes() + local)
    plan(recipe, tree).apply()
    assert path.read_bytes().endswith(local) and b"AITER_SAGE_HUB" in path.read_bytes()


@pytest.mark.parametrize(
    "line, replacement, message",
    [
        (b'    AITER_FA2_HUB = "aiter_fa2_hub"\n', b"", "occurs 0 times in 'AttentionBackendName'"),
        (
            b"        AttentionBackendName.AITER_FA2_HUB,\n",
            b"        AttentionBackendName.AITER_FA2_HUB,\n" * 2,
            "occurs 2 times in '_check_attention_backend_requirements'",
        ),
        (b"def _check_shape(", b"def _check_shapes(", "'_check_shape' occurs 0 times"),
    ],
    ids=["missing", "duplicated", "renamed"],
)
def test_tree_without_an_anchor_is_refused_untouched(recipe, tree, line, replacement, message, capsys):
    path = dispatcher(tree)
    original = path.read_bytes()
    assert original.count(line) == 1
    path.write_bytes(original.replace(line, replacement))
    before = contents(tree)
    assert main(["apply", "--tree", str(tree)]) == 1
    error = capsys.readouterr().err
    assert "attention_dispatch.py" in error and message in error and "Nothing was changed." in error
    assert contents(tree) == before


def test_partially_applied_tree_is_refused(recipe, tree):
    plan(recipe, tree).apply()
    path = dispatcher(tree)
    entry = b"        AttentionBackendName.AITER_SAGE_HUB,\n"
    assert path.read_bytes().count(entry) == 1
    path.write_bytes(path.read_bytes().replace(entry, b""))
    with pytest.raises(EditError, match="hub_backend is only partially applied") as error:
        plan(recipe, tree)
    assert "missing: " in str(error.value) and "needs the `kernels` package" in str(error.value)


def test_commands_check_apply_and_diff(tree, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command_line, "DIFFS", tmp_path / "diffs")
    before = contents(tree)
    assert main(["check", "--tree", str(tree)]) == 0
    assert "ready" in capsys.readouterr().out and contents(tree) == before
    assert main(["diff", "--tree", str(tree)]) == 0
    assert (
        (tmp_path / "diffs" / "hub_backend.diff")
        .read_text()
        .startswith("diff --git a/src/diffusers/models/attention_dispatch.py")
    )
    assert contents(tree) == before
    assert main(["apply", "--tree", str(tree)]) == 0
    assert contents(tree) != before
    assert "changed" in capsys.readouterr().out
    assert main(["apply", "--tree", str(tree)]) == 0
    assert "nothing to change" in capsys.readouterr().out


def test_patched_package_imports_and_keeps_its_default(recipe, tmp_path):
    shutil.copytree(installed_diffusers(), tmp_path / "diffusers", ignore=shutil.ignore_patterns("__pycache__"))
    plan(recipe, tmp_path).apply()
    program = (
        "import diffusers, sys\n"
        "from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry\n"
        f"assert diffusers.__file__.startswith({str(tmp_path)!r})\n"
        "assert AttentionBackendName.AITER_SAGE_HUB == 'aiter_sage_hub'\n"
        "assert AttentionBackendName.AITER_SAGE_HUB in _AttentionBackendRegistry.list_backends()\n"
        "assert _AttentionBackendRegistry._is_context_parallel_available(AttentionBackendName.AITER_SAGE_HUB)\n"
        "assert _AttentionBackendRegistry.get_active_backend()[0] == 'native'\n"
        "assert 'kernels' not in sys.modules\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("DIFFUSERS_ATTN_BACKEND", None)
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_inserted_names_are_new_to_upstream(recipe, upstream):
    upstream_names = re.findall(r"^(?:def|class) (\w+)", dispatcher(upstream).read_text(), re.MULTILINE)
    inserted = [name for edit in recipe.edits for name in re.findall(r"^(?:def|class) (\w+)", edit.text, re.MULTILINE)]
    assert len(inserted) == 5
    assert set(inserted).isdisjoint(upstream_names)
