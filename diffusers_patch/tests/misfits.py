# SPDX-License-Identifier: MIT
"""What upstream or a user may do to the line beside which an edit goes, so that the edit no longer fits."""

from collections.abc import Callable
from pathlib import Path

Misfit = Callable[[list[bytes], bytes], list[bytes]]


def _without(lines: list[bytes], anchor: bytes) -> list[bytes]:
    return [line for line in lines if line != anchor]


MISFITS: dict[str, Misfit] = {
    "missing": _without,
    "moved out of its scope": lambda lines, anchor: [*_without(lines, anchor), anchor],
    "duplicated": lambda lines, anchor: [copy for line in lines for copy in [line] * (1 + (line == anchor))],
    "edited": lambda lines, anchor: [line + b"  # local" if line == anchor else line for line in lines],
}


def spoil(path: Path, anchor: str, misfit: str) -> bytes:
    """Does `misfit` to every line `anchor` of a file. Returns the file's content before."""
    before = path.read_bytes()
    lines = before.removesuffix(b"\n").split(b"\n")
    assert anchor.encode() in lines
    path.write_bytes(b"\n".join(MISFITS[misfit](lines, anchor.encode())) + b"\n")
    return before
