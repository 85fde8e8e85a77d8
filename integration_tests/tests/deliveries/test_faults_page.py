# SPDX-License-Identifier: MIT
"""docs/faults.md names tests that exist, in every row."""

import re

import pytest

from integration_tests.paths import DOCS, REPOSITORY

PAGE = (DOCS / "faults.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| fault |")]
FOLDERS = ("aiter_op", "integration_tests", "diffusers_patch")
TEST_NAME = r"`(test_\w+\.py)::(test_\w+)`"


@pytest.fixture(scope="module")
def defined_tests() -> set[tuple[str, str]]:
    """(file name, function name) of every test."""
    files = [path for folder in FOLDERS for path in (REPOSITORY / folder).rglob("test_*.py")]
    names = [path.name for path in files]
    assert len(names) == len(set(names)), "a file's name no longer tells which it is"
    return {
        (path.name, name) for path in files for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE)
    }


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_every_fault_is_covered_by_tests_that_exist(row, defined_tests):
    tests = row.rstrip(" |").rpartition("| ")[2].split("<br>")
    found = [re.fullmatch(TEST_NAME, test) for test in tests]
    assert all(found), row
    assert {match.groups() for match in found} <= defined_tests
