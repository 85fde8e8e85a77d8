# SPDX-License-Identifier: MIT
"""What a run of this folder writes, dist/hardware.json, and how others read it.

A record says where it was measured. One made on the virtual device holds no GPU and no times, and nothing can make it
pass for hardware: `load_measured` returns only what a gfx1201 has measured.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from integration_tests.harness.gpu_finder import GFX1201
from integration_tests.paths import DIST

HARDWARE = DIST / "hardware.json"
# A rehearsal never writes over what a GPU has measured.
DRY_RUN = DIST / "hardware_dry_run.json"

VIRTUAL_GFX1201 = "virtual gfx1201"

_strict = dataclass(frozen=True, kw_only=True, config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False))
Delivery = Literal["hub", "aiter", "sage_hub"]

_Count = Annotated[int, Field(ge=0)]
_Positive = Annotated[float, Field(gt=0)]


class ResultsError(ValueError):
    """A file that is no record of a run; the text says what is wrong with it."""


@_strict
class Gpu:
    """The GPU that ran the tests, as torch and the kernel driver describe it."""

    name: str
    architecture: str  # gcnArchName, feature suffixes included
    memory_bytes: _Count
    compute_units: _Count
    driver: str | None = None  # of amdgpu, where the system tells it


@_strict
class Versions:
    """What ran. `rocm` is torch.version.hip, `hip_runtime` the number that the loaded libamdhip64 reports."""

    python: str
    torch: str
    rocm: str | None
    hip_runtime: int | None  # None where the system does not tell which library is loaded
    packages: dict[str, str]  # those of kernels, diffusers, amd-aiter and triton that are installed
    settings: dict[str, str]  # environment variables that change which attention or architecture is used


@_strict
class Test:
    """The outcome of one test, and the figures that it recorded (`record_property`)."""

    name: str
    outcome: Literal["passed", "failed", "error", "skipped"]
    reason: str | None = None  # of every outcome but "passed"
    figures: dict[str, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_a_reason(self) -> Test:
        if (self.outcome == "passed") != (self.reason is None):
            raise ValueError(f"{self.name}: a reason is given exactly when a test did not pass")
        return self


@_strict
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


@_strict
class Timing:
    """How long one call took on the GPU, by events on its stream, over `repeats` calls after warm-up."""

    shape: tuple[int, int, int, int]  # batch, sequence, heads, head_dim
    call: str  # "gfx1201_sage_attention (hub)", "scaled_dot_product_attention"
    # The backend of SDPA that a profile of the call showed, and whether PyTorch chose it; None for the op.
    sdpa_backend: str | None
    chosen_by_torch: bool
    kernels: tuple[str, ...]  # what ran on the GPU in one call, from the same profile
    repeats: Annotated[int, Field(ge=1)]
    median_us: _Positive
    low_us: _Positive  # quartiles
    high_us: _Positive
    # Of the op's output at this shape against that of the SDPA backend that torch chose; None for SDPA itself.
    relative_l2: float | None


@_strict
class NotTimed:
    """A call that could not be timed, and why: a backend that refuses it, or memory."""

    shape: tuple[int, int, int, int]
    call: str
    reason: str


@_strict
class Results:
    """One run of the suites and of the stop-watch."""

    measured_on: Literal["gfx1201", "virtual gfx1201"]
    date: str  # ISO 8601, UTC
    commit: str | None
    gpu: Gpu | None
    versions: Versions
    suites: tuple[Suite, ...]
    timings: tuple[Timing, ...] = ()
    not_timed: tuple[NotTimed, ...] = ()

    @model_validator(mode="after")
    def _is_what_it_says(self) -> Results:
        if self.measured_on == VIRTUAL_GFX1201:
            if self.gpu or self.timings or any(suite.seconds is not None for suite in self.suites):
                raise ValueError("a record of the virtual device has neither a GPU nor times")
        elif self.gpu is None or self.gpu.architecture.split(":")[0] != GFX1201:
            raise ValueError("a record of a gfx1201 names its GPU")
        elif self.versions.rocm is None:
            raise ValueError("a record of a gfx1201 names its ROCm")
        elif any(suite.seconds is None for suite in self.suites):
            raise ValueError("a record of a gfx1201 says how long each suite took")
        return self

    @property
    def is_measured(self) -> bool:
        """Whether a real gfx1201 gave these results."""
        return self.measured_on == GFX1201

    @property
    def passed(self) -> bool:
        """Whether there are suites and all of them passed."""
        return bool(self.suites) and all(suite.passed for suite in self.suites)


_RESULTS = TypeAdapter(Results)


def save(results: Results, path: Path) -> None:
    """Writes the record for `load`, replacing `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_RESULTS.dump_python(results, mode="json"), indent=1) + "\n", encoding="utf-8")


def load(path: Path) -> Results:
    """The record in `path`. ResultsError when it is none, FileNotFoundError when there is no file."""
    try:
        return _RESULTS.validate_json(path.read_bytes())
    except ValidationError as error:
        raise ResultsError(f"{path.name} is no record of a run: {error}") from error


def load_measured(path: Path = HARDWARE) -> Results | None:
    """The record of a run on a real gfx1201; None when there is no file. ResultsError for any other content."""
    if not path.exists():
        return None
    results = load(path)
    if not results.is_measured:
        raise ResultsError(f"{path.name} was measured on the {results.measured_on}, not on hardware")
    return results
