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
from rich.progress import track
from rich.table import Table

from integration_tests.harness import inputs
from integration_tests.paths import DIST, DOCS
from integration_tests.reference.agreement import compare
from integration_tests.reference.attention import attention_float64
from integration_tests.speed import calibration, counts, host, instruction_classes, plot, published
from integration_tests.speed import card as machine
from integration_tests.speed.measured import measured_constants
from integration_tests.speed.model import Profile, flop, run, seconds
from integration_tests.speed.peers.pull_request_6390 import PULL_REQUEST_6390
from integration_tests.speed.workloads import OURS, Workload, workloads
from integration_tests.virtual_gpu import VirtualGpu

TEMPLATE = Path(__file__).with_name("measurements.md.jinja")
EXECUTED = (512, 1024)  # sequence lengths that every other shape follows from
CHECKED = 2048  # executed as well, to see how far off that is
# Up to 16,384 by length; then Wan 2.1 14B at 480p and MiniMax-H3.
SHAPES = [(1, 1024, 24), (1, 2048, 24), (1, 4096, 24), (1, 8192, 24), (1, 16384, 24), (1, 32760, 40), (1, 73923, 56)]
PLOTTED = [(1, 4096, 24), (1, 32760, 40), (1, 73923, 56)]
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
    explained: bool  # by the model: longer than calibration.SHORTEST


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
        explained=sequence > calibration.SHORTEST,
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
    """The published figures beside the model's under each reading; rows whose kernel was not run say so."""
    rows = []
    for row in calibration.ROWS:
        described = {**asdict(row), "card": row.card.name}
        if row.workload in profiles:
            shape = (row.batch, row.sequence, row.heads)
            by_reading = {
                reading: modelled(profiles[row.workload], shape, row.card, reading).tflops
                for reading in machine.READINGS
            }
            described["modelled_tflops"] = by_reading
            described["ratio"] = {reading: row.tflops / tflops for reading, tflops in by_reading.items()}
        rows.append(described)
    return rows


def refitted_clocks(rows: list[dict]) -> dict[str, dict[str, float]]:
    """By card and reading, what `sustained` would be if it were fitted on this run: the fit rows' geometric mean."""
    result = {}
    for card in machine.CARDS.values():
        ratios = [row["ratio"] for row in rows if row["kind"] == "fit" and row["card"] == card.name and "ratio" in row]
        if ratios:
            result[card.name] = {
                reading: card.sustained[reading].value * statistics.geometric_mean(ratio[reading] for ratio in ratios)
                for reading in machine.READINGS
            }
    return result


def spread(rows: list[dict], card: machine.Card) -> dict[str, float]:
    """By reading, the relative standard deviation of published / modelled over a card's rows that are not outside."""
    ratios = [r["ratio"] for r in rows if r["kind"] != "outside" and r["card"] == card.name and "ratio" in r]
    if len(ratios) < 2:
        return {}
    by_reading = {reading: [ratio[reading] for ratio in ratios] for reading in machine.READINGS}
    return {reading: statistics.stdev(values) / statistics.mean(values) for reading, values in by_reading.items()}


def published_rows(profiles: dict[str, Profile]) -> list[dict]:
    """Other people's measured figures at a shape of a card, beside what is modelled for our kernel there."""
    rows = []
    for row in published.ROWS:
        described = {**asdict(row), "card": row.card.name, "tflops": row.tflops}
        if row.shape is not None and not row.causal:
            described["ours_modelled_tflops"] = {
                reading: modelled(profiles[OURS], row.shape, row.card, reading).tflops for reading in machine.READINGS
            }
        rows.append(described)
    return rows


def counted_by_hand() -> dict:
    """The kernel that nobody can run here, by its counts: nothing of it is modelled."""
    counted = PULL_REQUEST_6390
    estimates = {reading: counted.pipe_estimate(reading) for reading in machine.READINGS}
    return {**asdict(counted), "slots_per_wmma": counted.slots_per_matrix, "pipe_estimate": estimates}


def print_tables(console: Console, results: list[Modelled], errors: dict[str, dict[int, float]], record: dict) -> None:
    columns = ("slots/WMMA", "estimate", "used", "prologue", "TFLOP/s", "at boost clock")
    for reading in machine.READINGS:
        title = f"modelled, {machine.R9700.name}, {reading} reading; prologue and launches included"
        table = Table("kernel", "S", "H", *columns, title=title, caption=calibration.SHORT)
        for r in results:
            if r.card != machine.R9700.name or r.reading != reading:
                continue
            numbers = (r.slots_per_wmma, r.pipe_estimate, r.utilisation, r.prologue_share)
            shown = [*(f"{x:.3f}" for x in numbers), f"{r.tflops:.1f}", f"{r.tflops_at_boost_clock:.1f}"]
            table.add_row(r.kernel, f"{r.shape[1]}{'' if r.explained else ' (outside)'}", str(r.shape[2]), *shown)
        counted = PULL_REQUEST_6390
        estimate = counted.pipe_estimate(reading)
        table.add_row(counted.name, "", "", f"{counted.slots_per_matrix:.3f}", f"{estimate:.3f}")
        console.print(table)
    table = Table("kernel", *(f"S = {s}" for s in ACCURACY_LENGTHS), title="relative L2 error against float64, N(0, 1)")
    for kernel, by_length in errors.items():
        table.add_row(kernel, *(f"{error:.5f}" for error in by_length.values()))
    console.print(table)
    readings = [f"{what}, {reading}" for reading in machine.READINGS for what in ("modelled", "published / modelled")]
    table = Table("kernel", "B", "S", "H", "card", "published", *readings, "kind", title="calibration")
    for row in record["calibration"]:
        shown = ["not run"] * len(readings)
        if "ratio" in row:
            shown = [f(row, r) for r in machine.READINGS for f in (_modelled_text, _ratio_text)]
        shape = [str(row[name]) for name in ("batch", "sequence", "heads", "card")]
        table.add_row(row["workload"], *shape, f"{row['tflops']:.1f}", *shown, row["kind"])
    console.print(table)
    table = Table("measured by others", "card", "B, S, H", "of", "TFLOP/s", "ours, modelled", title="published")
    for row in record["published"]:
        if row["shape"] is None:
            continue
        ours = ", ".join(f"{x:.0f} {reading}" for reading, x in row.get("ours_modelled_tflops", {}).items())
        shape = ", ".join(map(str, row["shape"])) + (", causal" if row["causal"] else "")
        table.add_row(row["who"], row["card"], shape, row["includes"], f"{row['tflops']:.1f}", ours)
    console.print(table)


def _modelled_text(row: dict, reading: str) -> str:
    return f"{row['modelled_tflops'][reading]:.1f}"


def _ratio_text(row: dict, reading: str) -> str:
    return f"{row['ratio'][reading]:.2f}"


def render(**values) -> str:
    """The run as a page of the documentation."""
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(TEMPLATE.read_text()).render(**values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--docs", action="store_true", help="also replace docs/measurements.md and docs/bench.png")
    parser.add_argument("--aiter", type=Path, help="a checkout of ROCm/aiter, for its FlyDSL attention")
    arguments = parser.parse_args()
    measured = measured_constants()
    adopted = machine.adopt(measured, "measured by the quick run on a gfx1201: dist/hardware.json")
    gpu = VirtualGpu.load()
    profiles, extrapolated, errors = {}, {}, {}
    with workloads(gpu, arguments.aiter) as by_name:
        for name, workload in track(by_name.items(), description="executing and modelling"):
            profiles[name] = profile(gpu, workload)
            extrapolated[name] = extrapolation_error(gpu, profiles[name])
            errors[name] = accuracy(workload)
        workspace = host.workspace_share(1, 4096, 24)
    cards = machine.CARDS.values()
    results = [
        modelled(p, shape, card, reading)
        for card in cards
        for reading in machine.READINGS
        for p in profiles.values()
        for shape in SHAPES
    ]
    rows = calibration_rows(profiles)
    overhead = host.overhead(gpu)
    record = {
        "modelled": True,
        "measured_constants": {name: measured[name] for name in adopted},
        "kernels": [{**asdict(r), "relative_l2": errors[r.kernel][ACCURACY_LENGTHS[-1]]} for r in results],
        "by_hand_counts": counted_by_hand(),
        "relative_l2": errors,
        "calibration": rows,
        "published": published_rows(profiles),
        "spread": {card.name: spread(rows, card) for card in cards},
        "host": overhead,
        "extrapolation_error": extrapolated,
        "sustained_clock": {
            card.name: {reading: card.sustained[reading].value for reading in machine.READINGS} for card in cards
        },
        "sustained_clock_refitted": refitted_clocks(rows),
        "constants": {name: asdict(constant) for name, constant in machine.TIMING.items()},
    }
    DIST.mkdir(exist_ok=True)
    (DIST / "bench.json").write_text(json.dumps(record, indent=1) + "\n")
    plot.draw(DIST / "bench.png", plot.bars(results, record["published"], PLOTTED), errors)
    document = render(
        cards=list(cards),
        readings=list(machine.READINGS),
        adopted=adopted,
        results=results,
        counted=PULL_REQUEST_6390,
        profiles=profiles,
        errors=errors,
        lengths=ACCURACY_LENGTHS,
        checked=CHECKED,
        sources=list(dict.fromkeys(row.source for row in calibration.ROWS)),
        published_sources=list(dict.fromkeys(row.source for row in published.ROWS)),
        short=calibration.SHORT,
        constants=machine.TIMING,
        workspace=workspace,
        record=record,
    )
    (DIST / "bench.md").write_text(document)
    if arguments.docs:
        (DOCS / "measurements.md").write_text(document)
        shutil.copy(DIST / "bench.png", DOCS / "bench.png")
    print_tables(Console(width=170), results, errors, record)
    for name, error in extrapolated.items():
        print(f"{name}: cycles at S = {CHECKED} from S = {EXECUTED} against a run there: {error:+.1%}")
    print(f"host path of one Hub call, nothing launched: {overhead['ratio']:.2f}x of a bare torch custom op")
    print(f"sustained clock, share of boost: {record['sustained_clock']}; of this run: {refitted_clocks(rows)}")
    print(f"spread of published / modelled: {record['spread']}")
    print(f"constants measured on a gfx1201: {', '.join(adopted) or 'none, all are modelled'}")
    print(f"written: {DIST.name}/bench.json, bench.md, bench.png")


if __name__ == "__main__":
    main()
