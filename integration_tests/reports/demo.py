# SPDX-License-Identifier: MIT
"""The main job: builds every part and runs a small MiniMax-H3 on the virtual gfx1201, against SDPA.

    python -m integration_tests.reports.demo

Ends with a table and writes it to dist/demo.json. Exits with 1 when an attention call did not reach the kernel.
"""

import json
import os
import sys
import time

# diffusers and huggingface_hub read this once, at import: nothing here needs the network.
os.environ["HF_HUB_OFFLINE"] = "1"

import torch

from hub_kernel.build_code_object import CODE_OBJECT_NAME
from hub_kernel.build_hub_package import repo_id
from integration_tests.harness import patched_diffusers
from integration_tests.harness.hub_delivery import built_variant, load_hub_kernel
from integration_tests.harness.launches import MAIN_KERNEL
from integration_tests.harness.progress import Progress
from integration_tests.harness.rocm_torch import rocm_torch
from integration_tests.paths import DIST, REPOSITORY
from integration_tests.virtual_gpu import VirtualGpu

RESULT = DIST / "demo.json"
BACKEND = "aiter_sage_hub"
STEPS = 5
SEED = 0
NEXT = "`nox` runs the tests, `nox -s upstream_prs` writes the pull requests; README.md says who needs which."


def main() -> int:
    progress = Progress(STEPS)
    with progress.step("compile the kernel for gfx1201 and package it for the Hub"):
        variant = built_variant()
        print(f"      {CODE_OBJECT_NAME}: {(variant / CODE_OBJECT_NAME).stat().st_size} bytes")
    with progress.step("build the virtual gfx1201 (the first time one to two minutes)"):
        gpu = VirtualGpu.load()
    with progress.step("patch a copy of diffusers and import it"):
        patched_diffusers.activate()
        from integration_tests.harness import minimax_h3
    with rocm_torch(gpu):
        with progress.step("load the Hub kernel through `kernels`"):
            load_hub_kernel()
            os.environ["LOCAL_KERNELS"] = f"{repo_id()}={variant}"
        with progress.step(f"run a small MiniMax-H3 with `native` and with `{BACKEND}`"):
            transformer = minimax_h3.small_minimax_h3(SEED)
            gpu.reset()
            start = time.perf_counter()
            result = minimax_h3.compare(transformer, minimax_h3.example_inputs(SEED), BACKEND)
            seconds = time.perf_counter() - start
    result["launches"] = gpu.launches(MAIN_KERNEL)

    print_table(result, seconds)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    if result["launches"] != result["attention_calls"]:
        print(
            f"{result['attention_calls'] - result['launches']} attention calls did not reach the kernel.",
            file=sys.stderr,
        )
        return 1
    print(f"Written to {RESULT.relative_to(REPOSITORY)}. Next: {NEXT}")
    return 0


def print_table(result: dict, seconds: float) -> None:
    """The comparison, for people."""
    heads = "4 heads x 128, 2 layers + 1 refiner layer"
    print(f"\nMiniMax-H3 ({heads}), {BACKEND} on the virtual gfx1201 against native SDPA, torch {torch.__version__}\n")
    print("  cosine     relative L2   max error   launches / attention calls   wall time (emulated, both runs)")
    print(
        f"  {result['cosine']:.6f}   {result['relative_l2']:.6f}      {result['max_error']:.5f}     "
        f"{result['launches']} / {result['attention_calls']}                        {seconds:.1f} s\n"
    )


if __name__ == "__main__":
    sys.exit(main())
