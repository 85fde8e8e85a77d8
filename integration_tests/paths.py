# SPDX-License-Identifier: MIT
"""Where things are in a checkout, and which version of a package it asks for: the one place of integration_tests that
knows."""

import re
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
DIST = REPOSITORY / "dist"  # everything generated; git ignores it
DOCS = REPOSITORY / "docs"


def requirement(package: str) -> str:
    """What pyproject.toml's dependency groups say about a package, such as "ziglang==1.2.3"."""
    groups = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["dependency-groups"]
    listed = {entry for group in groups.values() for entry in group if isinstance(entry, str)}
    (found,) = (entry for entry in listed if re.split(r"[=<>~!]", entry)[0] == package)
    return found
