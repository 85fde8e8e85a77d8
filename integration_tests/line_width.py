# SPDX-License-Identifier: MIT
"""Fails on lines of C++ that are wider than .clang-format's ColumnLimit: it breaks code there, but leaves comments.

python -m integration_tests.line_width FILE ...
"""

import re
import sys
from pathlib import Path

from integration_tests.paths import REPOSITORY

LIMIT = int(re.search(r"ColumnLimit: (\d+)", (REPOSITORY / ".clang-format").read_text("utf-8"))[1])


def too_wide(file: Path) -> list[str]:
    """`file:line: width` of each line that is too wide."""
    lines = enumerate(file.read_text("utf-8").splitlines(), 1)
    return [f"{file}:{number}: {len(line)} columns, at most {LIMIT}" for number, line in lines if len(line) > LIMIT]


if __name__ == "__main__":
    faults = [fault for name in sys.argv[1:] for fault in too_wide(Path(name))]
    print(*faults, sep="\n", end="\n" if faults else "")
    sys.exit(bool(faults))
