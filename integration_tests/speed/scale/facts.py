# SPDX-License-Identifier: MIT
"""What the scale model needs to know about the kernel, from its build and from executed runs."""

import json

from integration_tests.harness.hub_delivery import built_variant, load_hub_kernel
from integration_tests.harness.rocm_torch import rocm_torch
from integration_tests.speed import counts
from integration_tests.speed.scale.model import KernelFacts
from integration_tests.virtual_gpu import VirtualGpu

# Two sizes give the instructions per key tile and per wave exactly (speed/test_counts.py).
RUN_SIZES = (256, 512)


def kernel_facts(gpu: VirtualGpu) -> KernelFacts:
    """Runs the kernel twice on the virtual device."""
    launches = counts.main_kernel_launches(gpu, RUN_SIZES)
    tiles = [size // counts.KEYS_PER_TILE for size in RUN_SIZES]
    per_tile, once = counts.split(*(counts.per_wave(launches[size]) for size in RUN_SIZES), *tiles)
    manifest = json.loads((built_variant() / "manifest.json").read_text())["launch"]
    with rocm_torch(gpu):
        plan_call = load_hub_kernel().hip_module.plan_call
    return KernelFacts(
        per_tile=per_tile,
        once=once,
        keys_per_tile=manifest["keys_per_tile"],
        queries_per_group=manifest["launches"][-1]["rows"],
        waves_per_group=launches[RUN_SIZES[0]].waves_per_workgroup,
        workspace_bytes=lambda sequence, heads: plan_call(manifest, 1, sequence, heads).workspace_bytes,
    )
