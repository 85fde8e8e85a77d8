# SPDX-License-Identifier: MIT
"""What one call of the Hub op costs the host: its time as a ratio to a bare torch custom op, and its workspace.

    python -m integration_tests.speed.host

The virtual device accepts launches and does nothing, so the time is the host path of a shape that was called before:
checks, allocation, argument packing and four HIP calls. The bare op has the same signature and only allocates the
output. What each call asks torch about the device is answered beforehand: on ROCm those are C calls, here they are
stand-ins that take longer than all the rest.
Both run in turns in one process, in CPU seconds of this machine; only their ratio means anything.
"""

import time
from collections.abc import Callable

import torch

from integration_tests.harness import inputs
from integration_tests.harness.hub_delivery import load_hub_kernel
from integration_tests.harness.rocm_torch import rocm_torch
from integration_tests.virtual_gpu import VirtualGpu

SHAPE = (1, 256, 2)
CALLS, ROUNDS = 200, 15


@torch.library.custom_op("performance::bare_attention", mutates_args=())
def bare_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float) -> torch.Tensor:
    """A custom op that does nothing but allocate its result."""
    return torch.empty_like(q)


def seconds_per_call(call: Callable[[], object]) -> float:
    start = time.process_time()
    for _ in range(CALLS):
        call()
    return (time.process_time() - start) / CALLS


def workspace_share(batch: int, sequence: int, heads: int) -> float:
    """Bytes of a call's workspace, as a share of the bytes of Q, K and V."""
    launcher = load_hub_kernel().hip_module
    plan = launcher.plan_call(launcher._manifest()["launch"], batch, sequence, heads)
    return plan.workspace_bytes / (3 * batch * sequence * heads * 128 * 2)


def overhead(gpu: VirtualGpu) -> dict[str, float]:
    """CPU seconds per call of both ops, best of ROUNDS, and their ratio."""
    q, k, v = inputs.normal(*SHAPE)
    with rocm_torch(gpu), gpu.accept_only():
        kernel = load_hub_kernel()
        facts = kernel.hip_module.device_facts(q)
        kernel.hip_module.device_facts = lambda _: facts
        op = kernel.gfx1201_sage_attention
        calls = {
            "hub": lambda: op(q, k, v, inputs.SOFTMAX_SCALE),
            "bare": lambda: bare_attention(q, k, v, inputs.SOFTMAX_SCALE),
        }
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(ROUNDS):
            for name, call in calls.items():
                best[name] = min(best[name], seconds_per_call(call))
    return {**best, "ratio": best["hub"] / best["bare"]}


if __name__ == "__main__":
    print(overhead(VirtualGpu.load()))
