# SPDX-License-Identifier: MIT
"""The attention kernels that are modelled: ours and its peers, called alike on the virtual device."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from integration_tests.harness import inputs
from integration_tests.harness.hub_delivery import load_hub_kernel
from integration_tests.harness.launches import MAIN_KERNEL
from integration_tests.harness.rocm_torch import rocm_torch
from integration_tests.speed.peers import aiter_triton, comfy_kitchen, flydsl_flash, triton_sage
from integration_tests.virtual_gpu import VirtualGpu

OURS = "this kernel"
COMFY_KITCHEN = comfy_kitchen.NAME
TRITON_SAGE = "Triton SageAttention"
AITER_TRITON = "aiter Triton BF16"
FLYDSL = "aiter FlyDSL BF16"


@dataclass(frozen=True)
class Workload:
    """One implementation of attention. `run(q, k, v)` launches its kernels; all but `main` are its prologue."""

    name: str
    main: str
    queries_per_workgroup: int
    keys_per_tile: int
    run: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
    # Rescales its output only in tiles where a running maximum grows: then time depends on the data.
    skips_rescaling: bool = False
    # Torch operations outside the traced kernels, as bytes of DRAM traffic per byte of K and V together.
    untraced_bytes_per_input_byte: float = 0.0


@contextmanager
def workloads(gpu: VirtualGpu, aiter: Path | None = None) -> Iterator[dict[str, Workload]]:
    """The workloads by name: ours as users call the Hub kernel, FlyDSL's if `aiter` is a checkout of ROCm/aiter."""
    scale = inputs.SOFTMAX_SCALE
    with rocm_torch(gpu):
        hub = load_hub_kernel()
        ours = Workload(OURS, MAIN_KERNEL, 256, 32, hub.gfx1201_sage_attention, skips_rescaling=True)
        comfy = Workload(
            COMFY_KITCHEN,
            comfy_kitchen.KERNEL,
            comfy_kitchen.QUERY_BLOCK,
            comfy_kitchen.KEY_BLOCK,
            lambda q, k, v: comfy_kitchen.comfy_kitchen_attention(q, k, v, scale),
        )
        sage = Workload(
            TRITON_SAGE,
            "_attn_fwd",
            triton_sage.QUERY_BLOCK,
            triton_sage.KEY_BLOCK,
            lambda q, k, v: triton_sage.triton_sage_attention(gpu, q, k, v, scale),
            # K is read for its mean, then read and written; V is read and written as float16.
            untraced_bytes_per_input_byte=2.5,
        )
        flash = Workload(
            AITER_TRITON,
            aiter_triton.KERNEL,
            aiter_triton.QUERY_BLOCK,
            aiter_triton.KEY_BLOCK,
            lambda q, k, v: aiter_triton.aiter_flash_attention(gpu, q, k, v),
        )
        found = [ours, comfy, sage, flash]
        if aiter:
            found.append(
                Workload(
                    FLYDSL,
                    flydsl_flash.KERNEL,
                    flydsl_flash.QUERY_BLOCK,
                    flydsl_flash.KEY_BLOCK,
                    lambda q, k, v: flydsl_flash.flydsl_flash_attention(gpu, aiter, q, k, v),
                )
            )
        yield {workload.name: workload for workload in found}
