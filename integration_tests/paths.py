# SPDX-License-Identifier: MIT
"""Where things are in a checkout: the one place of integration_tests that knows."""

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
DIST = REPOSITORY / "dist"  # everything generated; git ignores it
DOCS = REPOSITORY / "docs"
