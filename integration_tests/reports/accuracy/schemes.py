# SPDX-License-Identifier: MIT
"""Other ways to attend with few bits, as models in torch, for chosen queries over all keys.

A scheme takes q [heads, queries, 128], k and v [heads, sequence, 128] in bfloat16 (query i of q is row `rows[i]`), and
returns [heads, queries, 128] in bfloat16. They model what is rounded, not the order of float32 additions.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

INT8_MAX, FP8_MAX = 127.0, 448.0
# Rows that share a scale in PyPI's sageattention 1.0.6 (Triton).
SAGE_QUERY_BLOCK, SAGE_KEY_BLOCK = 128, 64


@dataclass(frozen=True)
class Chosen:
    """Whole tensors of some heads, and which of their rows are the queries: whole blocks of 32, in order."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    rows: torch.Tensor
    softmax_scale: float

    @property
    def queries(self) -> torch.Tensor:
        return self.q[:, self.rows]


def exact(x: Chosen) -> torch.Tensor:
    """Attention in float64."""
    scores = x.queries.double() @ x.k.double().transpose(1, 2) * x.softmax_scale
    return torch.softmax(scores, dim=-1) @ x.v.double()


def sdpa_bfloat16(x: Chosen) -> torch.Tensor:
    """Flash attention in bfloat16: scores in float32, weights rounded to bfloat16 for the second product."""
    scores = x.queries.float() @ x.k.float().transpose(1, 2) * x.softmax_scale
    return _weigh(scores, lambda p: p.to(torch.bfloat16).float(), x.v.float())


def no_smoothing(x: Chosen) -> torch.Tensor:
    """Our formats and block sizes without K's mean, rotation and V's mean: INT8 Q per row, K per 32, FP8 P and V."""
    scores = _int8(x.q, 32, x.rows) @ _int8(x.k, 32).transpose(1, 2) * x.softmax_scale
    step = (x.v.float().abs().amax(dim=1, keepdim=True) / FP8_MAX).clamp_min(1e-30)
    return _weigh(scores, lambda p: _fp8(p * FP8_MAX) / FP8_MAX, _fp8(x.v.float() / step) * step)


def triton_sageattention(x: Chosen) -> torch.Tensor:
    """PyPI's sageattention 1.0.6: K smoothed, INT8 Q per 128 and K per 64 rows, P and V in float16."""
    centred = x.k.float() - x.k.float().mean(dim=1, keepdim=True)
    scores = _int8(x.q, SAGE_QUERY_BLOCK, x.rows) @ _int8(centred, SAGE_KEY_BLOCK).transpose(1, 2) * x.softmax_scale
    return _weigh(scores, lambda p: p.half().float(), x.v.half().float())


def per_tensor_fp8(x: Chosen) -> torch.Tensor:
    """e4m3 Q, K and V with one scale each, P in e4m3 without a scale."""
    q, k, v = (_per_tensor(t) for t in (x.q, x.k, x.v))
    scores = q[:, x.rows] @ k.transpose(1, 2) * x.softmax_scale
    return _weigh(scores, _fp8, v)


def _weigh(scores: torch.Tensor, round_weights: Callable, values: torch.Tensor) -> torch.Tensor:
    """softmax(scores) values, with rounded weights in the second product and unrounded ones in the sum."""
    weights = torch.exp(scores - scores.amax(dim=-1, keepdim=True))
    return (round_weights(weights) @ values / weights.sum(dim=-1, keepdim=True)).to(torch.bfloat16)


def _int8(x: torch.Tensor, block: int, rows: torch.Tensor | None = None) -> torch.Tensor:
    """Values after rounding to 127 steps per block of rows; only `rows` of them if given."""
    heads, sequence, dim = x.shape
    padded = x.new_zeros(heads, -(-sequence // block) * block, dim, dtype=torch.float32)
    padded[:, :sequence] = x
    blocks = padded.reshape(heads, -1, block * dim)
    step = (blocks.abs().amax(dim=-1, keepdim=True) / INT8_MAX).clamp_min(1e-30)
    rounded = (torch.round(blocks / step) * step).reshape(padded.shape)[:, :sequence]
    return rounded if rows is None else rounded[:, rows]


def _fp8(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn).float()


def _per_tensor(x: torch.Tensor) -> torch.Tensor:
    step = (x.float().abs().amax() / FP8_MAX).clamp_min(1e-30)
    return _fp8(x.float() / step) * step


PEERS: dict[str, Callable[[Chosen], torch.Tensor]] = {
    "no smoothing": no_smoothing,
    "Triton SageAttention's scheme": triton_sageattention,
    "per-tensor FP8": per_tensor_fp8,
    "BF16 SDPA": sdpa_bfloat16,
}
