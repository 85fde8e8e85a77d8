# SPDX-License-Identifier: MIT
"""Every tail length, several batches and heads, and every stride that diffusers hands over."""

import mmap

import pytest
import torch

from integration_tests.harness import inputs
from integration_tests.harness.hub_delivery import load_hub_kernel
from integration_tests.reference.agreement import compare
from integration_tests.reference.attention import attention_float64, sage_attention_model
from integration_tests.reference.contract import RELATIVE_L2_OF_ANY_LENGTH

# The machine code and the model round alike except inside matrix products, whose order of addition the model does not
# have. Now and then that moves a result across a rounding boundary of bfloat16 (2^-8): measured below 2e-4 for all
# shapes here, where a wrong lane, scale or mask costs more than 1e-2.
MODEL_BOUND = 1e-3

HEADS_ON_AN_AXIS = 32768  # kMaxGridY


def check_against_both_references(sage_attention, q, k, v, softmax_scale=inputs.SOFTMAX_SCALE):
    output = sage_attention(q, k, v, softmax_scale)
    assert output.shape == q.shape and output.dtype == torch.bfloat16 and output.is_contiguous()
    assert compare(output, sage_attention_model(q, k, v, softmax_scale)).relative_l2 <= MODEL_BOUND
    assert compare(output, attention_float64(q, k, v, softmax_scale)).relative_l2 <= RELATIVE_L2_OF_ANY_LENGTH
    return output


@pytest.mark.parametrize("sequence", inputs.TAIL_LENGTHS)
def test_every_tail_length_agrees_with_both_references(sage_attention, sequence):
    check_against_both_references(sage_attention, *inputs.normal(1, sequence, 2, seed=sequence))


@pytest.mark.parametrize("batch, sequence, heads", [(1, 100, 1), (3, 65, 5), (2, 300, 3), (5, 7, 1), (1, 33, 56)])
def test_batches_and_heads_agree_with_both_references(sage_attention, batch, sequence, heads):
    check_against_both_references(sage_attention, *inputs.normal(batch, sequence, heads, seed=batch + heads))


@pytest.mark.parametrize("softmax_scale", [0.0, 0.01, 0.25, -0.1])
def test_softmax_scale_is_applied(sage_attention, softmax_scale):
    check_against_both_references(sage_attention, *inputs.normal(1, 129, 2, seed=5), softmax_scale)


def packed(q, k, v):
    """Views of one [batch, sequence, 3, heads, 128] tensor, as a fused QKV projection makes them."""
    return torch.stack((q, k, v), dim=2).unbind(dim=2)


def transposed(q, k, v):
    """[batch, heads, sequence, 128] in memory."""
    return [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]


def at_an_odd_element(q, k, v):
    """Rows that start 2 bytes past every wider alignment, and an odd row stride."""
    views = []
    for x in (q, k, v):
        batch, sequence, heads, head_dim = x.shape
        row = heads * head_dim + 3
        storage = x.new_full((1 + batch * sequence * row,), torch.nan)
        view = storage.as_strided(x.shape, (sequence * row, row, head_dim, 1), storage_offset=1)
        view.copy_(x)
        views.append(view)
    return views


def sliced_from_a_longer_sequence(q, k, v):
    """The middle of a longer tensor whose other rows are NaN: reading one of them shows."""
    views = []
    for x in (q, k, v):
        longer = x.new_full((x.shape[0], x.shape[1] + 40, *x.shape[2:]), torch.nan)
        longer[:, 20:-20] = x
        views.append(longer[:, 20:-20])
    return views


@pytest.mark.parametrize("layout", [packed, transposed, at_an_odd_element, sliced_from_a_longer_sequence])
def test_strided_inputs_are_read_in_place(sage_attention, layout):
    contiguous = inputs.normal(2, 77, 3, seed=11)
    expected = sage_attention(*contiguous, inputs.SOFTMAX_SCALE)
    assert torch.equal(sage_attention(*layout(*contiguous), inputs.SOFTMAX_SCALE), expected)


def test_a_batch_of_one_may_have_any_batch_stride(sage_attention):
    q, k, v = inputs.normal(1, 50, 2, seed=12)
    expected = sage_attention(q, k, v, inputs.SOFTMAX_SCALE)
    q, k, v = (x.as_strided(x.shape, (256, *x.stride()[1:])) for x in (q, k, v))
    assert torch.equal(sage_attention(q, k, v, inputs.SOFTMAX_SCALE), expected)


@pytest.mark.parametrize("dimension", ["batch", "sequence", "heads"])
def test_offsets_beyond_32_bits_reach_the_right_rows(sage_attention, virtual_gpu, dimension):
    # Sparse memory: 2^32 elements and more lie between neighbours of one dimension, few pages are ever touched.
    axis = ("batch", "sequence", "heads").index(dimension)
    values = inputs.normal(2, 3, 2, seed=13)
    strides = list(values[0].stride())
    strides[axis] = 2**32 + 256
    views, mappings = [], []
    for x in values:
        elements = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, strides, strict=True))
        mapping = mmap.mmap(-1, 2 * elements, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
        storage = torch.frombuffer(mapping, dtype=torch.bfloat16)
        virtual_gpu.add_allocation(storage.data_ptr(), 2 * elements, "sparse tensor")
        mappings.append(storage.data_ptr())
        view = storage.as_strided(x.shape, strides)
        view.copy_(x)
        views.append(view)
    try:
        output = sage_attention(*views, inputs.SOFTMAX_SCALE)
    finally:
        for address in mappings:
            virtual_gpu.remove_allocation(address)
    assert torch.equal(output, sage_attention(*values, inputs.SOFTMAX_SCALE))


def test_a_head_beyond_the_grids_second_axis_is_found_on_its_third(rocm_torch, monkeypatch):
    # The first head of each layer of the grid, of 32,769 heads: the kernels' part of the test below.
    kernel = load_hub_kernel()
    plan_call = kernel.hip_module.plan_call

    def plan_first_heads(*call):
        plan = plan_call(*call)
        assert {launch.grid for launch in plan.launches} == {(1, HEADS_ON_AN_AXIS, 2)}
        return plan._replace(launches=[launch._replace(grid=(1, 1, 2)) for launch in plan.launches])

    monkeypatch.setattr(kernel.hip_module, "plan_call", plan_first_heads)
    q, k, v = inputs.normal(HEADS_ON_AN_AXIS + 1, 1, 1, seed=14)
    output = kernel.gfx1201_sage_attention(q, k, v)
    assert torch.equal(output[[0, HEADS_ON_AN_AXIS]], v[[0, HEADS_ON_AN_AXIS]])


@pytest.mark.slow
def test_many_batches_of_short_sequences_fit_one_launch(sage_attention):
    q, k, v = inputs.normal(700, 1, 50, seed=14)  # 35,000 heads: beyond one grid.y
    assert torch.equal(sage_attention(q, k, v, inputs.SOFTMAX_SCALE), v)
