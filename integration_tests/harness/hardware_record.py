# SPDX-License-Identifier: MIT
"""What a run on hardware writes, dist/hardware.json, and how others read it.

A record says where it was measured. One made on the virtual device holds no GPU and no times, and nothing can make it
pass for hardware: `load_measured` returns only what a gfx1201 has measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from integration_tests.harness import checked_json
from integration_tests.harness.checked_json import AtLeast, MoreThan
from integration_tests.harness.gpu_finder import GFX1201
from integration_tests.paths import DIST

HARDWARE = DIST / "hardware.json"
# A rehearsal never writes over what a GPU has measured.
DRY_RUN = DIST / "hardware_dry_run.json"

VIRTUAL_GFX1201 = "virtual gfx1201"

Delivery = Literal["hub", "aiter", "sage_hub"]

Shape = tuple[int, int, int, int]  # batch, sequence, heads, head_dim

_Count = Annotated[int, AtLeast(0)]
_Positive = Annotated[float, MoreThan(0)]


class ResultsError(ValueError):
    """A file that is no record of a run; the text says what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """The GPU that ran the tests, as torch and the kernel driver describe it."""

    name: str
    architecture: str  # gcnArchName, feature suffixes included
    memory_bytes: _Count
    compute_units: _Count
    driver: str | None = None  # of amdgpu, where the system tells it


@dataclass(frozen=True, kw_only=True)
class Versions:
    """What ran. `rocm` is torch.version.hip, `hip_runtime` the number that the loaded libamdhip64 reports."""

    python: str
    torch: str
    rocm: str | None
    hip_runtime: int | None  # None where the system does not tell which library is loaded
    packages: dict[str, str]  # those of kernels, diffusers, amd-aiter and triton that are installed
    settings: dict[str, str]  # environment variables that change which attention or architecture is used


@dataclass(frozen=True, kw_only=True)
class Test:
    """The outcome of one test, and the figures that it recorded (`record_property`)."""

    name: str
    outcome: Literal["passed", "failed", "error", "skipped"]
    reason: str | None = None  # of every outcome but "passed"
    figures: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.outcome == "passed") != (self.reason is None):
            raise ValueError(f"{self.name}: a reason is given exactly when a test did not pass")


@dataclass(frozen=True, kw_only=True)
class Suite:
    """One pytest run, of one way to the kernel."""

    name: str
    delivery: Delivery
    command: str
    tests: tuple[Test, ...]
    seconds: _Positive | None  # None on the virtual device

    def count(self, outcome: str) -> int:
        """How many tests ended so."""
        return sum(test.outcome == outcome for test in self.tests)

    @property
    def passed(self) -> bool:
        """At least one test passed, and none failed: a suite that skips everything proves nothing."""
        return self.count("passed") > 0 and self.count("failed") == self.count("error") == 0

    def summary(self) -> str:
        """The counts in words, such as "61 passed, 3 skipped"."""
        outcomes = ("passed", "failed", "error", "skipped")
        return ", ".join(f"{self.count(outcome)} {outcome}" for outcome in outcomes if self.count(outcome))


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long one call took on the GPU, by events on its stream, over `repeats` calls after warm-up."""

    shape: Shape
    call: str  # "gfx1201_sage_attention (hub)", "scaled_dot_product_attention"
    # The backend of SDPA that a profile of the call showed, and whether PyTorch chose it; None for the op.
    sdpa_backend: str | None
    chosen_by_torch: bool
    kernels: tuple[str, ...]  # what ran on the GPU in one call, from the same profile
    repeats: Annotated[int, AtLeast(1)]
    median_us: _Positive
    low_us: _Positive  # quartiles
    high_us: _Positive
    # Of the op's output at this shape against that of the SDPA backend that torch chose; None for SDPA itself.
    relative_l2: float | None


@dataclass(frozen=True, kw_only=True)
class NotTimed:
    """A call that could not be timed, and why: a backend that refuses it, or memory."""

    shape: Shape
    call: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Check:
    """The op's output for one input, against attention in float64 and against SDPA.

    A figure is None when an output is not finite.
    """

    inputs: str
    shape: Shape
    call: str
    relative_l2: float | None
    bound: _Positive  # of the contract
    relative_l2_to_sdpa: float | None
    bound_to_sdpa: _Positive

    @property
    def passed(self) -> bool:
        """Whether the output is as near to both as the contract says."""
        figures = ((self.relative_l2, self.bound), (self.relative_l2_to_sdpa, self.bound_to_sdpa))
        return all(figure is not None and figure <= bound for figure, bound in figures)


@dataclass(frozen=True, kw_only=True)
class Micro:
    """One step of a micro-benchmark of speed/micro_benchmarks.hip. Both figures are None on the virtual device."""

    name: str
    waves: Annotated[int, AtLeast(1)]  # on the SIMD
    cycles: float | None  # until each of these waves has made one
    ratio: float | None  # to a step of plain VALU with as many waves


@dataclass(frozen=True, kw_only=True)
class KernelTime:
    """How long one kernel ran on the GPU in one call, from the profile of that call; all its launches together."""

    shape: Shape
    call: str
    kernel: str
    launches: Annotated[int, AtLeast(1)]
    microseconds: _Positive


@dataclass(frozen=True, kw_only=True)
class Results:
    """One run: the suites and the stop-watch, or the quick run's checks, stop-watch and micro-benchmarks."""

    measured_on: Literal["gfx1201", "virtual gfx1201"]
    date: str  # ISO 8601, UTC
    commit: str | None
    gpu: Gpu | None
    versions: Versions
    suites: tuple[Suite, ...]
    timings: tuple[Timing, ...] = ()
    not_timed: tuple[NotTimed, ...] = ()
    checks: tuple[Check, ...] = ()
    micro: tuple[Micro, ...] = ()
    kernels: tuple[KernelTime, ...] = ()
    # Medians while the quick run's longest shape was timed, as the kernel driver tells; None where it does not.
    clock_hertz: _Positive | None = None
    power_watts: _Positive | None = None
    stopped: str | None = None  # why the quick run ended before its end

    def __post_init__(self) -> None:
        if self.measured_on == VIRTUAL_GFX1201:
            seconds = [suite.seconds for suite in self.suites]
            figures = [figure for step in self.micro for figure in (step.cycles, step.ratio)]
            times = [*seconds, *figures, self.clock_hertz, self.power_watts]
            if self.gpu or self.timings or self.kernels or any(time is not None for time in times):
                raise ValueError("a record of the virtual device has neither a GPU nor times")
        elif self.gpu is None or self.gpu.architecture.split(":")[0] != GFX1201:
            raise ValueError("a record of a gfx1201 names its GPU")
        elif self.versions.rocm is None:
            raise ValueError("a record of a gfx1201 names its ROCm")
        elif any(suite.seconds is None for suite in self.suites):
            raise ValueError("a record of a gfx1201 says how long each suite took")
        elif any(step.cycles is None or step.ratio is None for step in self.micro):
            raise ValueError("a record of a gfx1201 says what each micro-benchmark gave")

    @property
    def is_measured(self) -> bool:
        """Whether a real gfx1201 gave these results."""
        return self.measured_on == GFX1201

    @property
    def passed(self) -> bool:
        """Whether there are suites or checks, all of them passed, and the run came to its end."""
        parts = (*self.suites, *self.checks)
        return bool(parts) and all(part.passed for part in parts) and self.stopped is None


def save(results: Results, path: Path) -> None:
    """Writes the record for `load`, replacing `path`."""
    text = checked_json.dumps(results)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def load(path: Path) -> Results:
    """The record in `path`. ResultsError when it is none, FileNotFoundError when there is no file."""
    try:
        return checked_json.loads(Results, path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ResultsError(f"{path.name} is no record of a run: {error}") from error


def load_measured(path: Path = HARDWARE) -> Results | None:
    """The record of a run on a real gfx1201; None when there is no file. ResultsError for any other content."""
    if not path.exists():
        return None
    results = load(path)
    if not results.is_measured:
        raise ResultsError(f"{path.name} was measured on the {results.measured_on}, not on hardware")
    return results


def load_tested(path: Path = HARDWARE) -> Results | None:
    """As `load_measured`, for whoever cites tests: ResultsError when the record has none, as a quick run's."""
    record = load_measured(path)
    if record and not record.suites:
        raise ResultsError(
            f"{path.name} is of a quick run, which has no tests to cite: run `nox -s gpu`, or move the file away"
        )
    return record


def load_earlier(path: Path) -> Results | None:
    """The record in `path`, measured or not; None when there is none that can be read."""
    try:
        return load(path)
    except (FileNotFoundError, ResultsError):
        return None


def completed(record: Results, earlier: Results | None) -> Results:
    """The record, with what it lacks and an earlier one has, if that is of the same commit, GPU and software.

    So neither a quick run nor a run of the suites loses what the other has given.
    """
    same = ("measured_on", "commit", "gpu", "versions")
    if earlier is None or record.commit is None or any(getattr(record, n) != getattr(earlier, n) for n in same):
        return record
    parts = ["suites", "checks", "micro", "kernels", "clock_hertz", "power_watts"]
    if not (record.timings or record.not_timed):
        parts += ["timings", "not_timed"]
    return replace(record, **{name: getattr(record, name) or getattr(earlier, name) for name in parts})
