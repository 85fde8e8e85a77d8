# SPDX-License-Identifier: MIT
"""The wheel of comfy-kitchen, unmodified, against float64; and what its main kernel issues for a key tile."""

import pytest
import torch

from integration_tests.harness import inputs
from integration_tests.reference.agreement import compare
from integration_tests.reference.attention import attention_float64
from integration_tests.speed import counts
from integration_tests.speed.instruction_classes import BESIDE, matrix_instructions
from integration_tests.speed.peers.comfy_kitchen import KERNEL, KEY_BLOCK, PROLOGUE, comfy_kitchen_attention
from integration_tests.speed.trace import traced

# INT8 Q, K, V and weights: measured 0.0186 to 0.0217. A wrong lane or scale costs ten times that.
BOUND = 0.026


@pytest.mark.parametrize("batch, sequence, heads", [(1, 128, 1), (2, 77, 3), (1, 200, 2), (2, 512, 2)])
def test_attention_agrees_with_float64(virtual_gpu, rocm_torch, batch, sequence, heads):
    q, k, v = inputs.normal(batch, sequence, heads, seed=sequence)
    output = comfy_kitchen_attention(q, k, v, inputs.SOFTMAX_SCALE)
    assert output.shape == q.shape and output.dtype == torch.bfloat16
    assert compare(output, attention_float64(q, k, v, inputs.SOFTMAX_SCALE)).relative_l2 <= BOUND


def test_a_call_launches_its_prologue_and_then_the_main_kernel(virtual_gpu, rocm_torch):
    comfy_kitchen_attention(*inputs.normal(1, 33, 1), inputs.SOFTMAX_SCALE)
    *before, main = (record.kernel for record in virtual_gpu.records())
    assert main == KERNEL
    assert len(before) == len(PROLOGUE)
    assert all(name in kernel for name, kernel in zip(PROLOGUE, before, strict=True))


@pytest.mark.parametrize("make_inputs", [inputs.normal, counts.with_early_maximum])
def test_a_key_tile_costs_the_same_whatever_the_maximum_does(virtual_gpu, rocm_torch, make_inputs):
    per_wave = {}
    for sequence in (512, 1024):
        with traced(virtual_gpu, workgroups=0) as traces:
            comfy_kitchen_attention(*make_inputs(1, sequence, 1), inputs.SOFTMAX_SCALE)
        main = traces.of(KERNEL)
        assert main.vgprs == 182 and main.spills == 0
        per_wave[sequence // KEY_BLOCK] = counts.per_wave(main)
    (small, counted), (large, more) = per_wave.items()
    per_tile, _ = counts.split(counted, more, small, large)
    # 16 queries x 64 keys x 128 channels, twice, in 16 x 16 x 16 steps, all of them INT8.
    assert per_tile["int8_matrix"] == matrix_instructions(per_tile) == 2 * 16 * 64 * 128 / 16**3
    # 4.73 a matrix instruction.
    assert sum(per_tile[name] for name in BESIDE) == 303
