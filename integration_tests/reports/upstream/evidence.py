# SPDX-License-Identifier: MIT
"""Runs what the pull requests cite, and keeps what came out: test suites, parity with SDPA, first calls, sizes.

Nothing here is a figure of a GPU. Times are those of building and loading on the machine that runs this, which is
named beside them.
"""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from integration_tests.harness.pytest_run import Run, functions_that_passed, run_pytest
from integration_tests.paths import REPOSITORY


@dataclass(frozen=True)
class Suite:
    """A set of tests: its name, what it is evidence of, and pytest's arguments."""

    name: str
    subject: str
    arguments: tuple[str, ...]

    @property
    def command(self) -> str:
        """What a reader types, from the root of this repository."""
        words = (f'"{word}"' if " " in word else word for word in self.arguments)
        return " ".join(["python -m pytest", *words])


@dataclass(frozen=True)
class SuiteResult:
    """How a suite ended: the counts of its report, the last line that pytest printed, and the tests that passed."""

    suite: Suite
    passed: int
    skipped: int
    failed: int
    last_line: str
    proved: tuple[str, ...] = ()  # "test_file.py::test_function"


SUITES = (
    Suite(
        "device",
        "the virtual gfx1201: instructions against AMD's pseudo-code, HIP API, faults, Triton's kernels",
        ("integration_tests/oracle", "integration_tests/tests/device"),
    ),
    Suite(
        "hub",
        "kernel and Hub package, `aiter_sage_hub` in patched diffusers, MiniMax-H3, Ulysses",
        (
            *("integration_tests/tests/op", "integration_tests/tests/deliveries", "aiter_op/tests"),
            *("integration_tests/tests/with_diffusers", "integration_tests/tests/ulysses"),
        ),
    ),
    Suite(
        "aiter",
        "the same tests of the operator through aiter's JIT, `aiter_sage` in patched diffusers",
        ("-m", "aiter and not slow"),
    ),
    Suite(
        "sage_hub",
        "ROCm variant of sage-attention, unmodified diffusers with `sage_hub`",
        ("integration_tests/tests/sage_hub",),
    ),
    Suite(
        "recipes",
        "both recipes on diffusers 0.41.0, 0.42.0 and 0.42.1",
        ("diffusers_patch/tests",),
    ),
)


def run_suite(suite: Suite, arguments: Sequence[str] = (), **environment: str) -> SuiteResult:
    """Runs the suite in a process of its own, showing its output. RuntimeError when tests fail or none ran."""
    result = result_of(suite, run_pytest(["-q", *suite.arguments, *arguments], environment))
    if result.failed or not result.passed:
        raise RuntimeError(
            f"the suite {suite.name} did not pass: {result.last_line or 'no test ran'} ({suite.command})"
        )
    return result


def result_of(suite: Suite, run: Run) -> SuiteResult:
    """The counts of a run, and which tests passed in it."""
    return SuiteResult(
        suite,
        passed=run.count("passed"),
        skipped=run.count("skipped"),
        failed=run.count("failed") + run.count("error"),
        last_line=run.last_line,
        proved=tuple(sorted(functions_that_passed(run.tests))),
    )


@dataclass(frozen=True)
class Parity:
    """Of one delivery at one sequence length: its error and SDPA's, both against attention in float64."""

    delivery: str
    sequence: int
    heads: int
    cosine: float
    relative_l2: float
    max_error: float
    sdpa_relative_l2: float
    against_sdpa_relative_l2: float


@dataclass(frozen=True)
class FirstCall:
    """Seconds on the machine that ran this: until the package is imported, first call, second call."""

    delivery: str
    what: str
    import_seconds: float
    first_seconds: float
    second_seconds: float


def measure(delivery: str, **environment: str) -> tuple[list[Parity], FirstCall]:
    """Parity and first call of one delivery, each in a new process (modules of aiter are built anew)."""
    command = [sys.executable, "-m", "integration_tests.reports.upstream.measure", delivery]
    done = subprocess.run(command, cwd=REPOSITORY, env=os.environ | environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"measuring {delivery} failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    report = json.loads(done.stdout.splitlines()[-1])
    return [Parity(**row) for row in report["parity"]], FirstCall(**report["first_call"])


def minimax_h3(result: Path) -> dict:
    """What the demo measured, in a new process; `result` is the file that it writes."""
    command = [sys.executable, "-m", "integration_tests.reports.demo"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the demo failed:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return json.loads(result.read_text())


@dataclass(frozen=True)
class Machine:
    """Where the evidence was taken."""

    processor: str
    cores: int
    python: str
    torch: str
    diffusers: str
    kernels: str
    revision: str


def this_machine() -> Machine:
    """This machine, the packages under test, and this repository's commit ("+changes" when its files differ)."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True)
        return done.stdout.strip()

    revision = git("rev-parse", "--short=12", "HEAD") or "no git checkout"
    return Machine(
        processor=f"{platform.system()} {platform.machine()}",
        cores=len(os.sched_getaffinity(0)),
        python=platform.python_version(),
        torch=version("torch"),
        diffusers=version("diffusers"),
        kernels=version("kernels"),
        revision=revision + ("+changes" if git("status", "--porcelain") else ""),
    )


@dataclass(frozen=True)
class Sizes:
    """Bytes of what each delivery installs."""

    code_object: int
    hub_variant: int
    aiter_module: int
    sage_variant: int


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below `folder`."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@dataclass(frozen=True)
class Evidence:
    """Everything that one run measured."""

    machine: Machine
    suites: tuple[SuiteResult, ...]
    parity: tuple[Parity, ...]
    first_calls: tuple[FirstCall, ...]
    minimax_h3: dict
    sizes: Sizes

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
