# SPDX-License-Identifier: MIT
"""How fast the virtual device is: one forward of the op at [1, 1024, 4, 128], prologue included.

    python -m integration_tests.speed.emulator_speed

Prints instructions per second, seconds and the ratio to the previous record, and writes dist/virtual_device.json. The
figures are of this machine's CPU emulating a GPU; they say nothing about a GPU.
"""

import json
import os
import platform
import time

import torch

from integration_tests.harness import inputs
from integration_tests.harness.hub_delivery import load_hub_kernel
from integration_tests.harness.rocm_torch import rocm_torch
from integration_tests.paths import DIST
from integration_tests.virtual_gpu import VirtualGpu

RECORD = DIST / "virtual_device.json"
SHAPE = (1, 1024, 4)
ROUNDS = 5


def main() -> None:
    gpu = VirtualGpu.load()
    q, k, v = inputs.normal(*SHAPE)
    with rocm_torch(gpu):
        kernel = load_hub_kernel()
        kernel.gfx1201_sage_attention(q, k, v)  # loads the code object
        gpu.reset()
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            kernel.gfx1201_sage_attention(q, k, v)
            times.append(time.perf_counter() - start)
    instructions = sum(sum(record.instructions.values()) for record in gpu.records()) // ROUNDS
    seconds = min(times)
    previous = json.loads(RECORD.read_text())["seconds"] if RECORD.exists() else None
    record = {
        "shape": [*SHAPE, 128],
        "wave_instructions": instructions,
        "seconds": seconds,
        "wave_instructions_per_second": instructions / seconds,
        "ratio_to_previous_record": seconds / previous if previous else None,
        "cpu": platform.processor() or platform.machine(),
        "threads": os.cpu_count(),
        "torch": torch.__version__,
    }
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    print(f"one forward at {record['shape']} on the virtual gfx1201 ({record['cpu']}, {record['threads']} threads)")
    print(f"  {instructions} wave instructions in {seconds:.3f} s (best of {ROUNDS})")
    print(f"  {instructions / seconds / 1e6:.1f} million wave instructions per second")
    ratio = f"{seconds / previous:.2f}x of the previous record's time" if previous else "no previous record"
    print(f"  {ratio}; written to {RECORD.name}")


if __name__ == "__main__":
    main()
