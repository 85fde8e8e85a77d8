# SPDX-License-Identifier: MIT
"""Which models of diffusers run on the kernel, and how much of their attention. Writes dist/models.json.

    python -m integration_tests.reports.models                  # every model of the table
    python -m integration_tests.reports.models --only "FLUX.1-dev 1024" --out FILE
    python -m integration_tests.reports.models --docs           # and the tables of docs/models.md

Each model runs twice: at full size on the meta device, where the package itself says what the kernel would take, and
tiny, of real head dimensions, on the virtual gfx1201, against the native backend.
"""

import argparse
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

# huggingface_hub and diffusers read this once, when they are imported: the package is the one built here.
os.environ["HF_HUB_OFFLINE"] = "1"

import torch

from integration_tests.harness import generated_page
from integration_tests.harness.progress import Progress
from integration_tests.harness.rocm_torch import rocm_torch
from integration_tests.harness.variant_delivery import load_variant, local_kernels
from integration_tests.paths import DIST, DOCS, requirement
from integration_tests.reports.models import report
from integration_tests.reports.models.table import TABLE
from integration_tests.virtual_gpu import VirtualGpu

COMMAND = "nox -s models -- --docs"


def main() -> int:
    parser = argparse.ArgumentParser(prog="nox -s models --", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[workload.name for workload in TABLE])
    parser.add_argument("--out", type=Path, default=DIST / "models.json")
    parser.add_argument("--docs", action="store_true", help="put the tables into docs/models.md")
    options = parser.parse_args()
    if options.docs and options.only:
        parser.error("--docs needs every model: leave out --only")
    chosen = [workload for workload in TABLE if not options.only or workload.name in options.only]
    progress = Progress(len(chosen) + 1)
    results = []
    with rocm_torch(VirtualGpu.load()):
        with progress.step("the ROCm variant of sage-attention"):
            os.environ["LOCAL_KERNELS"] = local_kernels()
            package = load_variant()

        from integration_tests.reports.models.measure import measure

        for workload in chosen:
            with progress.step(workload.name):
                results.append(measure(workload, package))

    versions = {"torch": torch.__version__, "diffusers": requirement("diffusers").partition("==")[2]}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figures = report.shares(results) | versions | {"models": [asdict(result) for result in results]}
    options.out.write_text(json.dumps(figures, indent=1) + "\n")
    text = report.text(chosen, results)
    print(text)
    if options.docs:
        generated_page.renew(DOCS / "models.md", COMMAND, text, [])
    wrong = [result for result in results if not result.agrees]
    for result in wrong:
        print(f"{result.name}: relative L2 {result.relative_l2:.6f} after {result.launches} launches", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
