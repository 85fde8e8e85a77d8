# SPDX-License-Identifier: MIT
"""Our kernels and those of peers have no findings, and no order in which waves run changes what they compute."""

import pytest
import torch

from integration_tests.harness import inputs
from integration_tests.speed.peers import comfy_kitchen, triton_sage

SEEDS = 50
TAIL = (1, 70, 2)  # two full key tiles and a tail, two heads: several work-groups in each of the three launches
FINDING_FREE = [(1, 1, 1), (1, 33, 2), (2, 300, 3)]


@pytest.fixture
def sanitized(reset_gpu):
    """The device with the sanitizer on; nothing may be found by the end of the test."""
    reset_gpu.sanitize()
    yield reset_gpu
    found = reset_gpu.findings()
    reset_gpu.sanitize(False)
    assert not found, found


@pytest.mark.parametrize("shape", FINDING_FREE)
def test_the_op_has_no_findings(sage_attention, sanitized, shape):
    sage_attention(*inputs.normal(*shape), inputs.SOFTMAX_SCALE)
    assert len(sanitized.records()) == 3


def test_triton_has_no_findings(sanitized):
    q, k, v = inputs.normal(1, 200, 1, seed=1)
    triton_sage.triton_sage_attention(sanitized, q, k, v, inputs.SOFTMAX_SCALE)
    assert sanitized.launches("_attn_fwd") == 1


def test_comfy_kitchen_has_no_findings(rocm_torch, sanitized):
    q, k, v = inputs.normal(1, 200, 2, seed=1)
    comfy_kitchen.comfy_kitchen_attention(q, k, v, inputs.SOFTMAX_SCALE)
    assert sanitized.launches(comfy_kitchen.KERNEL) == 1


def test_wave_schedules_do_not_change_results(sage_attention, reset_gpu):
    q, k, v = inputs.normal(*TAIL)
    expected = sage_attention(q, k, v, inputs.SOFTMAX_SCALE)
    for seed in range(1, SEEDS + 1):
        reset_gpu.configure(schedule_seed=seed)
        assert torch.equal(sage_attention(q, k, v, inputs.SOFTMAX_SCALE), expected), seed


def test_wave_schedules_do_not_change_tritons_results(reset_gpu):
    q, k, v = inputs.normal(1, 200, 1, seed=1)
    expected = triton_sage.triton_sage_attention(reset_gpu, q, k, v, inputs.SOFTMAX_SCALE)
    for seed in range(1, 6):
        reset_gpu.configure(schedule_seed=seed)
        output = triton_sage.triton_sage_attention(reset_gpu, q, k, v, inputs.SOFTMAX_SCALE)
        assert torch.equal(output, expected), seed


def test_wave_schedules_do_not_change_comfy_kitchens_results(rocm_torch, reset_gpu):
    q, k, v = inputs.normal(1, 200, 2, seed=1)
    expected = comfy_kitchen.comfy_kitchen_attention(q, k, v, inputs.SOFTMAX_SCALE)
    for seed in range(1, 6):
        reset_gpu.configure(schedule_seed=seed)
        assert torch.equal(comfy_kitchen.comfy_kitchen_attention(q, k, v, inputs.SOFTMAX_SCALE), expected), seed
