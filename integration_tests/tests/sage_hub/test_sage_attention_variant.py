# SPDX-License-Identifier: MIT
"""The ROCm variant of sage-attention on the virtual device: which calls reach the kernel, and what all of them return.

A call that takes the SDPA route must have the bits of SDPA, so those tests allow no difference.
"""

import importlib
import inspect
import itertools
import logging
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel

from aiter_op.ops import sage_attention_contract as contract
from integration_tests.harness.device_under_test import on_device
from integration_tests.harness.launches import MAIN_KERNEL
from integration_tests.harness.variant_delivery import load_variant
from integration_tests.reference.agreement import compare
from integration_tests.reference.attention import attention_float64
from integration_tests.reference.contract import RELATIVE_L2

RELATIVE_L2_BOUND = RELATIVE_L2["normal"]


@pytest.fixture
def package(even_barriers):
    """The package on one gfx1201; nothing is launched yet."""
    return load_variant()


def normal(*shapes: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    """N(0, 1) tensors: one for each shape, or q, k and v of the one shape."""
    generator = torch.Generator().manual_seed(0)
    shapes = shapes if len(shapes) == 3 else shapes * 3
    return [on_device(torch.randn(shape, generator=generator).to(dtype)) for shape in shapes]


def nhd(batch: int = 1, sequence: int = 40, heads: int = 2, head_dim: int = 128, **options) -> list[torch.Tensor]:
    return normal((batch, sequence, heads, head_dim), **options)


def native(q, k, v, **options) -> torch.Tensor:
    """What the native backend gives for [batch, sequence, heads, head_dim]."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    options.setdefault("enable_gqa", q.shape[1] != k.shape[1])
    return F.scaled_dot_product_attention(q, k, v, **options).transpose(1, 2)


def assert_same(out: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal bits. SDPA may give NaN where it takes what it does not compute, such as a negative scale on some GPUs."""
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)


def exact_log_sum_exp(q, k, scale: float, is_causal: bool = False) -> torch.Tensor:
    """float64 [batch, heads, queries] for [batch, sequence, heads, head_dim]."""
    q, k = (x.double().transpose(1, 2) for x in (q, k))
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], dim=1).transpose(-1, -2) * scale
    if is_causal:
        scores.masked_fill_(torch.ones(scores.shape[-2:], device=q.device).triu(1).bool(), -math.inf)
    return torch.logsumexp(scores, dim=-1)


# Public functions


def test_sageattn_has_the_public_signature(package):
    parameters = inspect.signature(package.sageattn).parameters.values()
    assert [(p.name, p.default) for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD] == [
        ("q", inspect.Parameter.empty),
        ("k", inspect.Parameter.empty),
        ("v", inspect.Parameter.empty),
        ("tensor_layout", "HND"),
        ("is_causal", False),
        ("sm_scale", None),
        ("return_lse", False),
    ]
    assert [p.name for p in parameters if p.kind is p.KEYWORD_ONLY] == ["attn_mask", "dropout_p", "enable_gqa"]


@pytest.mark.parametrize("name", ["per_block_int8", "per_warp_int8", "sub_mean", "per_channel_fp8"])
def test_operands_of_cuda_kernels_are_refused_by_name(package, name):
    with pytest.raises(NotImplementedError, match=f"^sage_attention.{name} .* call sageattn, which quantises inside"):
        getattr(package, name)(*nhd()[:2], tensor_layout="NHD")


NOT_A_CALL = {
    "unknown layout": ((), {"tensor_layout": "BSHD"}, ValueError, 'tensor_layout "HND" or "NHD", got \'BSHD\''),
    "no layout": ((), {"tensor_layout": None}, TypeError, "a string as tensor_layout, got NoneType"),
    "unknown argument": ((), {"smooth_k": False}, TypeError, "no argument 'smooth_k'"),
    "two scales": ((), {"scale": 0.5, "sm_scale": 0.5}, TypeError, "got 'sm_scale' twice"),
    "a tensor twice": ((), {"query": 1}, TypeError, "got 'query' twice"),
    "scale that is no number": ((), {"sm_scale": "0.5"}, TypeError, "a number or None as sm_scale, got str"),
    "too many by position": ((None, 0.0, False, None), {}, TypeError, "takes 6 arguments by position, got 7"),
}


@pytest.mark.parametrize("name", NOT_A_CALL)
def test_what_is_no_call_is_refused_in_one_sentence(launched, package, name):
    arguments, keywords, exception, words = NOT_A_CALL[name]
    with pytest.raises(exception, match=words):
        package.sageattn(*nhd(), *arguments, **keywords)
    assert launched() == []


@pytest.mark.parametrize("wrong", [None, [1.0]])
def test_what_is_no_tensor_is_refused_by_name(package, wrong):
    q, k, _ = nhd()
    with pytest.raises(
        TypeError, match=f"needs tensors as q, k and v, got q Tensor, k Tensor, v {type(wrong).__name__}"
    ):
        package.sageattn(q, k, wrong)
    with pytest.raises(TypeError, match="needs q, k and v, and got no k and no v"):
        package.sageattn(q)


def test_three_dimensions_are_refused_where_the_layout_would_mean_nothing(package):
    with pytest.raises(ValueError, match='needs 4-D tensors for tensor_layout "NHD", got q 3-D, k 3-D, v 3-D'):
        package.sageattn(*(x[0] for x in nhd()), tensor_layout="NHD")


# The kernel's route


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 14, 4), (2, 33, 3), (1, 257, 2)])
@pytest.mark.parametrize("scale", [None, 0.05])
def test_supported_calls_run_on_the_kernel(launched, package, shape, scale):
    q, k, v = nhd(*shape)
    out = package.sageattn(q, k, v, tensor_layout="NHD", sm_scale=scale)
    assert launched().count(MAIN_KERNEL) == 1
    assert (out.shape, out.dtype) == (q.shape, q.dtype)
    expected = attention_float64(q, k, v, scale or 128**-0.5)
    assert compare(out, expected).relative_l2 <= RELATIVE_L2_BOUND


def test_default_layout_is_heads_before_sequence(launched, package):
    q, k, v = nhd(batch=2, sequence=33, heads=3)
    expected = package.sageattn(q, k, v, tensor_layout="NHD")
    out = package.sageattn(*(x.transpose(1, 2).contiguous() for x in (q, k, v)))
    assert torch.equal(out, expected.transpose(1, 2))
    assert launched().count(MAIN_KERNEL) == 2


VIEWS = {
    "HND contiguous": ("HND", lambda q, k, v: [x.transpose(1, 2).contiguous() for x in (q, k, v)]),
    "HND views of NHD": ("HND", lambda q, k, v: [x.transpose(1, 2) for x in (q, k, v)]),
    "NHD packed": ("NHD", lambda q, k, v: torch.stack((q, k, v), dim=2).unbind(2)),
    "NHD views of HND": ("NHD", lambda q, k, v: [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_read_in_place(package, monkeypatch, name):
    layout, make = VIEWS[name]
    q, k, v = nhd(sequence=33)
    expected = package.sageattn(q, k, v, tensor_layout="NHD")

    addresses = []
    launch = package.hip_module.launch

    def recording_launch(*tensors_and_scale):
        addresses.extend(tensor.data_ptr() for tensor in tensors_and_scale[:3])
        return launch(*tensors_and_scale)

    monkeypatch.setattr(package.hip_module, "launch", recording_launch)
    views = make(q, k, v)
    out = package.sageattn(*views, tensor_layout=layout)
    assert addresses == [view.data_ptr() for view in views]
    assert torch.equal(out if layout == "NHD" else out.transpose(1, 2), expected)


def test_no_grad_lets_parameters_reach_the_kernel(launched, package):
    q, k, v = nhd()
    with torch.no_grad():
        package.sageattn(q.requires_grad_(), k, v, tensor_layout="NHD")
    assert launched().count(MAIN_KERNEL) == 1


# SDPA's route

TO_SDPA = {
    "is_causal is set": (lambda: nhd(), {"is_causal": True}),
    "not all tensors are torch.bfloat16": (lambda: nhd(dtype=torch.float16), {}),
    "head_dim is not 128": (lambda: nhd(head_dim=64), {}),
    "the shapes of q, k and v differ": (lambda: normal((1, 9, 4, 128), (1, 40, 2, 128), (1, 40, 2, 128)), {}),
    "the tensors are empty or the sequence is too long": (lambda: nhd(batch=0), {}),
    "the stride of the last dimension is not 1": (lambda: [x[..., ::2] for x in nhd(head_dim=256)], {}),
    "a gradient is required": (lambda: [x.requires_grad_() for x in nhd()], {}),
    "sm_scale is not finite": (lambda: nhd(), {"sm_scale": math.inf}),
}


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("reason", TO_SDPA)
def test_other_calls_have_the_bits_of_sdpa_and_launch_nothing(launched, package, caplog, reason, layout):
    make, options = TO_SDPA[reason]
    q, k, v = make()
    expected = native(q, k, v, is_causal=options.get("is_causal", False), scale=options.get("sm_scale"))
    with caplog.at_level(logging.DEBUG, "sage_attention"):
        if layout == "NHD":
            out = package.sageattn(q, k, v, tensor_layout="NHD", **options)
        else:
            out = package.sageattn(*(x.transpose(1, 2) for x in (q, k, v)), **options).transpose(1, 2)
    assert_same(out, expected)
    assert caplog.messages == [f"sageattn: SDPA, because {reason}"]
    assert launched() == []


@pytest.mark.parametrize("architecture", ["gfx1100", "gfx1200", "gfx942:sramecc+:xnack-"])
def test_other_architectures_get_sdpa(virtual_gpu, package, architecture):
    virtual_gpu.configure(arch=architecture)
    q, k, v = nhd()
    assert torch.equal(package.sageattn(q, k, v, tensor_layout="NHD"), native(q, k, v))
    assert virtual_gpu.records() == []


def test_kernel_is_used_on_gfx1201_with_feature_suffixes(virtual_gpu, package):
    virtual_gpu.configure(arch="gfx1201:sramecc+:xnack-")
    package.sageattn(*nhd(), tensor_layout="NHD")
    assert virtual_gpu.launches(MAIN_KERNEL) == 1


def test_gradients_are_those_of_sdpa(package):
    inputs = [x.requires_grad_() for x in nhd(dtype=torch.float32)]
    gradient = torch.ones_like(inputs[0])
    # Fused backwards of some GPUs add in no fixed order.
    with sdpa_kernel(SDPBackend.MATH):
        actual = torch.autograd.grad(package.sageattn(*inputs, tensor_layout="NHD"), inputs, gradient)
        expected = torch.autograd.grad(native(*inputs), inputs, gradient)
    assert all(torch.equal(a, e) for a, e in zip(actual, expected, strict=True))


def test_mixed_dtypes_give_what_the_native_backend_gives(package):
    q, k, v = nhd(dtype=torch.float32)
    v = v.bfloat16()
    with torch.autocast(q.device.type, torch.bfloat16):
        assert torch.equal(package.sageattn(q, k, v, tensor_layout="NHD"), native(q, k, v))
    with pytest.raises(RuntimeError, match="same dtype"):
        package.sageattn(q, k, v, tensor_layout="NHD")


def test_the_kernel_takes_exactly_what_its_contract_accepts(virtual_gpu, package):
    # Meta tensors, which count as the virtual device's: the longest sequence fits nowhere.
    longest = contract.MAX_SEQUENCE
    variations = {
        "dtype": (torch.bfloat16, torch.float16, torch.float32),
        "batch": (1, 0),
        "queries and keys": ((5, 5), (5, 7), (0, 0), (longest, longest), (longest + 1, longest + 1)),
        "heads": ((2, 2), (2, 1), (0, 0)),
        "head_dim": (128, 64),
        "stride": (1, 2),
        "requires_grad": (False, True),
        "sm_scale": (None, 0.0, 2, contract.MAX_SOFTMAX_SCALE, -1.0, math.inf, math.nan),
    }
    taken = 0
    for case in itertools.product(*variations.values()):
        dtype, batch, (queries, keys), (heads, key_heads), head_dim, stride, requires_grad, sm_scale = case
        q = torch.zeros(batch, queries, heads, head_dim, dtype=dtype, device="meta", requires_grad=requires_grad)
        k = torch.zeros(batch, keys, key_heads, head_dim * stride, dtype=dtype, device="meta")[..., ::stride]
        try:
            contract.check_inputs(q, k, k)
            contract.check_softmax_scale(contract.resolve_softmax_scale(sm_scale))
            accepted = True
        except (TypeError, ValueError):
            accepted = False
        scale = None if sm_scale is None else float(sm_scale)
        reason = package.core.reason_for_sdpa(package.core.Call(q, k, k, "NHD", sm_scale=scale))
        assert (reason is None) == accepted, (case, reason)
        taken += accepted
    assert taken == 2 * 5  # lengths, scales


# In the place of torch.nn.functional.scaled_dot_product_attention


def test_stand_in_for_sdpa_does_not_call_itself(launched, package, monkeypatch):
    q, k, v = (x.transpose(1, 2) for x in nhd(head_dim=64))
    expected = F.scaled_dot_product_attention(q, k, v)
    monkeypatch.setattr(F, "scaled_dot_product_attention", package.sageattn)
    keywords = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False}
    assert torch.equal(F.scaled_dot_product_attention(q, k, v, **keywords), expected)
    assert launched() == []
    F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in nhd()), **keywords)
    assert launched().count(MAIN_KERNEL) == 1


def test_sdpa_replaced_before_the_package_is_loaded_is_not_called(package, monkeypatch):
    def replacement(*args, **kwargs):
        raise AssertionError("sageattn has called what stands in the place of SDPA")

    q, k, v = nhd(head_dim=64)
    expected = native(q, k, v)
    monkeypatch.setattr(F, "scaled_dot_product_attention", replacement)
    importlib.reload(package.core)
    assert torch.equal(package.core.sageattn(q, k, v, tensor_layout="NHD"), expected)


def hnd(**options) -> list[torch.Tensor]:
    return [x.transpose(1, 2) for x in nhd(**options)]


def bool_mask() -> torch.Tensor:
    """[40, 40], each row with at least one key."""
    return on_device(torch.rand(40, 40, generator=torch.Generator().manual_seed(1)) < 0.5).fill_diagonal_(True)


# Arguments after q, k and v as others pass them to SDPA, and how often that reaches the kernel.
SDPA_CALLS = {
    "nothing": (lambda: ((), {}), 1),
    "positional, nothing asked for": (lambda: ((None, 0.0, False), {}), 1),
    "scale by keyword": (lambda: ((None,), {"scale": 0.05}), 1),
    "enable_gqa with equal heads": (lambda: ((), {"enable_gqa": True}), 1),
    "bool mask by position": (lambda: ((bool_mask(), 0.0, False), {"scale": None}), 0),
    "float mask by keyword": (lambda: ((), {"attn_mask": bool_mask().bfloat16()}), 0),
    "causal by position": (lambda: ((None, 0.0, True), {}), 0),
}


@pytest.mark.parametrize("name", SDPA_CALLS)
def test_arguments_of_sdpa_mean_what_they_mean_to_sdpa(launched, package, name):
    make, launches = SDPA_CALLS[name]
    arguments, keywords = make()
    tensors = hnd()
    out = package.sageattn(*tensors, *arguments, **keywords)
    expected = F.scaled_dot_product_attention(*tensors, *arguments, **keywords)
    assert launched().count(MAIN_KERNEL) == launches
    assert compare(out, expected).relative_l2 <= (RELATIVE_L2_BOUND if launches else 0.0)


def test_tensors_by_sdpas_names(launched, package):
    q, k, v = hnd()
    assert torch.equal(package.sageattn(query=q, key=k, value=v), package.sageattn(q, k, v))
    assert launched().count(MAIN_KERNEL) == 2


def test_dropout_drops_what_sdpa_drops(launched, package):
    tensors = hnd()
    outputs = []
    for attention in (package.sageattn, F.scaled_dot_product_attention):
        torch.manual_seed(0)
        outputs.append(attention(*tensors, dropout_p=0.5))
    assert torch.equal(*outputs) and launched() == []
    assert not torch.equal(outputs[0], F.scaled_dot_product_attention(*tensors))


@pytest.mark.parametrize("dimensions", [3, 5])
def test_other_numbers_of_dimensions_have_the_bits_of_sdpa(launched, package, dimensions):
    tensors = [x[0] if dimensions == 3 else x[None] for x in hnd()]
    assert torch.equal(package.sageattn(*tensors), F.scaled_dot_product_attention(*tensors))
    assert launched() == []


def test_multihead_attention_runs_on_it(package, monkeypatch):
    layer = on_device(torch.nn.MultiheadAttention(64, 4, batch_first=True).eval())
    x = on_device(torch.randn(2, 9, 64, generator=torch.Generator().manual_seed(0)))
    padding = on_device(torch.zeros(2, 9, dtype=torch.bool))
    padding[1, 5:] = True
    expected = layer(x, x, x, key_padding_mask=padding, need_weights=False)[0]
    calls = []

    def counted(*args, **kwargs):
        calls.append(args)
        return package.sageattn(*args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        out = layer(x, x, x, key_padding_mask=padding, need_weights=False)[0]
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    assert len(calls) == 1
    torch.testing.assert_close(out, expected)


SCALES = {
    "NumPy float32": lambda: np.float32(0.05),
    "NumPy float64": lambda: np.float64(0.05),
    "tensor": lambda: torch.tensor(0.05),
    "negative": lambda: -0.05,
    "integer": lambda: 1,
}


@pytest.mark.parametrize("name", SCALES)
def test_every_scale_that_sdpa_takes_reaches_the_kernel(launched, package, name):
    tensors = hnd()
    scale = SCALES[name]()
    out = package.sageattn(*tensors, sm_scale=scale)
    assert launched().count(MAIN_KERNEL) == 1
    expected = attention_float64(*(x.transpose(1, 2) for x in tensors), float(scale)).transpose(1, 2)
    assert compare(out, expected).relative_l2 <= (2 * RELATIVE_L2_BOUND if name == "integer" else RELATIVE_L2_BOUND)


def test_a_scale_computed_with_numpy_inside_a_compiled_function(launched, package, fresh_compiler):
    def attention(q, k, v):
        return package.sageattn(q, k, v, sm_scale=1 / np.sqrt(q.shape[-1]))

    tensors = hnd()
    expected = attention(*tensors)
    assert torch.equal(torch.compile(attention, fullgraph=True, backend="aot_eager")(*tensors), expected)
    assert launched().count(MAIN_KERNEL) == 2


# Derivatives, exported graphs, sharded tensors


def test_forward_mode_derivatives_are_those_of_sdpa(launched, package):
    q, k, v = nhd(dtype=torch.float32)
    with sdpa_kernel(SDPBackend.MATH):  # the only one that has them
        actual = torch.func.jvp(lambda x: package.sageattn(x, k, v, tensor_layout="NHD"), (q,), (k,))
        expected = torch.func.jvp(lambda x: native(x, k, v), (q,), (k,))
    assert all(torch.equal(a, e) for a, e in zip(actual, expected, strict=True))
    assert actual[1].norm() > 0 and launched() == []
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(q.bfloat16(), k.bfloat16())
        assert (
            package.core.reason_for_sdpa(package.core.Call(dual, dual, dual)) == "forward-mode derivatives are computed"
        )


class Attention(torch.nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, q, k, v):
        return self.attention(q, k, v, tensor_layout="NHD")


@pytest.mark.parametrize("strict", [False, True])
def test_a_graph_exported_with_an_open_length_runs_at_other_lengths(launched, package, fresh_compiler, strict):
    sequence = {1: torch.export.Dim("sequence")}
    exported = torch.export.export(
        Attention(package.sageattn), tuple(nhd()), dynamic_shapes=(sequence,) * 3, strict=strict
    )
    tensors = nhd(sequence=65)
    assert torch.equal(exported.module()(*tensors), package.sageattn(*tensors, tensor_layout="NHD"))
    assert launched().count(MAIN_KERNEL) == 2


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("dimension, kept", [(0, 0), (2, 2), (1, None), (3, None)])
def test_sharded_tensors_stay_sharded_over_batch_and_heads(
    launched, package, one_rank_mesh, fresh_compiler, dimension, kept, is_compiled
):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    tensors = nhd(batch=2)
    sharded = [distribute_tensor(tensor, one_rank_mesh, [Shard(dimension)]) for tensor in tensors]
    attention = package.sageattn
    if is_compiled:
        attention = torch.compile(attention, fullgraph=True, backend="aot_eager")
    out = attention(*sharded, tensor_layout="NHD")
    assert out.placements == ((Replicate() if kept is None else Shard(kept)),)
    assert torch.equal(out.full_tensor(), package.sageattn(*tensors, tensor_layout="NHD"))
    assert launched().count(MAIN_KERNEL) == 2


# Log-sum-exp

# A float32 dot product of D terms is off by at most D 2^-24 sum(|q k|), here 128 * 6e-8 * 0.1 * 120 at most; a
# logsumexp is off by no more than its worst score, and by a rounding of the sum and of the result besides.
LSE_BOUND = 2e-4

LSE_CASES = {
    "kernel shape": (lambda: nhd(), False),
    "causal": (lambda: nhd(dtype=torch.float16), True),
    "causal with more keys": (lambda: normal((1, 9, 2, 64), (1, 23, 2, 64), (1, 23, 2, 64)), True),
    "causal with more queries": (lambda: normal((1, 23, 2, 64), (1, 9, 2, 64), (1, 9, 2, 64)), True),
    "grouped": (lambda: normal((2, 9, 6, 64), (2, 23, 2, 64), (2, 23, 2, 64), dtype=torch.float32), False),
}


@pytest.mark.parametrize("scale", [None, 0.03])
@pytest.mark.parametrize("case", LSE_CASES)
@pytest.mark.parametrize("scores_at_a_time", [2**25, 200])
def test_lse_is_the_natural_log_sum_exp(launched, package, monkeypatch, case, scale, scores_at_a_time):
    monkeypatch.setattr(package.log_sum_exp, "_SCORES_AT_A_TIME", scores_at_a_time)
    make, is_causal = LSE_CASES[case]
    q, k, v = make()
    keywords = {"tensor_layout": "NHD", "is_causal": is_causal, "sm_scale": scale}
    out, lse = package.sageattn(q, k, v, return_lse=True, **keywords)
    assert torch.equal(out, native(q, k, v, is_causal=is_causal, scale=scale))
    assert (lse.shape, lse.dtype) == ((q.shape[0], q.shape[2], q.shape[1]), torch.float32)
    expected = exact_log_sum_exp(q, k, scale or q.shape[-1] ** -0.5, is_causal)
    assert (lse - expected).abs().max() <= LSE_BOUND
    assert launched() == []


def test_lse_has_the_same_shape_and_bits_in_both_layouts(package):
    q, k, v = nhd(batch=2, sequence=9, heads=3)
    _, expected = package.sageattn(q, k, v, tensor_layout="NHD", return_lse=True)
    out, lse = package.sageattn(*(x.transpose(1, 2) for x in (q, k, v)), return_lse=True)
    assert out.shape == (2, 3, 9, 128)
    assert torch.equal(lse, expected)


def test_lse_does_not_overflow(package):
    q, k, v = (100 * x for x in nhd())
    _, lse = package.sageattn(q, k, v, tensor_layout="NHD", return_lse=True)
    # Scores near 1e4 times larger than those of LSE_BOUND.
    assert (lse - exact_log_sum_exp(q, k, 128**-0.5)).abs().max() <= 1e4 * LSE_BOUND


def test_autocast_leaves_the_lse_in_float32(package):
    q, k, v = nhd(dtype=torch.float32)
    with torch.autocast(q.device.type, torch.bfloat16):
        _, lse = package.sageattn(q, k, v, tensor_layout="NHD", return_lse=True)
    assert (lse - exact_log_sum_exp(q, k, 128**-0.5)).abs().max() <= LSE_BOUND


def test_lse_joins_attention_over_two_halves_of_the_keys(package):
    # What ring attention does with it.
    q, k, v = nhd(sequence=64, dtype=torch.float32)
    halves = zip(k.chunk(2, dim=1), v.chunk(2, dim=1), strict=True)
    parts = [package.sageattn(q, *half, tensor_layout="NHD", return_lse=True) for half in halves]
    outs, lses = zip(*parts, strict=True)
    weights = torch.softmax(torch.stack(lses), dim=0).transpose(2, 3)[..., None]
    joined = (weights * torch.stack(outs)).sum(0)
    # Weights are off by the lse's error times the weight, at most LSE_BOUND / 2 each; outputs are below 4.
    assert (joined - attention_float64(q, k, v, 128**-0.5)).abs().max() <= 4 * LSE_BOUND


def test_lse_carries_no_gradient_and_the_output_does(package):
    out, lse = package.sageattn(*(x.requires_grad_() for x in nhd()), tensor_layout="NHD", return_lse=True)
    assert out.requires_grad and not lse.requires_grad


def test_lse_op_passes_opcheck(package):
    q, k, _ = (x.transpose(1, 2) for x in normal((1, 9, 4, 64), (1, 23, 2, 64), (1, 23, 2, 64)))
    mask = on_device(torch.ones(9, 23, dtype=torch.bool))
    for attn_mask, is_causal in ((None, True), (mask, False)):
        torch.library.opcheck(package.log_sum_exp._log_sum_exp, (q, k, attn_mask, is_causal, 0.1))


@pytest.mark.parametrize("scores_at_a_time", [2**25, 200])
@pytest.mark.parametrize("shape", [(9, 23), (2, 1, 9, 23), (2, 1, 1, 23), (1, 6, 9, 23)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_lse_counts_what_the_mask_lets_through(package, monkeypatch, scores_at_a_time, shape, dtype):
    monkeypatch.setattr(package.log_sum_exp, "_SCORES_AT_A_TIME", scores_at_a_time)
    q, k, v = normal((2, 6, 9, 64), (2, 2, 23, 64), (2, 2, 23, 64), dtype=torch.float32)
    seen = torch.rand(shape, generator=torch.Generator().manual_seed(2)) < 0.5
    seen[..., 0] = True
    mask = seen if dtype == torch.bool else torch.where(seen, 0.5, -torch.inf)
    out, lse = package.sageattn(q, k, v, attn_mask=on_device(mask), return_lse=True)
    assert torch.equal(out, F.scaled_dot_product_attention(q, k, v, on_device(mask), enable_gqa=True))
    scores = q.double() @ k.double().repeat_interleave(3, dim=1).transpose(-1, -2) / 8
    added = torch.where(seen, 0.0 if dtype == torch.bool else 0.5, -torch.inf)
    assert (lse - torch.logsumexp(scores + on_device(added), dim=-1)).abs().max() <= LSE_BOUND


def test_lse_of_no_heads_is_empty(package):
    out, lse = package.sageattn(*nhd(heads=0), tensor_layout="NHD", return_lse=True)
    assert out.shape == (1, 40, 0, 128) and lse.shape == (1, 0, 40)


# Reports of the route, and torch.compile


def test_each_eager_call_is_reported(package, caplog):
    with caplog.at_level(logging.DEBUG, "sage_attention"):
        for _ in range(2):
            package.sageattn(*nhd(), tensor_layout="NHD")
        package.sageattn(*nhd(head_dim=64), tensor_layout="NHD")
    assert caplog.messages == 2 * ["sageattn: gfx1201 kernel"] + ["sageattn: SDPA, because head_dim is not 128"]


def test_each_route_is_reported_once_at_info(package, caplog, monkeypatch):
    monkeypatch.setattr(package.core, "_reported", set())
    with caplog.at_level(logging.INFO, "sage_attention"):
        for head_dim in (128, 64, 128, 64):
            package.sageattn(*nhd(head_dim=head_dim), tensor_layout="NHD")
    assert caplog.messages == ["sageattn: gfx1201 kernel", "sageattn: SDPA, because head_dim is not 128"]


MACHINES = {
    "the card": ({}, None),
    "the card beside another GPU": ({"devices": 2}, None),
    "another card": ({"arch": "gfx1100"}, "this machine has no gfx1201 GPU (found gfx1100)."),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_machine_without_the_card_is_told_so_once_when_the_package_is_loaded(virtual_gpu, package, caplog, machine):
    configuration, found = MACHINES[machine]
    virtual_gpu.configure(**configuration)
    package.core.warn_unless_there_is_a_gpu_for_the_kernel()
    expected = [] if found is None else [f"sageattn: all calls run on PyTorch's attention, because {found}"]
    assert [(record.levelname, record.message) for record in caplog.records] == [("WARNING", text) for text in expected]


def test_an_architecture_that_was_replaced_by_hand_is_named(virtual_gpu, package, caplog, monkeypatch):
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "11.0.0")
    virtual_gpu.configure(arch="gfx1100")
    package.core.warn_unless_there_is_a_gpu_for_the_kernel()
    assert "HSA_OVERRIDE_GFX_VERSION is set to 11.0.0" in caplog.text


def test_a_torch_without_rocm_is_told_so(package, caplog, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", None)
    package.core.warn_unless_there_is_a_gpu_for_the_kernel()
    assert f"this PyTorch ({torch.__version__}) is not built for ROCm" in caplog.text


COMPILED = {
    "kernel": (lambda: nhd(), {}, 1),
    "SDPA": (lambda: nhd(head_dim=64), {}, 0),
    "causal": (lambda: nhd(), {"is_causal": True}, 0),
}


@pytest.mark.parametrize("layout", ["NHD", "HND"])
@pytest.mark.parametrize("case", COMPILED)
def test_fullgraph_compilation_gives_the_bits_and_the_route_of_the_eager_call(
    launched, package, fresh_compiler, caplog, case, layout
):
    make, options, launches = COMPILED[case]
    inputs = make()
    # Without inductor: it would need a C++ compiler, and the graph is what is tested.
    compiled = torch.compile(package.sageattn, fullgraph=True, backend="aot_eager")
    expected = package.sageattn(*inputs, tensor_layout=layout, **options)
    eager_launches = len(launched())
    with caplog.at_level(logging.DEBUG, "sage_attention"):
        for _ in range(2):
            assert torch.equal(compiled(*inputs, tensor_layout=layout, **options), expected)
    assert launched()[eager_launches:].count(MAIN_KERNEL) == 2 * launches
    assert len([message for message in caplog.messages if message.startswith("sageattn: ")]) == 1


def test_compiled_lse_equals_the_eager_one(package, fresh_compiler):
    compiled = torch.compile(package.sageattn, fullgraph=True, backend="aot_eager")
    inputs, options = nhd(), {"tensor_layout": "NHD", "return_lse": True}
    for actual, expected in zip(compiled(*inputs, **options), package.sageattn(*inputs, **options), strict=True):
        assert torch.equal(actual, expected)


def test_one_dynamic_graph_serves_several_lengths_and_another_serves_sdpa(launched, package, count_graphs):
    compiled = torch.compile(package.sageattn, fullgraph=True, dynamic=True, backend=count_graphs)
    for sequence in (33, 40, 65):
        inputs = nhd(sequence=sequence)
        assert torch.equal(compiled(*inputs, tensor_layout="NHD"), package.sageattn(*inputs, tensor_layout="NHD"))
    assert len(count_graphs.graphs) == 1 and launched().count(MAIN_KERNEL) == 6
    for sequence in (33, 40):
        inputs = normal((1, sequence, 4, 64), (1, 23, 2, 64), (1, 23, 2, 64))
        assert torch.equal(compiled(*inputs, tensor_layout="NHD"), native(*inputs))
    assert len(count_graphs.graphs) == 2 and launched().count(MAIN_KERNEL) == 6


def test_compiled_calls_follow_a_changing_scale_to_either_route(launched, package, fresh_compiler):
    compiled = torch.compile(package.sageattn, fullgraph=True, dynamic=True, backend="aot_eager")
    inputs = nhd()
    for scale in (0.1, 0.2, 0.3, -0.1, math.inf):
        options = {"tensor_layout": "NHD", "sm_scale": scale}
        assert_same(compiled(*inputs, **options), package.sageattn(*inputs, **options))
    assert launched().count(MAIN_KERNEL) == 8
