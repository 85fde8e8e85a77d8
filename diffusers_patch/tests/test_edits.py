# SPDX-License-Identifier: MIT
"""The edit engine, on a tree of three small files."""

import dataclasses
import json
import os
import subprocess

import pytest

from diffusers_patch import edits
from diffusers_patch.edits import ABSENT, APPLIED, READY, Edit, EditError, NewFile, Recipe, plan

MODULE = '''"""Text with a form feed:\x0c it is not a line end."""
import enum


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


if True:

    @staticmethod
    @property
    def paint(colour):
        if colour:
            return 1
        return 2


TABLE: dict = {
    "RED": 1,
}


def other(colour):
    return 2
'''
GUIDE = "# Guide\n\n## Colours\n\n| RED |\n\n### More\n\n| BLUE |\n\n## Other\n\n| RED |\n"

MEMBER = Edit("src/pkg/colours.py", "Colour", "    RED = 1", "after", "    GREEN = 3\n", "the member")
ENTRY = Edit("src/pkg/colours.py", "TABLE", '    "RED": 1,', "before", '    "GREEN": 3,\n', "the entry")
FUNCTION = Edit(
    "src/pkg/colours.py", "paint", "        return 2", "after", "\n\ndef green():\n    return 3\n", "the function"
)
DECORATED = Edit(
    "src/pkg/colours.py", "paint", "    @staticmethod", "before", "    GREEN = 3\n", "above the decorators"
)
ROW = Edit("docs/guide.md", "## Colours", "| RED |", "after", "| GREEN |\n", "the row", optional=True)
EDITS = (MEMBER, ENTRY, FUNCTION, ROW)


def recipe(*chosen):
    return Recipe("green", "src/pkg", "green", chosen or EDITS)


@pytest.fixture
def checkout(tmp_path):
    return write_checkout(tmp_path / "checkout")


def write_checkout(root, module=MODULE, guide=GUIDE):
    (root / "src" / "pkg").mkdir(parents=True)
    (root / "docs").mkdir()
    (root / "src" / "pkg" / "__init__.py").write_bytes(b"")
    (root / "src" / "pkg" / "colours.py").write_bytes(module.encode())
    (root / "docs" / "guide.md").write_bytes(guide.encode())
    return root


def contents(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def module(root):
    return (root / "src" / "pkg" / "colours.py").read_bytes().decode()


def replace(root, before, after):
    path = root / "src" / "pkg" / "colours.py"
    text = path.read_bytes().decode()
    assert text.count(before) == 1
    path.write_bytes(text.replace(before, after).encode())


def assert_refused(root, chosen, *fragments):
    before = contents(root)
    with pytest.raises(EditError) as error:
        plan(chosen, root).apply()
    for fragment in fragments:
        assert fragment in str(error.value)
    assert contents(root) == before


def test_each_text_lands_beside_its_anchor_and_nothing_else_changes(checkout):
    plan(recipe(), checkout).apply()
    expected = MODULE.replace("    RED = 1\n", "    RED = 1\n    GREEN = 3\n")
    expected = expected.replace('    "RED": 1,\n', '    "GREEN": 3,\n    "RED": 1,\n')
    expected = expected.replace("        return 2\n", "        return 2\n\n\ndef green():\n    return 3\n")
    assert module(checkout) == expected
    assert (checkout / "docs" / "guide.md").read_text() == GUIDE.replace("| RED |", "| RED |\n| GREEN |", 1)


def test_applying_twice_changes_nothing_the_second_time(checkout):
    plan(recipe(), checkout).apply()
    once = contents(checkout)
    second = plan(recipe(), checkout)
    assert {state for _, state in second.states} == {APPLIED}
    assert second.changes == () and second.diff() == ""
    second.apply()
    assert contents(checkout) == once


def test_planning_writes_nothing(checkout):
    before = contents(checkout)
    assert {state for _, state in plan(recipe(), checkout).states} == {READY}
    assert contents(checkout) == before


def test_scope_of_a_decorated_function_starts_at_its_first_decorator(checkout):
    plan(recipe(DECORATED), checkout).apply()
    assert "    GREEN = 3\n    @staticmethod\n    @property\n" in module(checkout)


def test_installed_package_gets_the_edits_of_its_files_only(checkout, tmp_path):
    site_packages = tmp_path / "site-packages"
    (checkout / "src").rename(site_packages)
    for tree in (site_packages / "pkg", site_packages):
        planned = plan(recipe(), tree)
        assert [state for _, state in planned.states] == [READY, READY, READY, ABSENT]
    planned.apply()
    assert "GREEN = 3" in (site_packages / "pkg" / "colours.py").read_text()


def test_package_inside_a_checkout_stands_for_the_checkout(checkout):
    assert plan(recipe(), checkout / "src" / "pkg").changes == plan(recipe(), checkout).changes


def test_tree_without_the_package_is_refused(tmp_path):
    with pytest.raises(EditError, match="neither a checkout with src/pkg nor an installed pkg"):
        plan(recipe(), tmp_path)


def test_required_file_that_is_absent_is_named(checkout):
    (checkout / "src" / "pkg" / "colours.py").unlink()
    assert_refused(checkout, recipe(), "src/pkg/colours.py: no such file")


@pytest.mark.parametrize(
    "before, after, fragments",
    [
        ("    RED = 1\n", "    RED = 0\n", ["'    RED = 1' occurs 0 times in 'Colour', not once (the member)"]),
        ("    BLUE = 2\n", "    RED = 1\n", ["'    RED = 1' occurs 2 times in 'Colour', not once (the member)"]),
        ("class Colour(", "class Color(", ["'Colour' occurs 0 times, not once (the member)"]),
        ("def other(", "def paint(", ["'paint' occurs 2 times, not once (the function)"]),
        ("def other(", "def other:", ["src/pkg/colours.py: not valid Python, line 25"]),
    ],
    ids=["anchor missing", "anchor duplicated", "scope missing", "scope duplicated", "syntax error"],
)
def test_tree_that_does_not_fit_is_refused_by_file_scope_anchor_and_count(checkout, before, after, fragments):
    replace(checkout, before, after)
    assert_refused(checkout, recipe(), "src/pkg/colours.py", *fragments)


def test_anchor_that_moved_out_of_its_scope_is_refused(checkout):
    replace(checkout, "        return 2\n", "        return 4\n")  # `other` still has a line `return 2`
    assert_refused(checkout, recipe(), "'        return 2' occurs 0 times in 'paint'")


def test_every_misfit_is_reported_at_once(checkout):
    replace(checkout, "    RED = 1\n", "    RED = 0\n")
    replace(checkout, '    "RED": 1,\n', '    "RED": 0,\n')
    (checkout / "docs" / "guide.md").write_text("# Guide\n")
    assert_refused(checkout, recipe(), "(the member)", "(the entry)", "docs/guide.md: '## Colours' occurs 0 times")


def test_anchor_is_compared_with_its_indentation(checkout):
    replace(checkout, "    RED = 1\n", "    RED = 1  # first\n")
    assert_refused(checkout, recipe(), "'    RED = 1' occurs 0 times")


@pytest.mark.parametrize("missing", EDITS, ids=[edit.reason for edit in EDITS])
def test_partial_application_is_refused_and_names_what_is_missing(checkout, missing):
    plan(recipe(*(edit for edit in EDITS if edit is not missing)), checkout).apply()
    assert_refused(checkout, recipe(), "green is only partially applied", f"  missing: {missing}")


SHARED = dataclasses.replace(FUNCTION, text="\n\ndef shade():\n    return 3\n", shared=True)
BLUEISH = Edit("src/pkg/colours.py", "Colour", "    BLUE = 2", "after", "    CYAN = 4\n", "another recipe's")
OTHER_RECIPE = Recipe("cyan", "src/pkg", "cyan", (BLUEISH, SHARED))


def test_shared_edit_is_made_once_whichever_recipe_comes_first(checkout, tmp_path):
    recipes = [recipe(MEMBER, SHARED), OTHER_RECIPE]
    trees = [checkout, write_checkout(tmp_path / "reversed")]
    for tree, order in zip(trees, (recipes, recipes[::-1]), strict=True):
        for chosen in order:
            plan(chosen, tree).apply()
        assert module(tree).count("def shade():") == 1
        assert all(state == APPLIED for chosen in order for _, state in plan(chosen, tree).states)
    assert module(trees[0]) == module(trees[1])


def test_file_with_shared_edits_only_is_recognised_as_applied(checkout):
    row = dataclasses.replace(ROW, shared=True)
    plan(recipe(MEMBER, row), checkout).apply()
    assert plan(recipe(MEMBER, row), checkout).changes == ()


def test_shared_edit_changed_by_somebody_is_refused_instead_of_made_again(checkout):
    plan(OTHER_RECIPE, checkout).apply()
    replace(checkout, "def shade():\n    return 3\n", "def shade():\n    return 4\n")
    for chosen in (OTHER_RECIPE, recipe(MEMBER, SHARED)):
        assert_refused(checkout, chosen, "has 'def shade():', but not as this recipe writes it (the function)")


def test_shared_edit_that_is_missing_counts_as_partial_application(checkout):
    plan(recipe(MEMBER), checkout).apply()
    assert_refused(checkout, recipe(MEMBER, SHARED), "green is only partially applied", f"  missing: {SHARED}")


def test_our_text_edited_by_somebody_is_refused(checkout):
    plan(recipe(MEMBER), checkout).apply()
    replace(checkout, "GREEN = 3", "GREEN = 4")
    assert_refused(checkout, recipe(MEMBER), "mentions 'green', but not as this recipe writes it")


def test_local_edits_elsewhere_are_kept(checkout):
    replace(checkout, "    BLUE = 2\n", "    BLUE = 2  # local\n")
    plan(recipe(), checkout).apply()
    assert "    BLUE = 2  # local\n" in module(checkout)
    assert "    GREEN = 3\n" in module(checkout)


def test_crlf_files_keep_their_line_ending(tmp_path):
    checkout = write_checkout(tmp_path / "crlf", MODULE.replace("\n", "\r\n"), GUIDE.replace("\n", "\r\n"))
    reference = write_checkout(tmp_path / "lf")
    for tree in (checkout, reference):
        plan(recipe(), tree).apply()
    assert module(checkout) == module(reference).replace("\n", "\r\n")
    assert {state for _, state in plan(recipe(), checkout).states} == {APPLIED}


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_anchor_on_a_last_line_without_line_ending(tmp_path, ending):
    text = MODULE.replace("\n", ending).removesuffix(ending)
    checkout = write_checkout(tmp_path / "checkout", text)
    at_end = Edit("src/pkg/colours.py", "other", "    return 2", "after", "\n\nGREEN = 3\n", "at the end")
    planned = plan(recipe(at_end), checkout)
    patch = planned.diff()
    planned.apply()
    assert module(checkout) == text + ending * 3 + "GREEN = 3"
    assert plan(recipe(at_end), checkout).changes == ()
    assert patch.endswith("+GREEN = 3\n\\ No newline at end of file\n")


def test_failing_write_restores_what_was_already_replaced(checkout, monkeypatch):
    before = contents(checkout)
    replaced = []

    def fail_on_second(source, target):
        replaced.append(target)
        if len(replaced) == 2:
            raise OSError("disk full")
        os.rename(source, target)

    monkeypatch.setattr(edits.os, "replace", fail_on_second)
    with pytest.raises(OSError, match="disk full"):
        plan(recipe(), checkout).apply()
    assert len(replaced) == 3  # the first file, the failure, the first file again
    assert contents(checkout) == before


def test_file_mode_is_kept(checkout):
    path = checkout / "src" / "pkg" / "colours.py"
    path.chmod(0o755)
    plan(recipe(), checkout).apply()
    assert path.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_diff_is_what_git_applies(tmp_path, ending):
    checkout = write_checkout(tmp_path / "checkout", MODULE.replace("\n", ending), GUIDE.replace("\n", ending))
    subprocess.run(["git", "init", "--quiet"], cwd=checkout, check=True)
    planned = plan(recipe(), checkout)
    patch = tmp_path / "green.diff"
    patch.write_bytes(planned.diff().encode())
    subprocess.run(["git", "apply", str(patch)], cwd=checkout, check=True)
    for change in planned.changes:
        assert change.path.read_bytes() == change.after
    assert {state for _, state in plan(recipe(), checkout).states} == {APPLIED}


def test_nested_scope_is_found_by_its_dotted_path(checkout):
    replace(checkout, "    BLUE = 2\n", "    def name(self):\n        return 2\n")
    nested = dataclasses.replace(FUNCTION, scope="Colour.name", text="\n    GREEN = 3\n")
    plan(recipe(nested), checkout).apply()
    assert "    def name(self):\n        return 2\n\n    GREEN = 3\n" in module(checkout)


CONFIG = '{\n    "RED": {\n        "paint": {"shade": [1, "}"]}\n    },\n    "BLUE": {\n        "paint": {}\n    }\n}\n'
JSON_MEMBER = Edit("src/pkg/config.json", "BLUE", '    "BLUE": {', "before", '    "GREEN": {},\n', "the member")
ADDED = NewFile("src/pkg/green/paint.py", "GREEN = 3\n", "the new file")
IMPORT = Edit("src/pkg/colours.py", "", "import enum", "after", "import green\n", "the import")


@pytest.fixture
def checkout_with_config(checkout):
    (checkout / "src" / "pkg" / "config.json").write_text(CONFIG)
    return checkout


def test_a_json_member_is_inserted_beside_a_key(checkout_with_config):
    plan(recipe(JSON_MEMBER), checkout_with_config).apply()
    edited = json.loads((checkout_with_config / "src/pkg/config.json").read_text())
    assert edited == {**json.loads(CONFIG), "GREEN": {}}
    assert list(edited) == ["RED", "GREEN", "BLUE"]
    assert not plan(recipe(JSON_MEMBER), checkout_with_config).changes


def test_a_nested_json_key_is_a_scope_of_its_own(checkout_with_config):
    # "paint" occurs under both colours; only one of them has the anchor in the scope.
    anchor, text = '        "paint": {}', '        "green": 1,\n'
    edit = dataclasses.replace(JSON_MEMBER, scope="BLUE.paint", anchor=anchor, text=text)
    plan(recipe(edit), checkout_with_config).apply()
    assert json.loads((checkout_with_config / "src/pkg/config.json").read_text())["BLUE"] == {"green": 1, "paint": {}}


@pytest.mark.parametrize("scope", ["PURPLE", "RED.shade"])
def test_a_missing_json_key_is_named(checkout_with_config, scope):
    with pytest.raises(EditError, match=f"config.json: '{scope}' occurs 0 times"):
        plan(recipe(dataclasses.replace(JSON_MEMBER, scope=scope)), checkout_with_config)


def test_an_edit_that_would_break_json_is_refused(checkout_with_config):
    before = contents(checkout_with_config)
    with pytest.raises(EditError, match="config.json: not valid JSON"):
        plan(recipe(dataclasses.replace(JSON_MEMBER, text='    "GREEN": {}\n')), checkout_with_config)
    assert contents(checkout_with_config) == before


def test_new_files_are_added_once_and_show_in_the_diff(checkout):
    with_file = Recipe("green", "src/pkg", "green", (MEMBER,), (ADDED,))
    first = plan(with_file, checkout)
    assert "--- /dev/null\n+++ b/src/pkg/green/paint.py\n" in first.diff()
    first.apply()
    assert (checkout / "src/pkg/green/paint.py").read_text() == "GREEN = 3\n"
    second = plan(with_file, checkout)
    assert not second.changes and {state for _, state in second.states} == {APPLIED}


def test_a_different_file_in_the_place_of_a_new_one_is_refused(checkout):
    (checkout / "src/pkg/green").mkdir()
    (checkout / "src/pkg/green/paint.py").write_text("GREEN = 4\n")
    before = contents(checkout)
    with pytest.raises(EditError, match="green/paint.py: exists, but not as this recipe writes it"):
        plan(Recipe("green", "src/pkg", "green", (MEMBER,), (ADDED,)), checkout)
    assert contents(checkout) == before


def test_a_failed_write_removes_new_files_again(checkout, monkeypatch):
    before = contents(checkout)
    prepared = plan(Recipe("green", "src/pkg", "green", (ENTRY,), (ADDED,)), checkout)
    prepared = dataclasses.replace(prepared, changes=tuple(reversed(prepared.changes)))  # the new file first
    rename = os.replace

    def fail_on_the_module(source, target):
        if str(target).endswith("colours.py"):
            raise OSError("disk full")
        rename(source, target)

    monkeypatch.setattr(edits.os, "replace", fail_on_the_module)
    with pytest.raises(OSError, match="disk full"):
        prepared.apply()
    assert contents(checkout) == before


def test_an_empty_scope_is_the_whole_file(checkout):
    plan(recipe(IMPORT), checkout).apply()
    assert "import enum\nimport green\n" in module(checkout)
