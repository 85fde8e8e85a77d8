# SPDX-License-Identifier: MIT
"""The contract's refusals, word for word, and what it lets through. Needs no device."""

import math

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

from aiter_op.ops import sage_attention_contract as contract

SHAPE = (1, 5, 2, 128)


def tensor(*shape: int, dtype: torch.dtype = torch.bfloat16, device: str = "cpu") -> torch.Tensor:
    return torch.zeros(shape or SHAPE, dtype=dtype, device=device)


def last_stride_two() -> torch.Tensor:
    return tensor(1, 5, 2, 256)[..., ::2]


REFUSED_INPUTS = {
    "three_dimensions": (
        lambda: (tensor(5, 2, 128), tensor(), tensor()),
        ValueError,
        "gfx1201_sage_attention needs 4-D tensors [batch, sequence, heads, 128], got q 3-D, k 4-D, v 4-D: "
        "reshape them.",
    ),
    "dtype": (
        lambda: (tensor(dtype=torch.float32), tensor(dtype=torch.float32), tensor()),
        TypeError,
        "gfx1201_sage_attention needs bfloat16, got q float32, k float32, v bfloat16: "
        "cast all three with .to(torch.bfloat16).",
    ),
    "all_float16": (
        lambda: tuple(tensor(dtype=torch.float16) for _ in range(3)),
        TypeError,
        "gfx1201_sage_attention needs bfloat16, got q float16, k float16, v float16: "
        "cast all three with .to(torch.bfloat16).",
    ),
    "head_dim": (
        lambda: tuple(tensor(1, 5, 2, 64) for _ in range(3)),
        ValueError,
        "gfx1201_sage_attention needs head_dim 128, got q 64, k 64, v 64: use another attention for other sizes.",
    ),
    "cross_attention": (
        lambda: (tensor(), tensor(1, 7, 2, 128), tensor(1, 7, 2, 128)),
        ValueError,
        "gfx1201_sage_attention needs equal shapes, got q [1, 5, 2, 128], k [1, 7, 2, 128], v [1, 7, 2, 128]: "
        "use another attention for cross-attention and grouped-query attention.",
    ),
    "grouped_query": (
        lambda: (tensor(), tensor(1, 5, 1, 128), tensor(1, 5, 1, 128)),
        ValueError,
        "gfx1201_sage_attention needs equal shapes, got q [1, 5, 2, 128], k [1, 5, 1, 128], v [1, 5, 1, 128]: "
        "use another attention for cross-attention and grouped-query attention.",
    ),
    "empty_batch": (
        lambda: tuple(tensor(0, 5, 2, 128) for _ in range(3)),
        ValueError,
        "gfx1201_sage_attention needs batch, sequence and heads of at least 1, got [0, 5, 2, 128]: "
        "skip the call for empty tensors.",
    ),
    "empty_sequence": (
        lambda: tuple(tensor(1, 0, 2, 128) for _ in range(3)),
        ValueError,
        "gfx1201_sage_attention needs batch, sequence and heads of at least 1, got [1, 0, 2, 128]: "
        "skip the call for empty tensors.",
    ),
    "sequence_beyond_a_grid": (
        lambda: tuple(tensor(1, 1, 1, 128).expand(1, 2**32 - 255, 1, 128) for _ in range(3)),
        ValueError,
        "gfx1201_sage_attention needs a sequence of at most 4294967040, got 4294967041: split the sequence.",
    ),
    "last_stride": (
        lambda: (tensor(), last_stride_two(), tensor()),
        ValueError,
        "gfx1201_sage_attention needs stride 1 in the last dimension, got q 1, k 2, v 1: "
        "call .contiguous() on the tensor.",
    ),
    "devices": (
        lambda: (tensor(), tensor(device="meta"), tensor()),
        ValueError,
        "gfx1201_sage_attention needs q, k and v on one device, got q cpu, k meta, v cpu: move them with .to(device).",
    ),
    "requires_grad": (
        lambda: (tensor(), tensor().requires_grad_(), tensor().requires_grad_()),
        ValueError,
        "gfx1201_sage_attention computes no gradients, but grad is enabled and required by k, v: "
        "call it under torch.no_grad() or torch.inference_mode().",
    ),
}


@pytest.mark.parametrize("name", REFUSED_INPUTS)
def test_bad_inputs_are_refused_in_one_sentence(name):
    make, exception, sentence = REFUSED_INPUTS[name]
    with pytest.raises(exception) as refusal:
        contract.check_inputs(*make())
    assert str(refusal.value) == sentence


@pytest.mark.parametrize(
    "inputs",
    [
        lambda: tensor(1, 5, 3, 2, 128).unbind(2),
        lambda: tuple(tensor(2, 2, 5, 128).transpose(1, 2) for _ in range(3)),
        lambda: tuple(tensor(1, 1, 1, 128).expand(3, 5, 2, 128) for _ in range(3)),
        lambda: tuple(tensor(7, 1, 1, 128).as_strided((1, 1, 1, 128), (3, 99, 5, 1), 128) for _ in range(3)),
        lambda: tuple(tensor(1, 1, 1, 128).expand(1, 2**32 - 256, 1, 128) for _ in range(3)),
    ],
    ids=["packed_qkv", "transposed", "expanded", "degenerate_strides", "longest_sequence"],
)
def test_strided_views_are_accepted(inputs):
    contract.check_inputs(*inputs())


def test_tensors_that_require_grad_are_accepted_while_grad_is_off():
    q = tensor().requires_grad_()
    with torch.no_grad():
        contract.check_inputs(q, q, q)
    with torch.inference_mode():
        contract.check_inputs(q, q, q)


def test_default_scale_is_one_over_root_head_dim():
    assert contract.resolve_softmax_scale(None) == 1 / math.sqrt(128)


@pytest.mark.parametrize(
    "scale", [0, 0.0, 1, 0.5, -0.5, np.float32(0.5), np.float64(0.5), np.int64(2), torch.tensor(0.5)]
)
def test_every_kind_of_number_is_a_scale(scale):
    resolved = contract.resolve_softmax_scale(scale)
    assert type(resolved) is float and resolved == float(scale)


@pytest.mark.parametrize("scale", [0.0, -0.5, torch.finfo(torch.float32).max, -torch.finfo(torch.float32).max])
def test_finite_scales_of_either_sign_are_accepted(scale):
    contract.check_softmax_scale(scale)


@pytest.mark.parametrize("scale", [math.inf, -math.inf, math.nan, 1e39])
def test_non_finite_scales_are_refused(scale):
    with pytest.raises(ValueError) as refusal:
        contract.check_softmax_scale(scale)
    assert str(refusal.value) == (
        "gfx1201_sage_attention needs a softmax_scale that is finite in float32, "
        f"got {scale}: check what it was computed from."
    )


@pytest.mark.parametrize("scale", ["0.5", [0.5], 1j])
def test_what_is_no_number_is_refused_as_a_scale(scale):
    with pytest.raises(TypeError) as refusal:
        contract.resolve_softmax_scale(scale)
    assert str(refusal.value) == (
        "gfx1201_sage_attention needs softmax_scale as a number or None, "
        f"got {type(scale).__name__}: convert it with float()."
    )


@pytest.mark.parametrize("name", "qkv")
def test_forward_mode_derivatives_are_refused(name):
    with forward_ad.dual_level():
        tensors = {key: tensor() for key in "qkv"}
        tensors[name] = forward_ad.make_dual(tensors[name], tensor())
        with pytest.raises(ValueError) as refusal:
            contract.check_inputs(*tensors.values())
    assert str(refusal.value) == (
        f"gfx1201_sage_attention computes no forward-mode derivatives, but a tangent is carried by {name}: "
        "use another attention under torch.func.jvp and dual_level."
    )


def test_an_architecture_that_was_replaced_by_hand_is_named(monkeypatch):
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "11.5.1")
    with pytest.raises(RuntimeError) as refusal:
        contract.check_device("7.2.53211", "cuda", "gfx1151")
    assert str(refusal.value) == (
        "gfx1201_sage_attention needs a gfx1201 GPU (RDNA4), got gfx1151: "
        "unset HSA_OVERRIDE_GFX_VERSION, which is 11.5.1 and replaces the GPU's own architecture."
    )


@pytest.mark.parametrize("architecture", ["gfx1201", "gfx1201:sramecc+:xnack-"])
def test_gfx1201_is_accepted_with_and_without_feature_suffixes(architecture):
    contract.check_device("7.2.53211", "cuda", architecture)


REFUSED_DEVICES = {
    "not_rocm": (
        (None, "cuda", "gfx1201"),
        RuntimeError,
        f"gfx1201_sage_attention needs PyTorch built for ROCm, got {torch.__version__}: "
        "install a ROCm build of PyTorch or use another attention.",
    ),
    "cpu_tensors": (
        ("7.2.53211", "cpu", ""),
        ValueError,
        'gfx1201_sage_attention needs tensors on a ROCm device, got cpu tensors: move them with .to("cuda").',
    ),
    "sibling": (
        ("7.2.53211", "cuda", "gfx1200"),
        RuntimeError,
        "gfx1201_sage_attention needs a gfx1201 GPU (RDNA4), got gfx1200: use another attention on this device.",
    ),
    "instinct_with_features": (
        ("7.2.53211", "cuda", "gfx942:sramecc+:xnack-"),
        RuntimeError,
        "gfx1201_sage_attention needs a gfx1201 GPU (RDNA4), got gfx942: use another attention on this device.",
    ),
    "longer_name": (
        ("7.2.53211", "cuda", "gfx12010"),
        RuntimeError,
        "gfx1201_sage_attention needs a gfx1201 GPU (RDNA4), got gfx12010: use another attention on this device.",
    ),
}


@pytest.mark.parametrize("name", REFUSED_DEVICES)
def test_other_machines_are_refused_in_one_sentence(name):
    arguments, exception, sentence = REFUSED_DEVICES[name]
    with pytest.raises(exception) as refusal:
        contract.check_device(*arguments)
    assert str(refusal.value) == sentence


def test_output_is_contiguous_whatever_the_strides_of_q():
    q = tensor(2, 2, 5, 128).transpose(1, 2)
    out = contract.empty_output(q)
    assert out.shape == q.shape and out.dtype == torch.bfloat16 and out.is_contiguous()
