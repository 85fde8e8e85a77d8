# SPDX-License-Identifier: MIT
"""The part of a documentation page that a command writes: what is between its two marks."""

import shutil
from collections.abc import Iterable
from pathlib import Path

END = "<!-- end -->"


def begin(command: str) -> str:
    """The mark that names the command."""
    return f"<!-- written by: {command} -->"


def with_text(page: str, command: str, text: str) -> str:
    """`page` with the part of `command` replaced. ValueError unless the page has that part once."""
    before, rest = page.split(begin(command))
    _, after = rest.split(END, 1)
    return f"{before}{begin(command)}\n\n{text.strip()}\n\n{END}{after}"


def renew(page: Path, command: str, text: str, pictures: Iterable[Path]) -> None:
    """Writes the part of `command` in `page`, and copies the pictures that the page shows beside it."""
    page.write_text(with_text(page.read_text("utf-8"), command, text), "utf-8")
    for picture in pictures:
        shutil.copy(picture, page.parent)
