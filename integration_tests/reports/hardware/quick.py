# SPDX-License-Identifier: MIT
"""Five minutes on a gfx1201: checks and times the op, measures single instructions, and writes dist/hardware.json.

    python -m integration_tests.reports.hardware.quick [--dry-run]

Needs a ROCm build of torch, and `ziglang` unless the code objects are there. Exits with 1 unless every check passed
and every call was what it says. `--dry-run` does the same on the virtual device, in miniature and without a clock, and
writes dist/hardware_dry_run.json.
"""

import argparse
import contextlib
import datetime
import math
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import torch

from hub_kernel.build_code_object import BuildGateError
from integration_tests.harness import device_under_test, hardware_record, inputs, plain_delivery
from integration_tests.harness.hardware_record import Check, KernelTime, Micro, NotTimed, Results, Timing
from integration_tests.harness.plain_delivery import KERNELS
from integration_tests.harness.progress import Progress
from integration_tests.paths import DIST
from integration_tests.reference import contract
from integration_tests.reference.agreement import compare
from integration_tests.reference.attention import attention_float64
from integration_tests.reports.hardware import description, sensors, timing
from integration_tests.speed import micro_benchmarks

Row, Key = TypeVar("Row"), TypeVar("Key")

MICRO = DIST / "micro_benchmarks"

# Tails and heads on N(0, 1), then the contract's inputs at lengths that it is about.
CHECKED: tuple[tuple[str, tuple[int, int, int]], ...] = (
    *(("normal", shape) for shape in ((1, 1, 1), (1, 33, 56), (3, 65, 5), (2, 226, 3), (1, 257, 2))),
    *((name, (1, 4096, 1) if name == "sink_8_nats" else (1, 1024, 2)) for name in inputs.OF_THE_CONTRACT),
    ("normal", (1, 2048, 1)),
)

# [batch, sequence, heads], from a call that is hardly longer than its launches up; the longest is last.
TIMED = {
    "short": (1, 1024, 24),
    "FLUX.1 1024 x 1024": (1, 4608, 24),
    "Qwen-Image 1328 x 1328": (1, 6949, 24),
    "Wan 2.1 14B 480p, 81 frames": (1, 32760, 40),
    "MiniMax-H3 768p, 243 frames": (1, 73923, 56),
}
# Longer sequences are compared by that many queries, evenly spaced: score matrices of all would not fit.
ALL_COMPARED, COMPARED_QUERIES = 4096, 64

WIDTH = 110  # of the screen

# What stands in for each shape on the virtual device.
REHEARSED = (1, 40, 2)


class Run:
    """The record as far as it has got."""

    def __init__(self, record: Results, path: Path):
        self.record, self._path = record, path
        self._earlier = hardware_record.load_earlier(path)

    def add(self, **parts: tuple | float | str | None) -> None:
        """Adds to the record and keeps it: what was measured stays whatever the next call does to the GPU."""
        for name, part in parts.items():
            value = getattr(self.record, name) + part if isinstance(part, tuple) else part
            self.record = replace(self.record, **{name: value})
        hardware_record.save(hardware_record.completed(self.record, self._earlier), self._path)

    def add_checks(self, checks: Iterable[Check]) -> None:
        """Adds them. UntrustworthyError when one of all has failed: then nothing is timed any more."""
        self.add(checks=tuple(checks))
        if not self.record.passed:
            raise timing.UntrustworthyError("an output is further from attention than the contract allows")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dry-run", action="store_true", help="rehearse on the virtual device, without times")
    is_dry = parser.parse_args().dry_run
    path = hardware_record.DRY_RUN if is_dry else hardware_record.HARDWARE
    progress = Progress(4)
    with contextlib.ExitStack() as stack:
        try:
            if not is_dry:
                device_under_test.use_gpu()
            with progress.step("take or build the code objects"):
                take_or_build()
            stack.enter_context(device_under_test.rocm_torch())
            calls = {f"{kernel.name} (hub)": plain_delivery.load(kernel).gfx1201_sage_attention for kernel in KERNELS}
        except (RuntimeError, BuildGateError) as error:
            sys.exit(str(error))
        run = Run(new_record(is_dry), path)
        run.add()
        try:
            with progress.step(f"check {len(CHECKED)} inputs against float64 and SDPA"):
                run.add_checks(check_all(calls))
            with progress.step("measure single instructions"):
                run.add(micro=tuple(measure_instructions(is_dry)))
            with progress.step(f"time the op and SDPA at {len(TIMED)} shapes"):
                time_all(run, calls, is_dry)
        except RuntimeError as error:
            run.add(stopped=str(error))
    print_record(run.record)
    what_for = "a rehearsal, which measured nothing" if is_dry else "please attach it to an issue of this repository"
    print(f"Written to dist/{path.name}: {what_for}.")
    if run.record.stopped:
        print(f"Stopped early: {run.record.stopped}")
    return 1 if run.record.stopped else 0


def take_or_build() -> None:
    """The code objects of the op's kernels and of the micro-benchmarks."""
    wanted = [(kernel.code_object, kernel.is_current, kernel.build) for kernel in KERNELS]
    for folder, is_current, build in [*wanted, (MICRO, micro_benchmarks.is_current, micro_benchmarks.build)]:
        how = plain_delivery.take_or_build(folder, is_current, build)
        print(f"      dist/{folder.name}: {how}", flush=True)


def new_record(is_dry: bool) -> Results:
    return Results(
        measured_on=hardware_record.VIRTUAL_GFX1201 if is_dry else hardware_record.GFX1201,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        commit=description.describe_commit(),
        gpu=None if is_dry else description.describe_gpu(torch.cuda.current_device()),
        versions=description.describe_versions(),
        suites=(),
    )


def check_all(calls: Mapping[str, timing.Attention]) -> Iterator[Check]:
    """Every input of CHECKED through every call."""
    for name, shape in CHECKED:
        yield from check(calls, name, *inputs.OF_THE_CONTRACT[name](*shape))


def check(
    calls: Mapping[str, timing.Attention], name: str, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> Iterator[Check]:
    """Every call on inputs that the contract names, by all queries or, of long sequences, by some."""
    sequence = q.shape[1]
    some = slice(None, None, 1 if sequence <= ALL_COMPARED else -(-sequence // COMPARED_QUERIES))
    exact = attention_float64(q[:, some], k, v, inputs.SOFTMAX_SCALE)
    sdpa = timing.sdpa(q[:, some], k, v)
    bound = contract.bound(name, sequence)
    for call, op in calls.items():
        output = op(q, k, v)[:, some]
        found = Check(
            inputs=name,
            shape=tuple(q.shape),
            call=call,
            relative_l2=finite(compare(output, exact).relative_l2),
            bound=bound,
            relative_l2_to_sdpa=finite(compare(output, sdpa).relative_l2),
            bound_to_sdpa=bound + contract.SDPA_ROUNDING,
        )
        print(f"      {'passed' if found.passed else 'FAILED'}: {shown(found)}", flush=True)
        yield found


def finite(figure: float) -> float | None:
    return figure if math.isfinite(figure) else None


def shown(found: Check) -> str:
    """A check in words."""
    error = "not finite" if found.relative_l2 is None else f"{found.relative_l2:.4f}"
    return f"{found.call}, {found.inputs} {list(found.shape)}: relative L2 {error}, at most {found.bound:.3f}"


def measure_instructions(is_dry: bool) -> Iterator[Micro]:
    """Every micro-benchmark; on the virtual device once, and without what its counter says."""
    launcher = plain_delivery.load(KERNELS[0]).hip_module
    effort = {"rounds": 1, "launches": 1} if is_dry else {}
    for step in micro_benchmarks.measure(MICRO, launcher, device_under_test.torch_device(), **effort):
        figures = (None, None) if is_dry else (step.cycles, step.ratio)
        yield Micro(name=step.name, waves=step.waves, cycles=figures[0], ratio=figures[1])


def time_all(run: Run, calls: Mapping[str, timing.Attention], is_dry: bool) -> None:
    """Checks and times the shapes, shortest first; the longest under the eyes of the GPU's sensors."""
    longest = list(TIMED)[-1]
    card = None if is_dry else sensors.find_card(sensors.pci_address(torch.cuda.current_device()))
    stop_watch = no_clock if is_dry else timing.time_call
    for name, shape in TIMED.items():
        print(f"      {name} {[*shape, inputs.HEAD_DIM]}", flush=True)
        full_shape = (*(REHEARSED if is_dry else shape), inputs.HEAD_DIM)
        bench = timing.bench_of(full_shape, device_under_test.torch_device(), stop_watch)
        if isinstance(bench, NotTimed):
            run.add(not_timed=(bench,))
            continue
        run.add_checks(check(calls, "normal", bench.q, bench.k, bench.v))
        with sensors.Sensors(card if name == longest else None) as sensed:
            rows, kernels = time_shape(bench, calls)
        run.add(
            timings=tuple(row for row in rows if isinstance(row, Timing)),
            not_timed=tuple(row for row in rows if isinstance(row, NotTimed)),
            kernels=tuple(kernels),
        )
        if name == longest and not is_dry:
            run.add(clock_hertz=sensed.clock_hertz, power_watts=sensed.power_watts)


def time_shape(
    bench: timing.Bench, calls: Mapping[str, timing.Attention]
) -> tuple[list[Timing | NotTimed], list[KernelTime]]:
    """SDPA as torch chooses it and every call on one bench, and the GPU's time by kernel."""
    rows = []
    for row in timing.time_bench(bench, calls, backends=()):
        print(
            f"      {shown_time(row) if isinstance(row, Timing) else f'{row.call}: not timed, {row.reason}'}",
            flush=True,
        )
        rows.append(row)
    kernels = []
    for call, seen in bench.profiles.items():
        # A launch to which the profiler gives no time has none.
        timed = [(kernel, microseconds) for kernel, microseconds in seen.kernels if microseconds > 0]
        for kernel, launches in grouped(timed, key=lambda launch: launch[0]).items():
            kernels.append(
                KernelTime(
                    shape=tuple(bench.q.shape),
                    call=call,
                    kernel=kernel,
                    launches=len(launches),
                    microseconds=sum(microseconds for _, microseconds in launches),
                )
            )
    return rows, kernels


def no_clock(call: Callable[[], object]) -> list[float]:
    """The stop-watch of the virtual device."""
    raise RuntimeError("the virtual device has no clock")


def print_record(record: Results) -> None:
    """One screen: what ran on what, the worst check, times by shape, ratios by instruction."""
    gpu = record.gpu
    what = f"{gpu.name}, {gpu.architecture}, {gpu.compute_units} compute units" if gpu else record.measured_on
    settings = "".join(f", {name}={value}" for name, value in record.versions.settings.items())
    print(f"\n{what}; torch {record.versions.torch}, ROCm {record.versions.rocm or 'none'}{settings}")
    passed = sum(check.passed for check in record.checks)
    print(f"{passed} of {len(record.checks)} checks passed")
    if record.checks:
        print(f"nearest to its bound: {shown(max(record.checks, key=share_of_bound))}")
    for row in record.timings:
        print(f"  {shown_time(row)}")
    if (
        any(row.sdpa_backend == "MATH" for row in record.timings)
        and description.FUSED_SDPA not in record.versions.settings
    ):
        print(f"  SDPA ran unfused: please run once more with {description.FUSED_SDPA}=1, and keep both files")
    for reason, rows in grouped(record.not_timed, key=lambda row: row.reason).items():
        print(f"  not timed ({reason}): {', '.join(dict.fromkeys(row.call for row in rows))}")
    for shape, times in list(grouped(record.kernels, key=lambda time: time.shape).items())[-1:]:
        shares = [f"{time.kernel[:40]} {time.microseconds / 1000:.3f} ms" for time in times]
        print(textwrap.fill(f"GPU time by kernel at {list(shape)}: {', '.join(shares)}", WIDTH, subsequent_indent="  "))
    clock = f"{record.clock_hertz / 1e6:.0f} MHz" if record.clock_hertz else "not told"
    power = f"{record.power_watts:.0f} W" if record.power_watts else "not told"
    print(f"during the longest shape: clock {clock}, power {power}")
    if record.micro and record.is_measured:
        print(f"steps in units of plain VALU, {' and '.join(map(str, micro_benchmarks.WAVES_PER_SIMD))} waves a SIMD:")
        print(textwrap.fill("; ".join(ratios(record.micro)), WIDTH, initial_indent="  ", subsequent_indent="  "))
    elif record.micro:
        print(f"{len(grouped(record.micro, key=lambda step: step.name))} micro-benchmarks ran")


def shown_time(row: Timing) -> str:
    """A time in words, and the speed that it is."""
    flop = 4 * math.prod(row.shape) * row.shape[1]
    call = f"{row.call} ({row.sdpa_backend})" if row.sdpa_backend else row.call
    times = f"{row.median_us / 1000:9.3f} ms {flop / row.median_us / 1e6:6.1f} TFLOP/s"
    return f"{str(list(row.shape)):21} {call:48} {times}"


def grouped(rows: Sequence[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    """The rows by `key`, in order of first occurrence."""
    groups: dict[Key, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def share_of_bound(found: Check) -> float:
    return math.inf if found.relative_l2 is None else found.relative_l2 / found.bound


def ratios(steps: Sequence[Micro]) -> list[str]:
    """Each micro-benchmark with its ratios."""
    by_name = grouped(steps, key=lambda step: step.name)
    return [f"{name} {' '.join(f'{step.ratio:.2f}' for step in steps)}" for name, steps in by_name.items()]


if __name__ == "__main__":
    sys.exit(main())
