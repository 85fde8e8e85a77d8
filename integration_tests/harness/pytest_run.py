# SPDX-License-Identifier: MIT
"""pytest in a process of its own, and what its report says of each test."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from integration_tests.paths import REPOSITORY


@dataclass(frozen=True)
class CaseReport:
    """One case: `module::function[parameters]`, how it ended, and the figures that it recorded."""

    name: str
    outcome: str  # "passed", "failed", "error" or "skipped"
    reason: str | None = None  # of every outcome but "passed"
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def function(self) -> str:
        """`test_file.py::test_function`, without folders and parameters."""
        module, _, case = self.name.partition("::")
        return f"{module.rpartition('.')[2]}.py::{case.partition('[')[0]}"


@dataclass(frozen=True)
class Run:
    """What a process of pytest reported: nothing if it wrote no report, as when it could not start or died."""

    tests: tuple[CaseReport, ...]
    last_line: str  # pytest's summary

    def count(self, outcome: str) -> int:
        return sum(test.outcome == outcome for test in self.tests)


def run_pytest(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Run:
    """Runs `python -m pytest ARGUMENTS` from the root of this repository and passes its output on."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        # Newer families of the report have no place for the figures that tests record.
        options = [f"--junitxml={report}", "-o", "junit_family=xunit1"]
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *arguments, *options],
            cwd=REPOSITORY,
            env={**os.environ, **(environment or {}), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        last_line = ""
        for line in process.stdout:
            print(line, end="", flush=True)
            # The process may print after pytest's summary, which is what a reader wants.
            if " passed" in line or " failed" in line:
                last_line = line.strip().strip("= ")
        process.wait()
        return Run(read_report(report), last_line)


def read_report(report: Path) -> tuple[CaseReport, ...]:
    """The tests in a JUnit report of pytest; none if there is no report."""
    if not report.is_file():
        return ()
    return tuple(_read_case(case) for case in ElementTree.parse(report).iter("testcase"))


def _read_case(case: ElementTree.Element) -> CaseReport:
    outcome, reason = "passed", None
    # The gravest counts: a test that passed may still have failed to clean up.
    for tag, name in (("skipped", "skipped"), ("failure", "failed"), ("error", "error")):
        for child in case.findall(tag):
            outcome, reason = name, (child.get("message") or "no message").splitlines()[0]
    properties = {entry.get("name"): entry.get("value") for entry in case.iter("property")}
    figures = {name: float(value) for name, value in properties.items()}
    return CaseReport(f"{case.get('classname')}::{case.get('name')}", outcome, reason, figures)


def functions_that_passed(tests: Sequence[CaseReport]) -> set[str]:
    """`test_file.py::test_function` of those of which a case passed, and none failed."""
    passed = {test.function for test in tests if test.outcome == "passed"}
    return passed - {test.function for test in tests if test.outcome in ("failed", "error")}
