# SPDX-License-Identifier: MIT
"""The op under what torch does to functions: derivatives, exported and compiled graphs, sharded tensors."""

import numpy as np
import pytest
import torch

from integration_tests.harness import inputs

SHAPE = (2, 40, 4)


def test_forward_mode_derivatives_are_refused_and_nothing_is_launched(sage_attention, launched):
    q, k, v = inputs.normal(*SHAPE)
    with pytest.raises(ValueError, match="computes no forward-mode derivatives, but a tangent is carried by k"):
        torch.func.jvp(lambda x: sage_attention(q, x, v), (k,), (torch.ones_like(k),))
    assert launched() == []


class Attention(torch.nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def forward(self, q, k, v):
        return self.attention(q, k, v)


@pytest.mark.parametrize("strict", [False, True])
def test_a_graph_exported_with_an_open_length_runs_at_other_lengths(sage_attention, fresh_compiler, strict):
    sequence = {1: torch.export.Dim("sequence")}
    example = inputs.normal(*SHAPE)
    exported = torch.export.export(Attention(sage_attention), example, dynamic_shapes=(sequence,) * 3, strict=strict)
    tensors = inputs.normal(2, 65, 4, seed=1)
    assert torch.equal(exported.module()(*tensors), sage_attention(*tensors))


SCALES = {
    "NumPy's square root in the graph": lambda attention, q, k, v: attention(q, k, v, 1 / np.sqrt(q.shape[-1])),
    "a NumPy number": lambda attention, q, k, v: attention(q, k, v, np.float64(0.05)),
    "a negative number": lambda attention, q, k, v: attention(q, k, v, -0.05),
}


@pytest.mark.parametrize("scale", SCALES)
def test_scales_that_sdpa_takes_compiled_are_taken_compiled(sage_attention, fresh_compiler, scale):
    def call(q, k, v):
        return SCALES[scale](sage_attention, q, k, v)

    tensors = inputs.normal(*SHAPE)
    assert torch.equal(torch.compile(call, fullgraph=True, backend="aot_eager")(*tensors), call(*tensors))


def test_a_compiled_scale_that_is_not_finite_is_refused_when_the_graph_runs(sage_attention, fresh_compiler, launched):
    compiled = torch.compile(sage_attention, fullgraph=True, dynamic=True, backend="aot_eager")
    tensors = inputs.normal(*SHAPE)
    for scale in (0.1, 0.2, -0.3):
        compiled(*tensors, scale)
    before = launched()
    with pytest.raises(ValueError, match="needs a softmax_scale that is finite in float32, got inf"):
        compiled(*tensors, float("inf"))
    assert launched() == before


@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("dimension, kept", [(0, 0), (2, 2), (1, None), (3, None)])
def test_sharded_tensors_stay_sharded_over_batch_and_heads(
    sage_attention, one_rank_mesh, fresh_compiler, dimension, kept, is_compiled
):
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    tensors = inputs.normal(*SHAPE)
    sharded = [distribute_tensor(tensor, one_rank_mesh, [Shard(dimension)]) for tensor in tensors]
    attention = torch.compile(sage_attention, fullgraph=True, backend="aot_eager") if is_compiled else sage_attention
    out = attention(*sharded)
    assert out.placements == ((Replicate() if kept is None else Shard(kept)),)
    assert torch.equal(out.full_tensor(), sage_attention(*tensors))
