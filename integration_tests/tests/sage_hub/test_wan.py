# SPDX-License-Identifier: MIT
"""Wan in unmodified diffusers: its cross-attention can be kept on native while self-attention runs on the kernel."""

import pytest
import torch
from diffusers import WanTransformer3DModel

from integration_tests.harness.device_under_test import on_device
from integration_tests.harness.launches import MAIN_KERNEL

LAYERS = 2
VIDEO_ROWS, TEXT_ROWS = 2 * 4 * 8, 16


@pytest.fixture
def transformer():
    torch.manual_seed(0)
    model = WanTransformer3DModel(
        num_attention_heads=2,
        attention_head_dim=128,
        num_layers=LAYERS,
        in_channels=4,
        out_channels=4,
        text_dim=16,
        freq_dim=16,
        ffn_dim=32,
    )
    return on_device(model.bfloat16().eval().requires_grad_(False))


@pytest.fixture
def inputs():
    return {
        "hidden_states": on_device(torch.randn(1, 4, 2, 8, 16, dtype=torch.bfloat16)),
        "timestep": on_device(torch.tensor([500])),
        "encoder_hidden_states": on_device(torch.randn(1, TEXT_ROWS, 16, dtype=torch.bfloat16)),
    }


def asked(package, monkeypatch) -> list[tuple[int, int]]:
    """Numbers of queries and keys of each call that the package is asked for from now on."""
    lengths = []
    reason_for_sdpa = package.core.reason_for_sdpa

    def recording_reason(call):
        lengths.append((call.q.shape[1], call.k.shape[1]))
        return reason_for_sdpa(call)

    monkeypatch.setattr(package.core, "reason_for_sdpa", recording_reason)
    return lengths


def test_pinned_cross_attention_never_reaches_the_package(launched, sage_hub, monkeypatch, transformer, inputs):
    lengths = asked(sage_hub, monkeypatch)
    transformer.set_attention_backend("sage_hub")
    transformer(**inputs)
    assert lengths == [(VIDEO_ROWS, VIDEO_ROWS), (VIDEO_ROWS, TEXT_ROWS)] * LAYERS
    lengths.clear()
    before = launched().count(MAIN_KERNEL)
    for block in transformer.blocks:
        block.attn2.set_attention_backend("native")
    transformer(**inputs)
    assert lengths == [(VIDEO_ROWS, VIDEO_ROWS)] * LAYERS
    assert launched().count(MAIN_KERNEL) - before == LAYERS
