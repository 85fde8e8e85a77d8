# SPDX-License-Identifier: MIT
"""The small MiniMax-H3 with `aiter_sage` against native SDPA, in a process of its own: prints JSON.

    python -m integration_tests.tests.with_diffusers.minimax_h3_on_aiter [--gpu hardware|dry-run]

diffusers asks for aiter once, when it is imported, so torch must look like ROCm and aiter be there before that.
"""

import argparse
import json

from integration_tests.harness import aiter_delivery, device_under_test
from integration_tests.harness import patched_diffusers as patched
from integration_tests.harness.device_under_test import on_device
from integration_tests.harness.launches import MAIN_KERNEL

BACKEND = "aiter_sage"
SEED = 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpu", choices=device_under_test.GPU_MODES)
    if parser.parse_args().gpu == device_under_test.HARDWARE:
        device_under_test.use_gpu()
    with device_under_test.rocm_torch():
        aiter_delivery.load_aiter()
        patched.activate("aiter_backend")
        import torch
        from diffusers.models.attention_dispatch import dispatch_attention_fn

        from integration_tests.harness import minimax_h3

        transformer, inputs = minimax_h3.small_minimax_h3(SEED), minimax_h3.example_inputs(SEED)
        with device_under_test.launched_kernels() as launched:
            result = minimax_h3.compare(transformer, inputs, BACKEND)
            result["launches"] = launched().count(MAIN_KERNEL)
        result["relative_l2_bound"], result["cosine_bound"] = minimax_h3.RELATIVE_L2, minimax_h3.COSINE
        try:
            heads_of_64 = on_device(torch.zeros(1, 8, 2, 64, dtype=torch.bfloat16))
            dispatch_attention_fn(heads_of_64, heads_of_64, heads_of_64, backend=BACKEND)
        except ValueError as error:
            result["refusal"] = str(error)
        transformer.compile_repeated_blocks(fullgraph=True, backend="aot_eager")
        compiled = minimax_h3.compare(transformer, inputs, BACKEND)
        result["compiled_relative_l2"] = compiled["relative_l2"]
    print("\n" + json.dumps(result))


if __name__ == "__main__":
    main()
