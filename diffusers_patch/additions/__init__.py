# SPDX-License-Identifier: MIT
"""The text that recipes insert, as files that linters read.

A Python file here starts with what makes it lintable on its own (licence line, docstring, imports); what goes
upstream is the rest, from the first definition on. A Markdown file goes upstream without its licence line.
"""

import ast
from pathlib import Path


_FOLDER = Path(__file__).parent


def definitions(name: str) -> str:
    """The definitions of `additions/<name>.py` as source text, ending in one newline."""
    source = (_FOLDER / f"{name}.py").read_text("utf-8")
    definition = next(node for node in ast.parse(source).body if hasattr(node, "decorator_list"))
    first_line = min([definition.lineno, *(decorator.lineno for decorator in definition.decorator_list)])
    return "".join(source.splitlines(keepends=True)[first_line - 1 :])


def prose(name: str) -> str:
    """The text of `additions/<name>.md`, ending in one newline."""
    _licence, text = (_FOLDER / f"{name}.md").read_text("utf-8").split("\n\n", 1)
    return text
