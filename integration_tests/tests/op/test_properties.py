# SPDX-License-Identifier: MIT
"""What holds for every call of the op, on inputs that hypothesis chooses: shapes, values, scales, strides, NaN.

The suite tries a few of them, always the same. To look for new ones, 10,200 per delivery (5 to 7 minutes):

    python -m pytest integration_tests/tests/op/test_properties.py --hypothesis-profile long
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from hypothesis import given
from hypothesis import strategies as st

from integration_tests.harness.device_under_test import on_device
from integration_tests.harness.inputs import HEAD_DIM, SOFTMAX_SCALE, TAIL_LENGTHS
from integration_tests.reference.attention import sage_attention_model

LARGEST_SHORT, LARGEST_LONG = 96, 226
SHORT_LENGTHS = [length for length in TAIL_LENGTHS if length <= LARGEST_SHORT]
LONG_LENGTHS = [length for length in TAIL_LENGTHS if LARGEST_SHORT < length <= LARGEST_LONG]
MAX_SOFTMAX_SCALE = torch.finfo(torch.float32).max

# From 2^120 on, a row of Q or K less the mean, rotated, can leave float32, and a channel of V from 2^127 on
# (docs/algorithm.md).
LARGEST = {"q": 255 * 2.0**112, "k": 255 * 2.0**112, "v": 255 * 2.0**119}

# aiter compiles with denormals flushed to zero. Outputs are multiplied by range / 448 / sum(P), and sum(P) reaches
# 448 S, so that with S <= 256 what a smaller range contributes may be lost.
SMALLEST_VALUE = 2.0**-99

BF16_STEP = 2.0**-7  # from one bfloat16 to the next, relative to it, at most
E4M3_ROUNDING = 2.0**-4  # half a step of e4m3, relative
E4M3_SMALLEST = 2.0**-9


def normal(shape, generator):
    return torch.randn(shape, generator=generator)


def constant(shape, generator):
    return torch.randn(1, generator=generator).expand(shape).clone()


def zeros(shape, generator):
    return torch.zeros(shape)


def equal_rows(shape, generator):
    return torch.randn((shape[0], 1, *shape[2:]), generator=generator).expand(shape).clone()


def common_mean(shape, generator):
    return torch.randn(shape, generator=generator) + 10.0


def large_channels(shape, generator):
    x = torch.randn(shape, generator=generator)
    x[..., torch.randint(HEAD_DIM, (4,), generator=generator)] *= 100.0
    return x


def outliers(shape, generator):
    x = torch.randn(shape, generator=generator)
    x.view(-1)[torch.randint(x.numel(), (3,), generator=generator)] *= 2.0**14
    return x


def sparse(shape, generator):
    return torch.randn(shape, generator=generator) * (torch.rand(shape, generator=generator) < 0.01)


def subnormal(shape, generator):
    return torch.randint(-127, 128, shape, generator=generator) * 2.0**-133


def extreme(shape, generator, largest):
    choices = torch.tensor([0.0, -0.0, 2.0**-133, 2.0**-126, 1.0, largest, -largest])
    return choices[torch.randint(len(choices), shape, generator=generator)]


SCALED_KINDS = (normal, constant, zeros, equal_rows, common_mean, large_channels, outliers, sparse)
KINDS = {kind.__name__: kind for kind in (*SCALED_KINDS, subnormal, extreme)}


@dataclass(frozen=True)
class Values:
    """The values of one operand: a kind of distribution, drawn by torch from `seed`, times 2^exponent."""

    kind: str
    exponent: int
    seed: int

    def make(self, operand: str, shape: tuple[int, ...]) -> torch.Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        if self.kind == "extreme":
            x = extreme(shape, generator, LARGEST[operand])
        else:
            x = KINDS[self.kind](shape, generator)
            x = x * 2.0**self.exponent if KINDS[self.kind] in SCALED_KINDS else x
        return on_device(x.to(torch.bfloat16))


@dataclass(frozen=True)
class Call:
    """The arguments of one call of the op."""

    batch: int
    sequence: int
    heads: int
    q: Values
    k: Values
    v: Values
    softmax_scale: float

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.batch, self.sequence, self.heads, HEAD_DIM

    def tensors(self) -> list[torch.Tensor]:
        return [getattr(self, operand).make(operand, self.shape) for operand in "qkv"]


seeds = st.integers(0, 2**16)
sequences = st.one_of(
    st.sampled_from(SHORT_LENGTHS),
    st.sampled_from(SHORT_LENGTHS),
    st.integers(1, LARGEST_SHORT),
    st.sampled_from(LONG_LENGTHS),
)
exponents = st.one_of(st.just(0), st.integers(-4, 4), st.integers(-60, 60))
softmax_scales = st.one_of(
    st.just(SOFTMAX_SCALE),
    st.just(SOFTMAX_SCALE),
    st.floats(0.001, 1.0),
    # Zero included; subnormal ones are flushed in aiter's build.
    st.floats(0.0, MAX_SOFTMAX_SCALE, width=32, allow_subnormal=False),
)
# Where one operand is out of the ordinary, a mistake shows best beside others that are not.
ordinary_values = st.builds(Values, kind=st.just("normal"), exponent=st.just(0), seed=seeds)
any_values = st.builds(Values, kind=st.sampled_from(sorted(KINDS)), exponent=exponents, seed=seeds)
values = st.one_of(ordinary_values, ordinary_values, any_values)
calls = st.builds(
    Call,
    batch=st.integers(1, 2),
    sequence=sequences,
    heads=st.integers(1, 3),
    q=values,
    k=values,
    v=values,
    softmax_scale=softmax_scales,
)


def centred_range(v: torch.Tensor) -> torch.Tensor:
    """float64 [batch, 1, heads, 128]: how far values of a channel of V are from its mean, at most."""
    v = v.double()
    return (v - v.mean(dim=1, keepdim=True)).abs().amax(dim=1, keepdim=True)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.view(torch.int16), b.view(torch.int16))


@given(call=calls)
def test_outputs_are_those_of_the_reference_model(sage_attention, call):
    q, k, v = call.tensors()
    output = sage_attention(q, k, v, call.softmax_scale)
    assert output.shape == call.shape and output.dtype == torch.bfloat16 and output.is_contiguous()
    expected = sage_attention_model(q, k, v, call.softmax_scale).double()
    # The order of additions is all that differs. Sums of S products, and of S rounded V', reach the range times
    # 1 + 2^-4 and round by 2^-24 of it S times, on both sides. That may move the result to the next bfloat16.
    noise = 4 * 2.0**-23 * call.sequence * centred_range(v)
    bound = BF16_STEP * expected.abs() + noise + SMALLEST_VALUE
    assert not (~((output.double() - expected).abs() <= bound)).any()


@given(call=calls)
def test_outputs_of_finite_inputs_are_within_the_range_of_their_values(sage_attention, call):
    q, k, v = call.tensors()
    output = sage_attention(q, k, v, call.softmax_scale).double()
    v = v.double()
    # O = mean - n' + sum(P8 V8) / sum(P). Rounding to e4m3 moves each V' by 2^-4 of it, and so n', the mean of what it
    # moved; and the weights' sum by 2^-4 of it and half of e4m3's smallest for each key, where the best key's P is at
    # least 1.
    weights = E4M3_ROUNDING + 0.5 * E4M3_SMALLEST * call.sequence
    excess = (1 + E4M3_ROUNDING) * (1 + weights) - 1 + E4M3_ROUNDING
    bound = excess * centred_range(v) + BF16_STEP * v.abs().amax(dim=1, keepdim=True) + SMALLEST_VALUE
    low, high = v.amin(dim=1, keepdim=True) - bound, v.amax(dim=1, keepdim=True) + bound
    assert not (~((low <= output) & (output <= high))).any()


@given(call=calls, winner=st.integers(0, LARGEST_LONG), q_exponent=st.integers(-40, 60), margin=st.floats(6.5, 160.0))
def test_a_key_far_above_the_rest_gives_its_value_at_any_magnitude_of_scores(
    sage_attention, call, winner, q_exponent, margin
):
    winner %= call.sequence
    generator = torch.Generator().manual_seed(call.q.seed)
    direction = torch.randn((call.batch, 1, call.heads, HEAD_DIM), generator=generator)
    q = direction + 0.01 * torch.randn(call.shape, generator=generator)
    k = torch.zeros(call.shape)
    k[:, winner] = direction[:, 0]
    # Scores in powers of two are 16 * 2^(q_exponent + k_exponent) for the winner, half of it in directions shorter than
    # most, and 0 for the others. INT8 rounding takes a few per cent: the others' P is zero in e4m3.
    k_exponent = min(round(margin) - 3 - q_exponent, 110)
    q, k = (on_device((x * 2.0**e).to(torch.bfloat16)) for x, e in ((q, q_exponent), (k, k_exponent)))
    scores = (q.double() * k.double()[:, winner, None]).sum(dim=-1) * SOFTMAX_SCALE * math.log2(math.e)
    assert scores.amin() >= 64
    v = call.v.make("v", call.shape)
    output = sage_attention(q, k, v, SOFTMAX_SCALE).double()
    expected = v.double()[:, winner, None].expand(call.shape)
    # V' and P of the winner are rounded to e4m3; n' is what V' moved on average.
    bound = 4 * E4M3_ROUNDING * centred_range(v) + BF16_STEP * v.double().abs().amax(dim=1, keepdim=True)
    assert not (~((output - expected).abs() <= bound + SMALLEST_VALUE)).any()


@dataclass(frozen=True)
class Layout:
    """How [batch, sequence, heads, 128] lies in memory: `order` of the dimensions from the outermost, `gaps` after each
    row of such a dimension, and the `offset` of the first element. Both count elements."""

    order: tuple[int, int, int]
    gaps: tuple[int, int, int]
    offset: int

    def place(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(storage, view with the values of `tensor`); what does not belong to the view is NaN."""
        strides, stride = [0, 0, 0, 1], HEAD_DIM
        for axis, gap in zip(reversed(self.order), reversed(self.gaps), strict=True):
            stride += gap
            strides[axis] = stride
            stride *= tensor.shape[axis]
        storage = tensor.new_full((self.offset + stride,), torch.nan)
        view = storage.as_strided(tensor.shape, strides, self.offset)
        view.copy_(tensor)
        return storage, view


layouts = st.builds(
    Layout,
    order=st.sampled_from(list(itertools.permutations(range(3)))),
    gaps=st.tuples(*[st.one_of(st.just(0), st.integers(0, 9), st.sampled_from([128, 384, 1000]))] * 3),
    offset=st.integers(0, 9),
)


def placed_apart(tensors: list[torch.Tensor], chosen: list[Layout]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """(storages, views): each operand in a layout of its own."""
    storages, views = zip(*(layout.place(x) for layout, x in zip(chosen, tensors, strict=True)), strict=True)
    return list(storages), list(views)


def packed(tensors: list[torch.Tensor], layout: Layout, dim: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """(storage, views): operands side by side in dimension `dim` of one tensor, as a fused projection makes them."""
    storage, view = layout.place(torch.cat(tensors, dim=dim))
    return [storage], list(view.chunk(len(tensors), dim=dim))


@given(call=calls, chosen=st.tuples(layouts, layouts, layouts), pack=st.sampled_from([None, 1, 2]))
def test_views_give_the_bits_of_contiguous_copies_and_stay_as_they_are(sage_attention, call, chosen, pack):
    tensors = call.tensors()
    storages, views = placed_apart(tensors, chosen) if pack is None else packed(tensors, chosen[0], pack)
    before = [storage.clone() for storage in storages]
    output = sage_attention(*views, call.softmax_scale)
    assert same_bits(output, sage_attention(*tensors, call.softmax_scale))
    assert all(same_bits(*pair) for pair in zip(storages, before, strict=True))


@given(call=calls, batch=st.integers(0, 1), head=st.integers(0, 2))
def test_a_head_gives_the_same_bits_without_the_others(sage_attention, call, batch, head):
    tensors = call.tensors()
    batch, head = batch % call.batch, head % call.heads
    output = sage_attention(*tensors, call.softmax_scale)[batch, :, head]
    alone = [x[batch : batch + 1, :, head : head + 1] for x in tensors]
    assert same_bits(output.contiguous(), sage_attention(*alone, call.softmax_scale)[0, :, 0].contiguous())


@dataclass(frozen=True)
class Special:
    """A value that is not finite, and its place, whose numbers count modulo the shape."""

    operand: str
    value: float
    place: tuple[int, int, int, int]


specials = st.builds(
    Special,
    operand=st.sampled_from("qkv"),
    value=st.sampled_from([math.nan, math.inf, -math.inf]),
    place=st.tuples(st.integers(0, 1), st.integers(0, LARGEST_LONG), st.integers(0, 2), st.integers(0, 127)),
)


@given(call=calls, found=st.lists(specials, min_size=1, max_size=4))
def test_nan_and_infinity_make_nan_of_what_depends_on_them_and_change_nothing_else(
    sage_attention: Callable, call: Call, found: list[Special]
):
    clean = dict(zip("qkv", call.tensors(), strict=True))
    special = {operand: x.clone() for operand, x in clean.items()}
    is_nan = torch.zeros(call.shape, dtype=torch.bool, device=clean["q"].device)
    for it in found:
        batch, row, head, channel = (n % size for n, size in zip(it.place, call.shape, strict=True))
        special[it.operand][batch, row, head, channel] = it.value
        touched = {
            "q": (batch, row, head),
            "k": (batch, slice(None), head),
            "v": (batch, slice(None), head, channel),
        }[it.operand]
        is_nan[touched] = True
        if it.operand == "q":  # the row has no part in the scale that it shares with its neighbours
            clean["q"][batch, row, head] = 0.0
    output = sage_attention(*special.values(), call.softmax_scale)
    assert output[is_nan].isnan().all()
    assert same_bits(output[~is_nan], sage_attention(*clean.values(), call.softmax_scale)[~is_nan])
