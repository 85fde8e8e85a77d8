# SPDX-License-Identifier: MIT
"""The ROCm variant of sage-attention on the virtual device: which calls reach the kernel, and what all of them return.

A call that takes the SDPA route must have the bits of SDPA, so those tests allow no difference.
"""

import inspect
import itertools
import logging
import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from aiter_op.ops import sage_attention_contract as contract
from integration_tests.harness.device_under_test import on_device
from integration_tests.harness.launches import MAIN_KERNEL
from integration_tests.harness.variant_delivery import load_variant
from integration_tests.reference.agreement import compare
from integration_tests.reference.attention import attention_float64

# The kernel's contract: relative error of its output against float64 on N(0, 1) inputs (docs/algorithm.md).
RELATIVE_L2_BOUND = 0.040


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
    assert [(p.name, p.default) for p in parameters if p.kind is not p.VAR_KEYWORD] == [
        ("q", inspect.Parameter.empty),
        ("k", inspect.Parameter.empty),
        ("v", inspect.Parameter.empty),
        ("tensor_layout", "HND"),
        ("is_causal", False),
        ("sm_scale", None),
        ("return_lse", False),
    ]
    assert [p.name for p in parameters if p.kind is p.VAR_KEYWORD] == ["kwargs"]


@pytest.mark.parametrize("name", ["per_block_int8", "per_warp_int8", "sub_mean", "per_channel_fp8"])
def test_operands_of_cuda_kernels_are_refused_by_name(package, name):
    with pytest.raises(NotImplementedError, match=f"^sage_attention.{name} .* call sageattn, which quantises inside"):
        getattr(package, name)(*nhd()[:2], tensor_layout="NHD")


@pytest.mark.parametrize(
    "keywords, exception, words",
    [
        ({"tensor_layout": "BSHD"}, ValueError, 'tensor_layout "HND" or "NHD", got \'BSHD\''),
        ({"tensor_layout": None}, TypeError, "tensor_layout as fourth argument, got NoneType: attn_mask"),
        ({"attn_mask": torch.ones(40, 40)}, ValueError, "no attn_mask"),
        ({"dropout_p": 0.1}, ValueError, "no dropout"),
        ({"scale": 0.5}, ValueError, "sm_scale: pass it under that name"),
        ({"smooth_k": False}, TypeError, "no argument 'smooth_k'"),
    ],
)
def test_what_would_be_ignored_is_refused(launched, package, keywords, exception, words):
    with pytest.raises(exception, match=words):
        package.sageattn(*nhd(), **keywords)
    assert launched() == []


def test_tensors_that_are_not_4_d_are_refused(package):
    with pytest.raises(ValueError, match="needs 4-D tensors, got q 3-D, k 3-D, v 3-D"):
        package.sageattn(*(x[0] for x in nhd()))


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
    "sm_scale is negative or not finite": (lambda: nhd(), {"sm_scale": -0.1}),
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
            contract.resolve_softmax_scale(sm_scale)
            accepted = True
        except (TypeError, ValueError):
            accepted = False
        reason = package.core.reason_for_sdpa(q, k, k, False, sm_scale, False)
        assert (reason is None) == accepted, (case, reason)
        taken += accepted
    assert taken == 2 * 4  # lengths, scales


def test_stand_in_for_sdpa_does_not_call_itself(launched, package, monkeypatch):
    q, k, v = (x.transpose(1, 2) for x in nhd(head_dim=64))
    expected = F.scaled_dot_product_attention(q, k, v)
    monkeypatch.setattr(F, "scaled_dot_product_attention", package.sageattn)
    keywords = {"attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": None, "enable_gqa": False}
    assert torch.equal(F.scaled_dot_product_attention(q, k, v, **keywords), expected)
    assert launched() == []
    F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in nhd()), **keywords)
    assert launched().count(MAIN_KERNEL) == 1


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
    torch.library.opcheck(package.log_sum_exp._log_sum_exp, (q, k, True, 0.1))


# Reports of the route, and torch.compile


def test_each_eager_call_is_reported(package, caplog):
    with caplog.at_level(logging.DEBUG, "sage_attention"):
        for _ in range(2):
            package.sageattn(*nhd(), tensor_layout="NHD")
        package.sageattn(*nhd(head_dim=64), tensor_layout="NHD")
    assert caplog.messages == 2 * ["sageattn: gfx1201 kernel"] + ["sageattn: SDPA, because head_dim is not 128"]


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
    for scale in (0.1, 0.2, 0.3, -0.1):
        options = {"tensor_layout": "NHD", "sm_scale": scale}
        assert_same(compiled(*inputs, **options), package.sageattn(*inputs, **options))
    assert launched().count(MAIN_KERNEL) == 6
