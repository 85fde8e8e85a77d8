# SPDX-License-Identifier: MIT
"""Kernels that we did not write, compiled for gfx1201, against torch."""

import pytest
import torch

from integration_tests.harness import inputs
from integration_tests.reference.agreement import compare
from integration_tests.reference.attention import attention_float64
from integration_tests.speed.peers import aiter_triton, triton_sage

# INT8 scores and FP16 weights and sums, no FP8: measured 0.0128 and 0.0137. A wrong lane or scale costs ten times that.
BOUND = 0.018
# BF16 weights and output: measured 0.0022.
BF16_BOUND = 0.004


@pytest.mark.parametrize("batch, sequence, heads", [(1, 128, 1), (2, 512, 2)])
def test_triton_sage_attention_agrees_with_float64(virtual_gpu, batch, sequence, heads):
    q, k, v = inputs.normal(batch, sequence, heads, seed=sequence)
    output = triton_sage.triton_sage_attention(virtual_gpu, q, k, v, inputs.SOFTMAX_SCALE)
    assert compare(output, attention_float64(q, k, v, inputs.SOFTMAX_SCALE)).relative_l2 <= BOUND
    assert virtual_gpu.launches("_attn_fwd") == 1 and virtual_gpu.launches("quant_per_block_int8_kernel") == 2


def test_triton_tail_is_as_wrong_as_its_source_says(virtual_gpu):
    # The package does not mask scores past the last key: 56 keys of score 0 and value 0 join the softmax. The device
    # must show that fault, not hide it.
    sequence, padding = 200, 56
    q, k, v = inputs.normal(1, sequence, 2, seed=200)
    output = triton_sage.triton_sage_attention(virtual_gpu, q, k, v, inputs.SOFTMAX_SCALE)
    centred = (k - k.mean(dim=1, keepdim=True)).double()
    k_padded, v_padded = (torch.nn.functional.pad(x.double(), (0, 0, 0, 0, 0, padding)) for x in (centred, v))
    scores = torch.einsum("bqhd,bkhd->bhqk", q.double(), k_padded) * inputs.SOFTMAX_SCALE
    faulty = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(dim=-1), v_padded)
    assert compare(output, faulty).relative_l2 <= BOUND
    assert compare(output, attention_float64(q, k, v, inputs.SOFTMAX_SCALE)).relative_l2 > 0.1


@pytest.mark.aiter
def test_aiter_triton_flash_attention_agrees_with_float64(virtual_gpu):
    q, k, v = inputs.normal(1, 256, 2, seed=3)
    output = aiter_triton.aiter_flash_attention(virtual_gpu, q, k, v)
    assert compare(output, attention_float64(q, k, v, inputs.SOFTMAX_SCALE)).relative_l2 <= BF16_BOUND
    assert virtual_gpu.launches(aiter_triton.KERNEL) == 1
