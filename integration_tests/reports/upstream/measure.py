# SPDX-License-Identifier: MIT
"""Measures one delivery in this process: `python -m integration_tests.reports.upstream.measure hub|aiter|sage_hub`.

Prints progress, and as its last line JSON with the rows of `Parity` and one `FirstCall`.
"""

import argparse
import functools
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from unittest import mock

# Read once at import: no measurement looks for a kernel on the network.
os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import torch.nn.functional as F

from integration_tests.harness import aiter_delivery, hub_delivery, inputs
from integration_tests.harness import variant_delivery as loaded_variant
from integration_tests.harness.rocm_torch import rocm_torch
from integration_tests.reference.agreement import compare
from integration_tests.reference.attention import attention_float64
from integration_tests.reports.upstream.evidence import FirstCall, Parity
from integration_tests.virtual_gpu import VirtualGpu

# From MiniMax-H3's text refiner (14 tokens) up; longer ones take minutes on an emulator.
SEQUENCES = (14, 77, 256, 1024, 4096)
HEADS = 2
SEED = 0


def load_hub() -> Callable:
    return hub_delivery.load_hub_kernel().gfx1201_sage_attention


def load_sage_hub() -> Callable:
    return functools.partial(loaded_variant.load_variant().sageattn, tensor_layout="NHD")


def load_aiter() -> Callable:
    """aiter was imported and its module built by `first_call`; the module stays loaded after its folder has gone."""
    import aiter

    return aiter.gfx1201_sage_attention


LOADERS = {"hub": load_hub, "aiter": load_aiter, "sage_hub": load_sage_hub}


def seconds_of(call: Callable) -> tuple[float, object]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def first_call(delivery: str) -> FirstCall:
    """Loads the delivery and calls it twice on one row of one head: emulating that is a fraction of a second."""
    smallest = [torch.zeros(1, 1, 1, inputs.HEAD_DIM, dtype=torch.bfloat16) for _ in range(3)]
    if delivery == "aiter":
        # In a folder without modules, so that aiter's JIT has to build them.
        with tempfile.TemporaryDirectory() as jit:
            report = aiter_delivery.calls_in_this_process(Path(jit), None)
        first, second = report["calls"]
        return FirstCall(delivery, "JIT build, empty cache", report["import"], first, second)
    built = hub_delivery.built_variant if delivery == "hub" else loaded_variant.built_variant
    built()  # building the package is its publisher's cost
    import_seconds, call = seconds_of(LOADERS[delivery])
    first, second = (seconds_of(lambda: call(*smallest))[0] for _ in range(2))
    return FirstCall(delivery, "load of the code object", import_seconds, first, second)


def parity(delivery: str, call: Callable, sequence: int) -> Parity:
    q, k, v = inputs.normal(1, sequence, HEADS, SEED)
    exact = attention_float64(q, k, v, inputs.SOFTMAX_SCALE)
    sdpa = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2)
    output = call(q, k, v)
    ours = compare(output, exact)
    return Parity(
        delivery,
        sequence,
        HEADS,
        **asdict(ours),
        sdpa_relative_l2=compare(sdpa, exact).relative_l2,
        against_sdpa_relative_l2=compare(output, sdpa).relative_l2,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("delivery", choices=sorted(LOADERS))
    delivery = parser.parse_args().delivery
    gpu = VirtualGpu.load()
    with rocm_torch(gpu), mock.patch.dict(os.environ):
        first = first_call(delivery)
        call = LOADERS[delivery]()
        rows = []
        for sequence in SEQUENCES:
            rows.append(parity(delivery, call, sequence))
            print(f"{delivery}, {sequence} rows: relative L2 {rows[-1].relative_l2:.4f}", flush=True)
        launches = len(gpu.records())
    if not launches:
        raise RuntimeError(f"{delivery} launched nothing on the virtual device")
    print("\n" + json.dumps({"parity": [asdict(row) for row in rows], "first_call": asdict(first)}))


if __name__ == "__main__":
    main()
