# SPDX-License-Identifier: MIT
"""Renders the pull request texts and the report from their templates."""

import base64
import re
from pathlib import Path

import jinja2
from markdown_it import MarkdownIt

from integration_tests.paths import REPOSITORY

TEMPLATES = Path(__file__).parent / "templates"
SHARED = (TEMPLATES / "shared.md.j2").relative_to(REPOSITORY).as_posix()

# A figure that is missing is an error, never an empty place in a pull request.
_environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(REPOSITORY),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # Markdown
)


def render(template: str, **context: object) -> str:
    """The text of a template, named from the root of this repository. Raises UndefinedError for missing figures.

    The template has the macros of templates/shared.md.j2 as `shared`.
    """
    shared = _environment.get_template(SHARED).make_module(context)
    text = _environment.get_template(template).render(**context, shared=shared)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def page(markdown: str, pictures: Path) -> str:
    """One self-contained HTML page of a Markdown text, with the pictures that it names inside."""
    body = MarkdownIt("commonmark").enable("table").render(markdown)

    def embedded(match: re.Match) -> str:
        content = base64.b64encode((pictures / match.group(1)).read_bytes()).decode()
        return f'src="data:image/png;base64,{content}"'

    body = re.sub(r'src="([\w.]+\.png)"', embedded, body)
    title = re.search(r"<h1>(.*?)</h1>", body).group(1)
    style = (TEMPLATES / "report.css").read_text("utf-8")
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>\n{style}</style>\n{body}</html>\n"
    )
