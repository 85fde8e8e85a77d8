# SPDX-License-Identifier: MIT
"""The small MiniMax-H3 with `aiter_sage` against native SDPA, in a process of its own: prints JSON.

diffusers asks for aiter once, when it is imported, so torch must look like ROCm and aiter be there before that.
"""

import json

from integration_tests import aiter_delivery
from integration_tests.kernel.launches import MAIN_KERNEL
from integration_tests.rocm_torch import rocm_torch
from integration_tests.virtual_gpu import VirtualGpu
from integration_tests.with_diffusers import patched

BACKEND = "aiter_sage"
SEED = 1


def main() -> None:
    gpu = VirtualGpu.load()
    with rocm_torch(gpu):
        aiter_delivery.load_aiter()
        patched.activate("aiter_backend")
        import torch
        from diffusers.models.attention_dispatch import dispatch_attention_fn

        from integration_tests.with_diffusers import minimax_h3

        transformer, inputs = minimax_h3.small_minimax_h3(SEED), minimax_h3.example_inputs(SEED)
        gpu.reset()
        result = minimax_h3.compare(transformer, inputs, BACKEND)
        result["relative_l2_bound"], result["cosine_bound"] = minimax_h3.RELATIVE_L2, minimax_h3.COSINE
        result["launches"] = gpu.launches(MAIN_KERNEL)
        try:
            dispatch_attention_fn(*[torch.zeros(1, 8, 2, 64, dtype=torch.bfloat16)] * 3, backend=BACKEND)
        except ValueError as error:
            result["refusal"] = str(error)
        transformer.compile_repeated_blocks(fullgraph=True, backend="aot_eager")
        compiled = minimax_h3.compare(transformer, inputs, BACKEND)
        result["compiled_relative_l2"] = compiled["relative_l2"]
    print("\n" + json.dumps(result))


if __name__ == "__main__":
    main()
