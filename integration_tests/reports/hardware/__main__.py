# SPDX-License-Identifier: MIT
"""Tests and times the deliveries on this machine's gfx1201, and writes dist/hardware.json.

    python -m integration_tests.reports.hardware [--deliveries hub aiter sage_hub] [--no-times] [--dry-run]

Exits with 1 unless every suite passed. `--dry-run` runs the same tests on the virtual device: it rehearses this program
and measures nothing, so it writes no times, and to dist/hardware_dry_run.json.
"""

import argparse
import datetime
import sys
from collections.abc import Callable
from dataclasses import replace

import torch
from rich.console import Console
from rich.table import Table

from integration_tests.harness import aiter_delivery, device_under_test, hardware_record
from integration_tests.harness.device_under_test import DRY_RUN, HARDWARE
from integration_tests.harness.gpu_finder import NoGpuError
from integration_tests.harness.hardware_record import Delivery, Results
from integration_tests.harness.hub_delivery import load_hub_kernel
from integration_tests.harness.variant_delivery import load_variant
from integration_tests.reports.hardware import description, suites, timing


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deliveries", nargs="+", choices=suites.DELIVERIES, default=suites.DELIVERIES)
    parser.add_argument("--no-times", action="store_true", help="run the tests only")
    parser.add_argument("--dry-run", action="store_true", help="rehearse on the virtual device, without times")
    arguments = parser.parse_args()
    mode = DRY_RUN if arguments.dry_run else HARDWARE
    path = hardware_record.DRY_RUN if arguments.dry_run else hardware_record.HARDWARE
    try:
        if mode == HARDWARE:
            device_under_test.use_gpu()
    except NoGpuError as error:
        sys.exit(str(error))
    for delivery in arguments.deliveries:
        if missing := suites.missing_for(delivery, mode):
            others = " ".join(name for name in arguments.deliveries if name != delivery)
            sys.exit(f"{delivery} cannot be tested: {missing}. To leave it out: --deliveries {others}")

    record = Results(
        measured_on=hardware_record.GFX1201 if mode == HARDWARE else hardware_record.VIRTUAL_GFX1201,
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        commit=description.describe_commit(),
        gpu=description.describe_gpu(torch.cuda.current_device()) if mode == HARDWARE else None,
        versions=description.describe_versions(),
        suites=suites.run_suites(tuple(arguments.deliveries), mode),
    )
    record = hardware_record.completed(record, hardware_record.load_earlier(path))
    # Before the stop-watch: what the tests showed is kept whatever the long calls do to the GPU.
    hardware_record.save(record, path)
    console = Console(width=150)
    complaint = None
    if mode == HARDWARE and not arguments.no_times:
        record, complaint = _with_times(record, arguments.deliveries)
        hardware_record.save(record, path)
    print_record(record, console)
    console.print(f"Written to dist/{path.name}.")
    if complaint:
        console.print(f"Timing stopped: {complaint}.")
    return 0 if record.passed and not complaint else 1


def _with_times(record: Results, deliveries: list[Delivery]) -> tuple[Results, str | None]:
    """The record with what could be timed, and why timing stopped if it did."""
    complaint = None
    rows = []
    ops = {name: op for delivery in deliveries for name, op in OPS[delivery]().items()}
    try:
        for row in timing.time_all(ops, device_under_test.torch_device()):
            print(row, flush=True)
            rows.append(row)
    except timing.UntrustworthyError as error:
        complaint = str(error)
    timings = tuple(row for row in rows if isinstance(row, hardware_record.Timing))
    not_timed = tuple(row for row in rows if isinstance(row, hardware_record.NotTimed))
    return replace(record, timings=timings, not_timed=not_timed), complaint


OPS: dict[Delivery, Callable[[], dict[str, timing.Attention]]] = {
    "hub": lambda: {"gfx1201_sage_attention (hub)": load_hub_kernel().gfx1201_sage_attention},
    "aiter": lambda: {"gfx1201_sage_attention (aiter)": aiter_delivery.load_aiter().gfx1201_sage_attention},
    "sage_hub": lambda: {"sageattn (sage_hub)": _sageattn(load_variant().sageattn)},
}


def _sageattn(sageattn: Callable) -> timing.Attention:
    return lambda q, k, v: sageattn(q, k, v, tensor_layout="NHD")


def print_record(record: Results, console: Console) -> None:
    """The record, for people."""
    versions = record.versions
    console.print(f"\nOn the {record.measured_on}", style="bold")
    if record.gpu:
        console.print(
            f"{record.gpu.name}, {record.gpu.architecture}, {record.gpu.compute_units} compute units, "
            f"{record.gpu.memory_bytes / 2**30:.0f} GiB, driver: {record.gpu.driver or 'not known'}"
        )
    console.print(f"torch {versions.torch}, ROCm {versions.rocm or 'none'}, {versions.packages}")
    if versions.settings:
        console.print(f"with {versions.settings}")
    table = Table("delivery", "suite", "tests", "result")
    for suite in record.suites:
        table.add_row(suite.delivery, suite.name, suite.summary(), "passed" if suite.passed else "NOT PASSED")
    console.print(table)
    if record.timings or record.not_timed:
        table = Table("shape", "call", "SDPA backend that ran", "median (us)", "quartiles (us)", "calls", box=None)
        for row in record.timings:
            quartiles = f"{row.low_us:.1f} to {row.high_us:.1f}"
            backend = row.sdpa_backend or ""
            table.add_row(str(row.shape), row.call, backend, f"{row.median_us:.1f}", quartiles, str(row.repeats))
        for row in record.not_timed:
            table.add_row(str(row.shape), row.call, "", "not timed", row.reason, "")
        console.print(table)


if __name__ == "__main__":
    sys.exit(main())
