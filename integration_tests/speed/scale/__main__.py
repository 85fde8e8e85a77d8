# SPDX-License-Identifier: MIT
"""The table and the plot of docs/scale.md: Ulysses over up to 28 GPUs, modelled.

    python -m integration_tests.speed.scale          # writes dist/scale.json, dist/scale.md and dist/scale.png
    python -m integration_tests.speed.scale --docs   # and puts table and plot into docs/

Nothing is measured: instruction counts are exact, every rate is a published peak.
"""

import argparse
import json
import sys
from dataclasses import asdict

import matplotlib.figure

from integration_tests.harness import generated_page
from integration_tests.paths import DIST, DOCS
from integration_tests.speed.scale import model
from integration_tests.speed.scale.facts import kernel_facts
from integration_tests.speed.scale.model import KernelFacts, Model, Rank
from integration_tests.virtual_gpu import VirtualGpu

COMMAND = "python -m integration_tests.speed.scale --docs"

SEQUENCES = (73_923, 180_000)  # MiniMax-H3 at 1344x768 and 243 frames; what users ask for at most
GPUS = (1, 2, 4, 8, 14, 28)
SHORT = [1 << power for power in range(10, 19)]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m integration_tests.speed.scale", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--docs", action="store_true", help="put table and plot into docs/")
    options = parser.parse_args()
    facts = kernel_facts(VirtualGpu.load())
    DIST.mkdir(exist_ok=True)
    ranks = {sequence: [model.rank(Model(sequence), gpus, facts) for gpus in GPUS] for sequence in SEQUENCES}
    text = tables(ranks, facts)
    records = {
        sequence: [asdict(r) | {"link_seconds": r.link_seconds, "port_seconds": r.port_seconds} for r in rows]
        for sequence, rows in ranks.items()
    }
    (DIST / "scale.json").write_text(json.dumps({"modelled": True, "ranks": records}, indent=1) + "\n")
    (DIST / "scale.md").write_text(text)
    figure(ranks, facts).savefig(DIST / "scale.png", dpi=100)
    if options.docs:
        generated_page.renew(DOCS / "scale.md", COMMAND, text, [DIST / "scale.png"])
    print(text)
    return 0


def tables(ranks: dict[int, list[Rank]], facts: KernelFacts) -> str:
    blocks = [_table(sequence, rows) for sequence, rows in ranks.items()]
    return "\n".join([_counts_line(facts), *blocks, _crossover_table(ranks, facts)])


def _counts_line(facts: KernelFacts) -> str:
    per_tile, once = (
        ", ".join(f"{name} {count:g}" for name, count in counts.items()) for counts in (facts.per_tile, facts.once)
    )
    return f"Instructions of a wave of the main kernel, executed and counted: per key tile {per_tile}; once {once}.\n"


def _table(sequence: int, rows: list[Rank]) -> str:
    header = [
        "GPUs",
        "heads a rank",
        "sent in one all-to-all",
        "workspace",
        "main kernel",
        "prologue",
        "four all-to-alls",
        "repacking",
        "one attention call",
        "speed-up",
        "communication / attention",
    ]
    alone = rows[0].attention
    lines = [f"**S = {sequence:,}, modelled**, per rank and attention call", ""]
    lines += ["| " + " | ".join(header) + " |", "|" + "---:|" * len(header)]
    for r in rows:
        total = r.attention + r.communication
        cells = [
            f"{r.gpus}",
            f"{r.heads}",
            f"{r.sent_bytes / 1e6:.1f} MB",
            f"{r.workspace_bytes / 2**20:.0f} MiB",
            f"{r.kernel_seconds * 1e3:.1f} ms",
            f"{r.prologue_seconds * 1e3:.1f} ms",
            f"{max(r.link_seconds, r.port_seconds) * 1e3:.1f} ms",
            f"{r.repacking_seconds * 1e3:.1f} ms",
            f"{total * 1e3:.1f} ms",
            f"{alone / total:.1f}x",
            f"{r.communication / r.attention:.2f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _crossover_table(ranks: dict[int, list[Rank]], facts: KernelFacts) -> str:
    lines = ["**Where communication takes as long as attention, modelled**", ""]
    columns = [f"link a GPU needs, S = {sequence:,}" for sequence in ranks]
    columns += [f"port a host needs, S = {sequence:,}" for sequence in ranks]
    lines += ["| GPUs | sequence | " + " | ".join(columns) + " |", "|---:" * (2 + len(columns)) + "|"]
    for index, gpus in enumerate(GPUS[1:], start=1):
        shares = [rows[index] for rows in ranks.values()]
        links = [f"{share.break_even_link / 1e9:.1f} GB/s" for share in shares]
        ports = [f"{share.break_even_port * 8 / 1e9:.0f} Gb/s" if share.leaving_bytes else "-" for share in shares]
        cells = [f"{gpus}", f"{model.crossover_sequence(gpus, facts):,}", *links, *ports]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def figure(ranks: dict[int, list[Rank]], facts: KernelFacts) -> matplotlib.figure.Figure:
    result = matplotlib.figure.Figure(figsize=(10, 4.5), layout="constrained")
    times, shares = result.subplots(1, 2)
    for (sequence, rows), colour in zip(ranks.items(), ("C0", "C1"), strict=True):
        attention = [r.attention * 1e3 for r in rows]
        communication = [r.communication * 1e3 for r in rows[1:]]
        times.plot(GPUS, attention, "o-", color=colour, label=f"attention, S = {sequence:,}")
        times.plot(GPUS[1:], communication, "s--", color=colour, label=f"communication, S = {sequence:,}")
    times.set(xscale="log", yscale="log", xlabel="GPUs", ylabel="ms per attention call", title="time per rank")
    for gpus in GPUS[1:]:
        found = [model.rank(Model(sequence), gpus, facts) for sequence in SHORT]
        style = "--" if found[0].leaving_bytes else "-"
        shares.plot(SHORT, [r.communication / r.attention for r in found], style, label=f"{gpus} GPUs")
    shares.axhline(1, color="black", linewidth=0.8)
    for sequence in ranks:
        shares.axvline(sequence, color="grey", linewidth=0.8, linestyle=":")
    shares.set(xscale="log", yscale="log", xlabel="sequence", ylabel="communication / attention")
    shares.set_title("share of communication (dashed: hosts of 7 GPUs)")
    times.set_xticks(GPUS, [str(gpus) for gpus in GPUS])
    times.minorticks_off()
    for plot in (times, shares):
        plot.grid(alpha=0.3)
        plot.legend(fontsize=8)
    result.suptitle("modelled: issue slots and published peak rates, nothing measured", fontsize=10)
    return result


if __name__ == "__main__":
    sys.exit(main())
