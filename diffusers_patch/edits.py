# SPDX-License-Identifier: MIT
"""Insert our text into a source tree that others own.

A recipe is data: each `Edit` names a file, a scope found by the file's structure, one exact line inside that
scope and the text to put beside it; each `NewFile` is a file that upstream does not have. `plan` checks all of a
recipe and writes nothing; `Plan.apply` then changes the tree wholly or not at all. An edit only ever adds lines, so
other changes in the tree are kept.
"""

from __future__ import annotations

import ast
import difflib
import functools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

READY, APPLIED, ABSENT = "ready", "already applied", "file absent"


class EditError(Exception):
    """A recipe does not fit a tree; the text has one line per reason. The tree was not changed."""


@dataclass(frozen=True)
class Edit:
    """One insertion.

    `file` is relative to the root of the upstream repository. `scope` is a dotted path of classes, functions
    or assigned names in a Python file ("" for all of it), a heading line in a Markdown file, or a dotted path
    of keys in a JSON file (a member's lines, its key's line included). `anchor` is one whole line of
    the scope (decorators belong to it) and must occur there exactly once. `text` is one or more whole lines,
    written with "\\n"; the file's own line ending replaces it. The file of an `optional` edit may be absent. A
    `shared` edit may have been made by another recipe; the first line of its text is new to upstream.
    """

    file: str
    scope: str
    anchor: str
    place: Literal["before", "after"]
    text: str
    reason: str
    optional: bool = False
    shared: bool = False

    def __str__(self) -> str:
        return f"{self.file}: {self.place} {self.anchor.strip()!r} in {self.scope!r} ({self.reason})"


@dataclass(frozen=True)
class NewFile:
    """A file to add. `file` is relative to the root of the upstream repository; `text` uses "\\n"."""

    file: str
    text: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: new file ({self.reason})"


@dataclass(frozen=True)
class Recipe:
    """The edits and the new files of one pull request.

    `package` is the folder of the importable package inside the upstream repository, so that an installed
    package can be edited too. `marker` is a whole word (in any case) that upstream never uses and our text does: a
    file that has it, but not as the recipe writes it, is left alone.
    """

    name: str
    package: str
    marker: str
    edits: tuple[Edit, ...]
    new_files: tuple[NewFile, ...] = ()


@dataclass(frozen=True)
class _Text:
    """A file as lines without their endings, so that edits compare equal whatever the line ending is."""

    lines: list[str]
    ending: str

    @classmethod
    def read(cls, content: bytes) -> _Text:
        text = content.decode("utf-8")
        # Not str.splitlines: it also breaks at form feeds, which Python's line numbers do not count.
        lines = text.split("\n")
        ending = "\r\n" if lines[0].endswith("\r") and len(lines) > 1 else "\n"
        return cls(lines, ending)

    def bare(self, index: int) -> str:
        return self.lines[index].removesuffix("\r")

    def insert(self, index: int, text: str) -> None:
        if index == len(self.lines):  # after a last line that has no line ending: the result has none either
            self.lines[-1] += self.ending.removesuffix("\n")
            self.lines.extend(line + self.ending.removesuffix("\n") for line in _lines(text))
            self.lines[-1] = self.lines[-1].removesuffix("\r")
        else:
            self.lines[index:index] = [line + self.ending.removesuffix("\n") for line in _lines(text)]

    def encode(self) -> bytes:
        return "\n".join(self.lines).encode("utf-8")


@dataclass(frozen=True)
class Change:
    """One file of a plan: its path on disk, its path in the upstream repository, and both contents.

    `before` is None for a new file.
    """

    path: Path
    file: str
    before: bytes | None
    after: bytes


@dataclass(frozen=True)
class Plan:
    """What applying a recipe to a tree would do: the state of each edit, and the files to write."""

    states: tuple[tuple[Edit | NewFile, str], ...]
    changes: tuple[Change, ...]

    def apply(self) -> None:
        """Write every change, or none: a failure puts back what was already replaced and raises."""
        replaced: list[Change] = []
        staged: list[tuple[Change, Path]] = []
        try:
            for change in self.changes:
                staged.append((change, _write_beside(change.path, change.after)))
            for change, temporary in staged:
                os.replace(temporary, change.path)
                replaced.append(change)
        except BaseException:
            for change in replaced:
                if change.before is None:
                    change.path.unlink()
                else:
                    os.replace(_write_beside(change.path, change.before), change.path)
            raise
        finally:
            for _, temporary in staged:
                temporary.unlink(missing_ok=True)

    def diff(self) -> str:
        """The changes as a plain git diff, with paths relative to the root of the upstream repository."""
        return "".join(_git_diff(change) for change in self.changes)


def plan(recipe: Recipe, tree: Path) -> Plan:
    """Check all edits of `recipe` against `tree`: a checkout, an installed package, or the folder around one.

    Raises EditError, naming every edit at fault, when the tree is none of those, a scope or an anchor is not
    found exactly once, only some edits are applied, a file has the marker or a shared edit's first line without
    the recipe's text, or another file is where a new one goes.
    """
    parent = _package_parent(recipe, tree.resolve())
    states: list[tuple[Edit | NewFile, str]] = []
    changes: list[Change] = []
    errors: list[str] = []
    for file in dict.fromkeys(edit.file for edit in recipe.edits):
        edits = [edit for edit in recipe.edits if edit.file == file]
        path = _locate(recipe, parent, file)
        if path is None or not path.is_file():
            errors += [f"{file}: no such file in {tree}" for edit in edits if not edit.optional][:1]
            states += [(edit, ABSENT) for edit in edits]
            continue
        content = path.read_bytes()
        try:
            file_states, after = _edit_file(content, file, edits, recipe.marker)
        except EditError as error:
            errors.append(str(error))
            continue
        states += zip(edits, file_states, strict=True)
        if after != content:
            changes.append(Change(path, file, content, after))
    for new_file in recipe.new_files:
        path = _locate(recipe, parent, new_file.file)
        content = new_file.text.encode("utf-8")
        if path is None:
            errors.append(f"{new_file.file}: has no place in {tree}, which is no checkout")
        elif not path.exists():
            states.append((new_file, READY))
            changes.append(Change(path, new_file.file, None, content))
        elif path.is_file() and path.read_bytes() == content:
            states.append((new_file, APPLIED))
        else:
            errors.append(f"{new_file.file}: exists, but not as this recipe writes it ({new_file.reason})")
    applied = [edit for edit, state in states if state == APPLIED and not getattr(edit, "shared", False)]
    ready = [edit for edit, state in states if state == READY]
    if applied and ready:
        errors.append(f"{recipe.name} is only partially applied")
        errors += [f"  applied: {edit}" for edit in applied] + [f"  missing: {edit}" for edit in ready]
    if errors:
        raise EditError("\n".join(errors))
    return Plan(tuple(states), tuple(changes))


def _package_parent(recipe: Recipe, tree: Path) -> Path:
    """The folder of the tree that stands for the parent of `recipe.package`."""
    parent, name = os.path.split(recipe.package)
    for candidate in (tree / parent, tree, tree.parent):
        package = candidate / name
        if (package / "__init__.py").is_file() and (candidate != tree.parent or package.samefile(tree)):
            return candidate
    raise EditError(f"{tree}: neither a checkout with {recipe.package} nor an installed {name}")


def _locate(recipe: Recipe, parent: Path, file: str) -> Path | None:
    """The path of an upstream file; None for a file outside the package in a tree that is no checkout."""
    source_folder = os.path.dirname(recipe.package)
    if file.startswith(recipe.package + "/"):
        return parent / os.path.relpath(file, source_folder or ".")
    for name in reversed(Path(source_folder).parts):
        if parent.name != name:
            return None
        parent = parent.parent
    return parent / file


def _edit_file(content: bytes, file: str, edits: list[Edit], marker: str) -> tuple[list[str], bytes]:
    """The state of each edit of one file, and the file's content with the missing ones made."""
    text = _Text.read(content)
    states, insertions, errors = [], [], []
    for edit in edits:
        try:
            index = _insertion_index(text, content, edit)
        except EditError as error:
            errors.append(str(error))
            continue
        applied = _is_applied(text, edit, index)
        states.append(APPLIED if applied else READY)
        if not applied:
            insertions.append((index, edit))
        if edit.shared and not applied and _opens_somewhere(text, edit):
            errors.append(f"{edit.file}: has {_opening(edit)!r}, but not as this recipe writes it ({edit.reason})")
    if errors:
        raise EditError("\n".join(errors))
    # What another recipe may have written says nothing about this one, unless there is nothing else to judge by.
    judged = [state for edit, state in zip(edits, states, strict=True) if not edit.shared] or states
    if APPLIED not in judged and re.search(rf"\b{re.escape(marker)}\b", content.decode("utf-8"), re.IGNORECASE):
        raise EditError(f"{file}: mentions {marker!r}, but not as this recipe writes it")
    for index, edit in sorted(insertions, key=lambda insertion: insertion[0], reverse=True):
        text.insert(index, edit.text)
    after = text.encode()
    if file.endswith(".json"):
        _check_json(after, file)
    return states, after


def _insertion_index(text: _Text, content: bytes, edit: Edit) -> int:
    first, last = _scope_lines(text, content, edit)
    found = [index for index in range(first, last) if text.bare(index) == edit.anchor]
    if len(found) != 1:
        raise EditError(
            f"{edit.file}: the line {edit.anchor!r} occurs {len(found)} times in {edit.scope!r}, not once "
            f"({edit.reason})"
        )
    return found[0] + (edit.place == "after")


def _is_applied(text: _Text, edit: Edit, index: int) -> bool:
    wanted = _lines(edit.text)
    first = index if edit.place == "after" else index - len(wanted)
    if first < 0 or first + len(wanted) > len(text.lines):
        return False
    return [text.bare(first + offset) for offset in range(len(wanted))] == wanted


def _opening(edit: Edit) -> str:
    """The first line of the edit's text that is not blank."""
    return next(line for line in _lines(edit.text) if line)


def _opens_somewhere(text: _Text, edit: Edit) -> bool:
    return any(text.bare(index) == _opening(edit) for index in range(len(text.lines)))


def _scope_lines(text: _Text, content: bytes, edit: Edit) -> tuple[int, int]:
    """The half-open range of line indices that the edit's scope covers."""
    if not edit.scope:
        return 0, len(text.lines)
    if edit.file.endswith(".md"):
        ranges = _headings(text, edit.scope)
    elif edit.file.endswith(".json"):
        ranges = _members(content, edit)
    else:
        ranges = _definitions(content, edit)
    if len(ranges) != 1:
        raise EditError(f"{edit.file}: {edit.scope!r} occurs {len(ranges)} times, not once ({edit.reason})")
    return ranges[0]


def _headings(text: _Text, heading: str) -> list[tuple[int, int]]:
    """Sections that `heading` opens; each ends before the next heading of its level or above."""
    level = len(heading) - len(heading.lstrip("#"))
    starts = [index for index in range(len(text.lines)) if text.bare(index) == heading]
    ends_section = re.compile(rf"#{{1,{level}}} ")
    ranges = []
    for start in starts:
        rest = range(start + 1, len(text.lines))
        ranges.append((start, next((i for i in rest if ends_section.match(text.bare(i))), len(text.lines))))
    return ranges


def _members(content: bytes, edit: Edit) -> list[tuple[int, int]]:
    """The lines of the JSON members that the scope names."""
    text = content.decode("utf-8")
    _check_json(content, edit.file)
    spans = [(0, text.index("{"), len(text))] if "{" in text else []
    for name in edit.scope.split("."):
        spans = [span for _, value, _ in spans for key, *span in _object_members(text, value) if key == name]
    return [(text.count("\n", 0, first), text.count("\n", 0, end) + 1) for first, _, end in spans]


def _check_json(content: bytes, file: str) -> None:
    try:
        json.loads(content)
    except ValueError as error:
        raise EditError(f"{file}: not valid JSON: {error}") from error


def _object_members(text: str, start: int) -> Iterator[tuple[str, int, int, int]]:
    """(key, start of the key, start of the value, end of the value) of the JSON object at `start`, if it is one."""
    skip_space = re.compile(r"[\s,]*").match
    decode = json.JSONDecoder().raw_decode
    position = skip_space(text, start + 1).end()
    while text[start] == "{" and text[position] != "}":
        key, end = decode(text, position)
        value_start = re.compile(r"\s*:\s*").match(text, end).end()
        _, value_end = decode(text, value_start)
        yield key, position, value_start, value_end
        position = skip_space(text, value_end).end()


def _definitions(content: bytes, edit: Edit) -> list[tuple[int, int]]:
    try:
        bodies = [_parsed(content).body]
    except SyntaxError as error:
        raise EditError(f"{edit.file}: not valid Python, line {error.lineno}: {error.msg}") from error
    found: list[ast.stmt] = []
    for name in edit.scope.split("."):
        found = [node for body in bodies for node in _statements(body) if name in _names(node)]
        bodies = [getattr(node, "body", []) for node in found]
    return [(_first_line(node) - 1, node.end_lineno) for node in found]


@functools.lru_cache(maxsize=4)
def _parsed(content: bytes) -> ast.Module:
    """The syntax tree of a file: all edits of one file look at the same."""
    return ast.parse(content)


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body, those behind its conditions, guards and contexts included."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            for block in ("body", "orelse", "finalbody"):
                yield from _statements(getattr(node, block, []))
            for handler in getattr(node, "handlers", []):
                yield from _statements(handler.body)


def _names(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _first_line(node: ast.stmt) -> int:
    return min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", []))])


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def _write_beside(path: Path, content: bytes) -> Path:
    """A new file with `content` and the mode of `path`, in the same folder so that a rename stays atomic."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        if path.exists():
            shutil.copymode(path, name)
        else:  # mkstemp makes files that only their owner can read
            os.chmod(name, 0o644)
    except BaseException:
        os.unlink(name)
        raise
    return Path(name)


def _git_diff(change: Change) -> str:
    before, after = (content.decode("utf-8").split("\n") for content in (change.before or b"", change.after))
    texts = [[line + "\n" for line in lines] for lines in (before, after)]
    for lines in texts:
        # split() leaves "" after a final newline; without one, git wants the last line marked.
        last = lines.pop()
        lines += [last + "\\ No newline at end of file\n"] if last != "\n" else []
    is_new = change.before is None
    hunks = difflib.unified_diff(*texts, "/dev/null" if is_new else f"a/{change.file}", f"b/{change.file}")
    mode = "new file mode 100644\n" if is_new else ""
    return f"diff --git a/{change.file} b/{change.file}\n{mode}" + "".join(hunks)
