# SPDX-License-Identifier: MIT
"""The recipes of both backends against real diffusers: each alone, and both together in either order."""

import ast
import itertools
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from diffusers_patch import __main__ as command_line
from diffusers_patch.__main__ import installed_diffusers, main
from diffusers_patch.edits import ABSENT, APPLIED, READY, EditError, plan
from diffusers_patch.recipes import RECIPES
from diffusers_patch.recipes.shared import DISPATCHER, GUIDE, MINIMAX_H3_PAGE, PACKAGE
from diffusers_patch.tests import releases
from diffusers_patch.tests.misfits import MISFITS, spoil

REPOSITORY = Path(__file__).parents[2]
UPSTREAM_SETTINGS = REPOSITORY / "diffusers_patch" / "additions" / "ruff.toml"

ORDERS = [order for length in (1, 2) for order in itertools.permutations(RECIPES, length)]
MEMBERS = {"aiter_backend": "AITER_SAGE", "hub_backend": "AITER_SAGE_HUB"}


@pytest.fixture(params=RECIPES)
def recipe(request):
    return RECIPES[request.param]()


def apply(order, tree):
    for name in order:
        plan(RECIPES[name](), tree).apply()


def contents(tree):
    return {path: path.read_bytes() for path in tree.rglob("*") if path.is_file()}


def dispatcher(tree):
    return next(tree.rglob("attention_dispatch.py"))


def members(tree):
    """The names in the enumeration of backends."""
    nodes = ast.parse(dispatcher(tree).read_bytes()).body
    enumeration = next(node for node in nodes if getattr(node, "name", None) == "AttentionBackendName")
    return [node.targets[0].id for node in enumeration.body if isinstance(node, ast.Assign)]


@pytest.mark.parametrize("order", ORDERS, ids="+".join)
def test_any_order_applies_once_and_then_changes_nothing(order, tree):
    before = members(tree)
    apply(order, tree)
    once = contents(tree)
    for name in order:
        assert {state for _, state in plan(RECIPES[name](), tree).states} <= {APPLIED, ABSENT}
    apply(order, tree)
    assert contents(tree) == once
    assert set(members(tree)) == set(before) | {MEMBERS[name] for name in order}


def test_both_orders_give_the_same_tree(tree):
    start = contents(tree)
    apply(("aiter_backend", "hub_backend"), tree)
    one = contents(tree)
    for path, content in start.items():
        path.write_bytes(content)
    apply(("hub_backend", "aiter_backend"), tree)
    assert contents(tree) == one


def documentation_edits(recipe):
    return [edit for edit in recipe.edits if edit.file.endswith(".md")]


@pytest.fixture
def checkout(tmp_path):
    """The installed diffusers in the layout of a checkout, whose documentation has but the lines that edits name."""
    root = tmp_path / "checkout"
    for file in ("__init__.py", *(DISPATCHER.removeprefix(f"{PACKAGE}/"),)):
        target = root / PACKAGE / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(installed_diffusers() / file, target)
    pages = {}
    for make in RECIPES.values():
        for edit in documentation_edits(make()):
            section = pages.setdefault(edit.file, {}).setdefault(edit.scope, [])
            section += [edit.anchor] if edit.anchor not in (edit.scope, *section) else []
    for file, sections in pages.items():
        lines = [line for heading, rows in sections.items() for line in (heading, "", *rows, "")]
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text("# Page\n\n" + "\n".join(lines))
    return root


@pytest.mark.parametrize("order", ORDERS, ids="+".join)
def test_documentation_of_a_checkout_gets_each_section_once_in_any_order(order, checkout):
    apply(order, checkout)
    apply(order, checkout)
    for name in order:
        for edit in documentation_edits(RECIPES[name]()):
            assert (checkout / edit.file).read_text().count(edit.text) == 1
            assert "{" not in edit.text  # every placeholder was filled in
    for page in (GUIDE, MINIMAX_H3_PAGE):
        headings = re.findall(r"^## .*", (checkout / page).read_text(), re.MULTILINE)
        assert len(headings) == len(set(headings))


def test_sections_link_to_headings_that_the_same_recipe_adds(recipe):
    """The guide and MiniMax-H3's page refer to each other; a renamed heading would leave a dead link."""
    added = {
        (edit.file.rpartition("/")[2], heading.lower().replace(" ", "-"))
        for edit in documentation_edits(recipe)
        for heading in re.findall(r"^## (.*)", edit.text, re.MULTILINE)
    }
    text = "".join(edit.text for edit in documentation_edits(recipe))
    links = re.findall(r"\]\(\S*/(minimax_h3|attention_backends)#([\w-]+)\)", text)
    assert links
    assert {(f"{page}.md", anchor) for page, anchor in links} <= added


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


def test_upstream_settings_are_restated_faithfully(upstream):
    """additions/ruff.toml stands in where a tree has no pyproject.toml."""
    if not (upstream / "pyproject.toml").is_file():
        pytest.skip("an installed package has no pyproject.toml")
    theirs = tomllib.loads((upstream / "pyproject.toml").read_text())["tool"]["ruff"]
    ours = tomllib.loads(UPSTREAM_SETTINGS.read_text())
    assert ours["line-length"] == theirs["line-length"]
    for setting in ("select", "ignore", "isort"):
        assert ours["lint"][setting] == theirs["lint"][setting]


def test_recipe_only_adds_lines(recipe, tree):
    planned = plan(recipe, tree)
    before = {change.path: change.before.decode().splitlines() for change in planned.changes}
    planned.apply()
    removed = [line for line in planned.diff().splitlines() if line.startswith("-") and not line.startswith("--- ")]
    assert removed == []
    for path, lines in before.items():
        remaining = iter(path.read_text().splitlines())
        assert all(line in remaining for line in lines)  # in their order


def test_source_edits_are_never_optional(recipe, tree):
    states = [state for edit, state in plan(recipe, tree).states if edit.file.startswith(PACKAGE)]
    assert states and set(states) == {READY}
    assert not any(edit.optional for edit in recipe.edits if edit.file.startswith(PACKAGE))


def test_diff_is_what_git_applies(recipe, tree, tmp_path):
    planned = plan(recipe, tree)
    root = tmp_path / "applied"
    for change in planned.changes:
        path = root / change.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(change.before)
    (tmp_path / "recipe.diff").write_bytes(planned.diff().encode())
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    subprocess.run(["git", "apply", "--whitespace=error-all", "../recipe.diff"], cwd=root, check=True)
    for change in planned.changes:
        assert (root / change.file).read_bytes() == change.after


def test_crlf_checkout_stays_crlf(recipe, tree):
    path = dispatcher(tree)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    plan(recipe, tree).apply()
    content = path.read_bytes()
    assert MEMBERS[recipe.name] in members(tree) and content.count(b"\n") == content.count(b"\r\n")


def test_local_changes_elsewhere_are_kept(recipe, tree):
    path = dispatcher(tree)
    local = b"\n\n# A local note.\nLOCAL = 1\n"
    path.write_bytes(path.read_bytes() + local)
    plan(recipe, tree).apply()
    assert path.read_bytes().endswith(local) and MEMBERS[recipe.name] in members(tree)


NAME = b'    AITER_FA2_HUB = "aiter_fa2_hub"\n'
REQUIREMENT = b"        AttentionBackendName.AITER_FA2_HUB,\n"
GUARD = b"# Version guard for PyTorch compatibility - custom_op was added in PyTorch 2.4\n"


@pytest.mark.parametrize(
    "name, line, replacement, message",
    [
        ("hub_backend", NAME, b"", "occurs 0 times in 'AttentionBackendName'"),
        ("hub_backend", REQUIREMENT, REQUIREMENT * 2, "occurs 2 times in '_check_attention_backend_requirements'"),
        ("hub_backend", b"def _check_shape(", b"def _check_shapes(", "'_check_shape' occurs 0 times"),
        ("aiter_backend", b"    # PyTorch native\n", b"", "occurs 0 times in 'AttentionBackendName'"),
        ("aiter_backend", GUARD, GUARD * 2, "occurs 2 times in ''"),
        ("aiter_backend", b"def _check_shape(", b"def _check_shapes(", "'_check_shape' occurs 0 times"),
    ],
    ids=[f"{name} {misfit}" for name in ("hub", "aiter") for misfit in ("missing", "duplicated", "renamed")],
)
def test_tree_without_an_anchor_is_refused_untouched(tree, name, line, replacement, message, capsys):
    path = dispatcher(tree)
    original = path.read_bytes()
    assert original.count(line) == 1
    path.write_bytes(original.replace(line, replacement))
    before = contents(tree)
    assert main(["apply", "--recipe", name, "--tree", str(tree)]) == 1
    error = capsys.readouterr().err
    assert "attention_dispatch.py" in error and message in error and "Nothing was changed." in error
    assert contents(tree) == before


@pytest.mark.parametrize("misfit", MISFITS)
def test_every_anchor_that_is_lost_is_refused_by_its_file(recipe, tree, misfit):
    paths = {change.file: change.path for change in plan(recipe, tree).changes}
    lost = [edit for edit in recipe.edits if edit.file in paths and (edit.scope or not misfit.startswith("moved"))]
    assert len(lost) >= 5
    for edit in lost:
        original = spoil(paths[edit.file], edit.anchor, misfit)
        before = contents(tree)
        with pytest.raises(EditError, match=re.escape(edit.file)):
            plan(recipe, tree).apply()
        assert contents(tree) == before
        paths[edit.file].write_bytes(original)


@pytest.mark.parametrize(
    "name, ours, reason",
    [
        ("hub_backend", b"        AttentionBackendName.AITER_SAGE_HUB,\n", "needs the `kernels` package"),
        ("aiter_backend", b"aiter_sage_attention = None\n", "once the backend is chosen"),
    ],
)
def test_partially_applied_tree_is_refused(tree, name, ours, reason):
    apply([name], tree)
    path = dispatcher(tree)
    assert path.read_bytes().count(ours) == 1
    path.write_bytes(path.read_bytes().replace(ours, b""))
    with pytest.raises(EditError, match=f"{name} is only partially applied") as error:
        plan(RECIPES[name](), tree)
    assert "missing: " in str(error.value) and reason in str(error.value)


def test_check_changed_by_somebody_is_not_written_a_second_time(tree):
    apply(["hub_backend"], tree)
    path = dispatcher(tree)
    refusal = b"must be bfloat16 for aiter sage attention"
    assert path.read_bytes().count(refusal) == 1
    path.write_bytes(path.read_bytes().replace(refusal, b"must be half precision for aiter sage attention"))
    with pytest.raises(EditError, match="_check_aiter_sage_attention.*, but not as this recipe writes it"):
        plan(RECIPES["aiter_backend"](), tree)


def test_commands_check_apply_and_diff(recipe, tree, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command_line, "DIFFS", tmp_path / "diffs")
    options = ["--recipe", recipe.name, "--tree", str(tree)]
    before = contents(tree)
    assert main(["check", *options]) == 0
    assert "ready" in capsys.readouterr().out and contents(tree) == before
    assert main(["diff", *options]) == 0
    diff = (tmp_path / "diffs" / f"{recipe.name}.diff").read_text()
    assert f"diff --git a/{DISPATCHER} b/{DISPATCHER}\n" in diff
    assert contents(tree) == before
    assert main(["apply", *options]) == 0
    assert contents(tree) != before
    assert "changed" in capsys.readouterr().out
    assert main(["apply", *options]) == 0
    assert "nothing to change" in capsys.readouterr().out


def test_inserted_names_are_new_to_upstream(recipe, upstream):
    """Also what lets a shared edit be recognised by its first line."""
    definition = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)
    theirs = {
        file: set(definition.findall(path.read_text()))
        for file in (DISPATCHER,)
        for path in upstream.rglob(file.rpartition("/")[2])
    }
    inserted = [(edit.file, name) for edit in recipe.edits for name in definition.findall(edit.text)]
    assert len(inserted) >= 5
    for file, name in inserted:
        assert name not in theirs.get(file, set())
