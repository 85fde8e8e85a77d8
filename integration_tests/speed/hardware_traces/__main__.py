# SPDX-License-Identifier: MIT
"""Decodes the public thread traces of a real gfx1201 and compares them with the timing model, cycle by cycle.

    python -m integration_tests.speed.hardware_traces CHECKOUT_OF_TINYGRAD

Prints what docs/performance.md says of them and writes dist/hardware_traces.json. Nothing of the checkout is executed
but the recorded machine code, on the virtual device.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from integration_tests.paths import DIST
from integration_tests.speed.hardware_traces.recordings import FOLDER, NAMES, recordings
from integration_tests.speed.hardware_traces.replay import agreement, begins_after, between_issues, compare, read
from integration_tests.virtual_gpu import VirtualGpu

REPLAYED = ("handwritten", "sync")  # the others wait for global memory most of the time


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="of github.com/tinygrad/tinygrad")
    checkout = parser.parse_args().checkout
    if not (checkout / FOLDER).is_dir():
        raise SystemExit(f"{checkout} has no {FOLDER}: give the root of a checkout of tinygrad.")
    gpu, console = VirtualGpu.load(), Console(width=120)
    table = Table("kernel", "distances", "equal", "within 2", "cycles, hardware", "cycles, model", "left out")
    record, pairs, facts = [], Counter(), Counter()
    for name in NAMES:
        for recording in recordings(checkout, name):
            texts, issued = read(gpu, recording)
            facts += between_issues(issued, texts)
            # Of some launches this shader engine had no wave on the traced SIMD.
            if name not in REPLAYED or not recording.kernel.startswith("custom_") or not issued:
                continue
            found = agreement(compare(gpu, recording, issued))
            hardware, modelled = found.cycles
            row = {
                "kernel": found.kernel,
                "distances": len(found.distances),
                "equal": found.share_within(0),
                "within_2": found.share_within(2),
                "hardware_cycles": hardware,
                "modelled_cycles": modelled,
                "left_out": found.left_out,
            }
            record.append(row)
            shown = [f"{row[key]:.1%}" if isinstance(row[key], float) else str(row[key]) for key in row]
            table.add_row(*shown)
            pairs += begins_after(issued)
    console.print(table)
    table = Table("after", "next", "of", "cycles: sightings", title="when the next vector instruction began, hardware")
    for before, after, waves in sorted({key[:3] for key in pairs}):
        seen = {key[3]: count for key, count in sorted(pairs.items()) if key[:3] == (before, after, waves)}
        table.add_row(before, after, waves, ", ".join(f"{cycles}: {count}" for cycles, count in seen.items()))
    console.print(table)
    table = Table("what", "cycles: sightings", title="between issues of a wave, hardware")
    for what in sorted({key[0] for key in facts}):
        seen = {key[1]: count for key, count in sorted(facts.items()) if key[0] == what}
        table.add_row(what, ", ".join(f"{cycles}: {count}" for cycles, count in seen.items()))
    console.print(table)
    DIST.mkdir(exist_ok=True)
    (DIST / "hardware_traces.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
