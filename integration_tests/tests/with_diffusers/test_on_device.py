# SPDX-License-Identifier: MIT
"""The small MiniMax-H3 on the device: diffusers loads the Hub kernel, and every attention call runs on it."""

import pytest
import torch
from diffusers.models.attention_dispatch import _HUB_KERNELS_REGISTRY, AttentionBackendName

from integration_tests.harness.device_under_test import on_device
from integration_tests.harness.launches import MAIN_KERNEL
from integration_tests.harness.minimax_h3 import (
    COSINE,
    RELATIVE_L2,
    ROUNDING,
    compare,
    compiled_and_eager,
    example_inputs,
    run,
    small_minimax_h3,
    small_video_vae,
)
from integration_tests.reference import agreement as accuracy
from integration_tests.reference.attention import sage_attention_model

BACKEND = "aiter_sage_hub"


@pytest.fixture
def transformer():
    return small_minimax_h3(seed=0)


def assert_close_to_sdpa(result):
    assert result["relative_l2"] <= RELATIVE_L2
    assert result["cosine"] >= COSINE


@pytest.mark.parametrize("batch_size", [1, 2])
def test_minimax_h3_agrees_with_sdpa_and_every_call_is_launched(
    launched, hub_kernel, transformer, record_agreement, batch_size
):
    result = compare(transformer, example_inputs(seed=1, batch_size=batch_size), BACKEND)
    record_agreement(result)
    assert result["attention_calls"] == 3
    assert launched().count(MAIN_KERNEL) == result["attention_calls"]
    assert_close_to_sdpa(result)


def test_minimax_h3_agrees_with_the_model_of_the_kernel_within_rounding(launched, hub_kernel, transformer, monkeypatch):
    inputs = example_inputs(seed=1)
    on_device = run(transformer, inputs, BACKEND)
    assert launched().count(MAIN_KERNEL) == 3

    config = _HUB_KERNELS_REGISTRY[AttentionBackendName.AITER_SAGE_HUB]
    monkeypatch.setattr(config, "kernel_fn", lambda q, k, v, softmax_scale: sage_attention_model(q, k, v, 128**-0.5))
    assert accuracy.compare(on_device, run(transformer, inputs, BACKEND)).relative_l2 <= ROUNDING
    assert launched().count(MAIN_KERNEL) == 3


def test_fused_projections_are_read_in_place(launched, hub_kernel, transformer):
    inputs = example_inputs(seed=1)
    transformer.fuse_qkv_projections()  # value becomes a view with a stride of three times its width
    result = compare(transformer, inputs, BACKEND)
    assert launched().count(MAIN_KERNEL) == 3
    assert_close_to_sdpa(result)


def test_compiled_blocks_have_no_graph_break_and_give_the_same_output(launched, hub_kernel, transformer):
    compiled, eager = compiled_and_eager(transformer, example_inputs(seed=1), BACKEND)
    assert launched().count(MAIN_KERNEL) == 6
    assert torch.equal(compiled, eager)


def test_nothing_is_launched_when_an_autoencoder_is_refused(launched, hub_kernel, transformer):
    transformer.set_attention_backend(BACKEND)
    with pytest.raises(ValueError, match="head dimension must be 128"):
        small_video_vae(seed=0).decode(on_device(torch.zeros(1, 4, 7, 4, 4)))
    assert launched() == []


def test_gradients_are_refused_by_the_kernel(launched, hub_kernel, transformer):
    transformer.set_attention_backend(BACKEND)
    inputs = example_inputs(seed=1)
    inputs["encoder_hidden_states"].requires_grad_(True)
    with pytest.raises(ValueError, match="require"):
        transformer(**inputs)
    assert launched() == []
