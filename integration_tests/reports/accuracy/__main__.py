# SPDX-License-Identifier: MIT
"""Measures the op's accuracy and writes dist/accuracy.json, dist/accuracy.md and two plots.

    python -m integration_tests.reports.accuracy                      # everything, on this machine
    python -m integration_tests.reports.accuracy --cuda-only FILE     # long sequences, on a CUDA machine (torch, tqdm)
    python -m integration_tests.reports.accuracy --long FILE --docs   # the rest, and docs/accuracy.md with both

Up to 4,096 rows the op and comfy-kitchen run on the virtual gfx1201; beyond, the op's reference model, on chosen blocks
of queries over all keys, on a CUDA device if there is one. --cuda-only FILE measures only what a CUDA machine can do
faster and writes that; --long FILE takes it instead of measuring those lengths here. Nothing here is a figure of a
gfx1201.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from tqdm import tqdm

from integration_tests.harness import generated_page
from integration_tests.paths import DIST, DOCS
from integration_tests.reports.accuracy.cases import CASES
from integration_tests.reports.accuracy.measure import Row, by_model, on_device

COMMAND = "nox -s accuracy -- --docs"
# On the device, with the heads that keep a row of the table under half a minute.
DEVICE_LENGTHS = {1: 2, 14: 2, 33: 2, 77: 2, 256: 2, 1024: 2, 4096: 1}
# MiniMax-H3 at 1344x768 and 243 frames has 73,923 rows; reports of noise begin at 160,000.
LONG_LENGTHS = (16384, 73923, 180000)
# MiniMax-H3 has 56 heads; inputs differ by head only in their seed, so some of them do.
CUDA_HEADS, CUDA_BLOCKS = 4, 8
CPU_HEADS, CPU_BLOCKS = 1, 2


def main() -> None:
    parser = argparse.ArgumentParser(prog="nox -s accuracy --", description=__doc__.splitlines()[0])
    parser.add_argument("--cuda-only", type=Path, metavar="FILE", help="write rows of the long sequences to FILE")
    parser.add_argument("--long", type=Path, metavar="FILE", help="rows that --cuda-only wrote")
    parser.add_argument("--docs", action="store_true", help="put tables and plots into docs/")
    options = parser.parse_args()
    if options.cuda_only:
        if not torch.cuda.is_available():
            parser.error("--cuda-only needs a CUDA device and PyTorch sees none; leave it out to use the CPU")
        save(options.cuda_only, list(long_rows()))
        return
    rows = list(device_rows())
    rows += load(options.long) if options.long else long_rows()
    DIST.mkdir(exist_ok=True)
    save(DIST / "accuracy.json", rows)

    from integration_tests.reports.accuracy import report

    text = report.write(rows, DIST)
    print(text)
    if options.docs:
        plots = [DIST / report.BY_LENGTH, DIST / report.BY_SCHEME]
        generated_page.renew(DOCS / "accuracy.md", COMMAND, text, plots)


def device_rows() -> Iterator[Row]:
    """All cases at the lengths that the virtual device can do."""
    # Only here: a CUDA machine that measures long sequences needs torch alone.
    from integration_tests.harness.hub_delivery import load_hub_kernel
    from integration_tests.harness.rocm_torch import rocm_torch
    from integration_tests.speed.peers import comfy_kitchen
    from integration_tests.virtual_gpu import VirtualGpu

    with rocm_torch(VirtualGpu.load()):
        op = load_hub_kernel().gfx1201_sage_attention
        executed = {comfy_kitchen.NAME: comfy_kitchen.comfy_kitchen_attention}
        todo = [(case, sequence) for sequence in DEVICE_LENGTHS for case in CASES]
        for case, sequence in tqdm(todo, desc="virtual gfx1201", unit="case"):
            yield from on_device(op, case, sequence, DEVICE_LENGTHS[sequence], executed)


def long_rows() -> Iterator[Row]:
    """All cases at the long lengths, by the reference model."""
    cuda = torch.cuda.is_available()
    device = torch.device("cuda" if cuda else "cpu")
    heads, blocks = (CUDA_HEADS, CUDA_BLOCKS) if cuda else (CPU_HEADS, CPU_BLOCKS)
    todo = [(case, sequence) for sequence in LONG_LENGTHS for case in CASES]
    for case, sequence in tqdm(todo, desc=f"reference model, {device.type}", unit="case"):
        yield from by_model(case, sequence, heads, blocks, device)


def save(path: Path, rows: list[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"torch": torch.__version__, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")


def load(path: Path) -> list[Row]:
    return [Row(**row) for row in json.loads(path.read_text())["rows"]]


if __name__ == "__main__":
    main()
