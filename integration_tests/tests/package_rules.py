# SPDX-License-Identifier: MIT
"""What kernel-builder asks of the modules of a Hub package."""

import ast
import sys
from pathlib import Path


def assert_python_3_9_and_self_contained(modules: list[Path]) -> None:
    """Every module parses as Python 3.9 and imports nothing but torch, the standard library and its own package."""
    for path in modules:
        for node in ast.walk(ast.parse(path.read_text(), feature_version=(3, 9))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            for name in names:
                assert name.split(".")[0] in sys.stdlib_module_names | {"torch"}, f"{path.name} imports {name}"
