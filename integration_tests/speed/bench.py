# SPDX-License-Identifier: MIT
"""Models our op and its peers, side by side, from executed runs on the virtual device.

    python -m integration_tests.speed.bench [--aiter CHECKOUT] [--docs]

Prints tables and writes dist/bench.json, dist/bench.md and dist/bench.png. With a checkout of ROCm/aiter it also
compiles and runs aiter's FlyDSL attention. Nothing here was measured on a GPU: every time is modelled, and published
speeds are other people's, with their source.
"""

import argparse
import json
import shutil
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

import jinja2
from rich.console import Console
from rich.table import Table

from integration_tests.harness import inputs
from integration_tests.paths import DIST, DOCS
from integration_tests.reference.agreement import compare
from integration_tests.reference.attention import attention_float64
from integration_tests.speed import calibration, counts, host, instruction_classes, plot
from integration_tests.speed import card as machine
from integration_tests.speed.model import Profile, flop, run, seconds
from integration_tests.speed.peers.pull_request_6390 import PULL_REQUEST_6390
from integration_tests.speed.workloads import Workload, workloads
from integration_tests.virtual_gpu import VirtualGpu

TEMPLATE = Path(__file__).with_name("measurements.md.jinja")
EXECUTED = (512, 1024)  # sequence lengths that every other shape follows from
CHECKED = 2048  # executed as well, to see how far off that is
SHAPES = [(1, 1024, 24), (1, 2048, 24), (1, 4096, 24), (1, 8192, 24), (1, 16384, 24), (1, 32768, 24), (1, 73923, 56)]
PLOTTED_HEADS = 24
ACCURACY_LENGTHS = (256, 512, 1024, 2048, 4096)


@dataclass(frozen=True)
class Modelled:
    """One workload at one shape on one card. All times and speeds are modelled."""

    kernel: str
    shape: tuple[int, int, int, int]
    card: str
    reading: str  # of the traces: a key of card.READINGS
    slots_per_wmma: float
    pipe_estimate: float  # of `utilisation` if nothing waited
    utilisation: float  # of the main kernel's matrix peak, at the clock it runs at
    main_seconds: float
    prologue_seconds: float
    seconds: float
    tflops: float
    tflops_at_boost_clock: float
    peak_tflops: float  # of the matrix instructions that it uses, at boost clock
    prologue_share: float
    vgpr: int
    spills: int
    lds: int
    resident_workgroups: int
    bytes: dict[str, float]


def profile(gpu: VirtualGpu, workload: Workload) -> Profile:
    """Executes a workload at both lengths."""
    steady = counts.with_early_maximum if workload.skips_rescaling else inputs.normal
    small, large = ((size, run(gpu, workload, steady(1, size, 1))) for size in EXECUTED)
    normal = run(gpu, workload, inputs.normal(1, EXECUTED[1], 1)) if workload.skips_rescaling else None
    return Profile(workload, small, large, normal)


def modelled(profile: Profile, shape: tuple[int, int, int], card: machine.Card, reading: str) -> Modelled:
    """What the model says about a whole call under one reading of the traces."""
    batch, sequence, heads = shape
    main = profile.large[1].main
    per_tile = profile.counts_per_tile()
    moved = profile.bytes_moved(*shape)
    gap = machine.LAUNCH_GAP_SECONDS.value
    main_cycles = profile.main_cycles(*shape, card, reading)
    main_seconds = max(seconds(main_cycles, card, reading), moved["main_dram"] / card.memory_bytes_per_second)
    instructions = seconds(profile.prologue_cycles(*shape, card, reading), card, reading)
    prologue_seconds = max(instructions, moved["prologue_dram"] / card.memory_bytes_per_second)
    total = main_seconds + prologue_seconds + gap * len(profile.large[1].launches)
    matrix_cycles = instruction_classes.matrix_cycles(per_tile) * profile.tiles(sequence) * main.waves_per_workgroup
    workgroups = batch * heads * -(-sequence // profile.workload.queries_per_workgroup)
    utilisation = matrix_cycles * workgroups / (main_cycles * card.wgps * machine.SIMDS_PER_WGP)
    matrix_instructions = instruction_classes.matrix_instructions(per_tile)
    at_boost = total - main_seconds + main_seconds * card.sustained[reading].value
    return Modelled(
        kernel=profile.workload.name,
        shape=(*shape, 128),
        card=card.name,
        slots_per_wmma=instruction_classes.slots_per_matrix(per_tile),
        reading=reading,
        pipe_estimate=instruction_classes.pipe_estimate(per_tile, reading),
        utilisation=utilisation,
        main_seconds=main_seconds,
        prologue_seconds=prologue_seconds,
        seconds=total,
        tflops=flop(*shape) / total / 1e12,
        tflops_at_boost_clock=flop(*shape) / at_boost / 1e12,
        peak_tflops=card.peak_flops(instruction_classes.matrix_cycles(per_tile) / matrix_instructions) / 1e12,
        prologue_share=prologue_seconds / total,
        vgpr=main.vgprs,
        spills=main.spills,
        lds=main.lds_bytes,
        resident_workgroups=main.resident_workgroups(),
        bytes=moved,
    )


def extrapolation_error(gpu: VirtualGpu, profile: Profile) -> float:
    """Modelled cycles at CHECKED from the executed lengths, relative to those of a run at that length, less one."""
    direct = run(gpu, profile.workload, inputs.normal(1, CHECKED, 1, seed=2)).times[machine.CAUTIOUS]
    groups = 2 * direct.resident
    return profile.cycles_of_wgp(groups, CHECKED, machine.CAUTIOUS) / direct.cycles(groups) - 1


def accuracy(workload: Workload) -> dict[int, float]:
    """Relative L2 error against attention in float64, by sequence length, for the same inputs."""
    result = {}
    for sequence in ACCURACY_LENGTHS:
        q, k, v = inputs.normal(1, sequence, 1, seed=sequence)
        reference = attention_float64(q, k, v, inputs.SOFTMAX_SCALE)
        result[sequence] = compare(workload.run(q, k, v), reference).relative_l2
    return result


def calibration_rows(profiles: dict[str, Profile]) -> list[dict]:
    """The published figures beside the model's; rows whose kernel was not run say so."""
    rows = []
    for row in calibration.ROWS:
        described = {**asdict(row), "card": row.card.name}
        if row.workload in profiles:
            model = modelled(profiles[row.workload], (row.batch, row.sequence, row.heads), row.card)
            peak = model.bound * model.peak_tflops
            described |= {
                "bound": model.bound,
                "bound_tflops": peak,
                "modelled_tflops": model.tflops,
                "ratio": row.tflops / model.tflops,
            }
        rows.append(described)
    return rows


def refitted_clocks(rows: list[dict]) -> dict[str, float]:
    """What each card's `sustained` would be if it were fitted on this run: the fit rows' geometric mean."""
    result = {}
    for card in machine.CARDS.values():
        ratios = [row["ratio"] for row in rows if row["kind"] == "fit" and row["card"] == card.name and "ratio" in row]
        if ratios:
            result[card.name] = card.sustained.value * statistics.geometric_mean(ratios)
    return result


def counted_by_hand() -> dict:
    """The kernel that nobody can run here, by its counts: nothing of it is modelled."""
    counted = PULL_REQUEST_6390
    return {**asdict(counted), "slots_per_wmma": counted.slots_per_matrix, "bound": counted.issue_bound}


def print_tables(
    console: Console, results: list[Modelled], errors: dict[str, dict[int, float]], rows: list[dict]
) -> None:
    columns = ("slots/WMMA", "bound", "used", "of bound", "prologue", "TFLOP/s", "at boost clock")
    table = Table("kernel", "S", "H", *columns, title=f"modelled, {machine.R9700.name}; prologue and launches included")
    for r in results:
        if r.card != machine.R9700.name:
            continue
        numbers = (r.slots_per_wmma, r.bound, r.utilisation, r.share_of_bound, r.prologue_share)
        shown = [*(f"{x:.3f}" for x in numbers), f"{r.tflops:.1f}", f"{r.tflops_at_boost_clock:.1f}"]
        table.add_row(r.kernel, str(r.shape[1]), str(r.shape[2]), *shown)
    counted = PULL_REQUEST_6390
    table.add_row(counted.name, "", "", f"{counted.slots_per_matrix:.3f}", f"{counted.issue_bound:.3f}")
    console.print(table)
    table = Table("kernel", *(f"S = {s}" for s in ACCURACY_LENGTHS), title="relative L2 error against float64, N(0, 1)")
    for kernel, by_length in errors.items():
        table.add_row(kernel, *(f"{error:.5f}" for error in by_length.values()))
    console.print(table)
    table = Table(
        "kernel", "B", "S", "H", "published", "bound", "modelled", "published / modelled", "kind", title="calibration"
    )
    for row in rows:
        shown = ["not run", "", ""]
        if "ratio" in row:
            shown = [f"{row['bound']:.3f}", f"{row['modelled_tflops']:.1f}", f"{row['ratio']:.2f}"]
        shape = [str(row[name]) for name in ("batch", "sequence", "heads")]
        table.add_row(row["workload"], *shape, f"{row['tflops']:.1f}", *shown, row["kind"])
    console.print(table)


def render(**values) -> str:
    """The run as a page of the documentation."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(TEMPLATE.read_text()).render(**values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", action="store_true", help="also replace docs/measurements.md and docs/bench.png")
    parser.add_argument("--aiter", type=Path, help="a checkout of ROCm/aiter, for its FlyDSL attention")
    arguments = parser.parse_args()
    gpu = VirtualGpu.load()
    with workloads(gpu, arguments.aiter) as by_name:
        profiles = {name: profile(gpu, workload) for name, workload in by_name.items()}
        extrapolated = {name: extrapolation_error(gpu, p) for name, p in profiles.items()}
        workspace = host.workspace_share(1, 4096, 24)
        errors = {name: accuracy(workload) for name, workload in by_name.items()}
    cards = machine.CARDS.values()
    results = [modelled(p, shape, card) for card in cards for p in profiles.values() for shape in SHAPES]
    rows = calibration_rows(profiles)
    overhead = host.overhead(gpu)
    kernels = [{**asdict(r), "relative_l2": errors[r.kernel][ACCURACY_LENGTHS[-1]]} for r in results]
    record = {
        "modelled": True,
        "kernels": kernels,
        "by_hand_counts": counted_by_hand(),
        "relative_l2": errors,
        "calibration": rows,
        "host": overhead,
        "extrapolation_error": extrapolated,
        "sustained_clock": {card.name: card.sustained.value for card in cards},
        "sustained_clock_refitted": refitted_clocks(rows),
        "constants": {name: asdict(constant) for name, constant in machine.TIMING.items()},
    }
    DIST.mkdir(exist_ok=True)
    (DIST / "bench.json").write_text(json.dumps(record, indent=1) + "\n")
    plotted = [r for r in results if r.card == machine.R9700.name and r.shape[2] == PLOTTED_HEADS]
    speeds = {kernel: {r.shape[1]: r.seconds for r in plotted if r.kernel == kernel} for kernel in profiles}
    caption = f"[1, S, {PLOTTED_HEADS}, 128] on an R9700, modelled; not run on hardware. Errors: one head, N(0, 1)."
    plot.draw(DIST / "bench.png", speeds, errors, caption)
    document = render(
        card=machine.R9700,
        results=results,
        counted=PULL_REQUEST_6390,
        profiles=profiles,
        errors=errors,
        lengths=ACCURACY_LENGTHS,
        checked=CHECKED,
        extrapolated=extrapolated,
        rows=rows,
        sources=list(dict.fromkeys(row.source for row in calibration.ROWS)),
        fixed_cost=calibration.FIXED_COST,
        constants=machine.TIMING,
        host=overhead,
        workspace=workspace,
    )
    (DIST / "bench.md").write_text(document)
    if arguments.docs:
        (DOCS / "measurements.md").write_text(document)
        shutil.copy(DIST / "bench.png", DOCS / "bench.png")
    print_tables(Console(width=150), results, errors, rows)
    for name, error in extrapolated.items():
        print(f"{name}: cycles at S = {CHECKED} from S = {EXECUTED} against a run there: {error:+.1%}")
    print(f"host path of one Hub call, nothing launched: {overhead['ratio']:.2f}x of a bare torch custom op")
    print(f"sustained clock, share of boost: {record['sustained_clock']}; of this run: {refitted_clocks(rows)}")
    print(f"written: {DIST.name}/bench.json, bench.md, bench.png")


if __name__ == "__main__":
    main()
