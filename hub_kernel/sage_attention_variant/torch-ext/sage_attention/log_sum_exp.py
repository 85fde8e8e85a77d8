# SPDX-License-Identifier: MIT
"""The log-sum-exp of attention scores, which SDPA computes but does not return.

It costs a second Q K^T, in float32. torch's own ops that return it differ by GPU, dtype and head dimension.
"""

import math
from typing import Optional

import torch

from ._ops import add_op_namespace_prefix

# 128 MiB of float32 scores at a time, whatever the sequence length.
_SCORES_AT_A_TIME = 2**25


def log_sum_exp(
    q: torch.Tensor, k: torch.Tensor, attn_mask: Optional[torch.Tensor], is_causal: bool, scale: Optional[float]
) -> torch.Tensor:
    """`logsumexp(scale * q @ k^T + mask)` over the keys, with the natural logarithm.

    Args:
        q: [batch, heads, queries, head_dim].
        k: [batch, key heads, keys, head_dim]; the number of key heads divides that of heads.
        attn_mask: bool, True where a query sees a key, or numbers added to the scores; broadcast to
            [batch, heads, queries, keys]. None masks nothing.
        is_causal: whether query i sees keys 0 to i only, as in SDPA.
        scale: None means 1 / sqrt(head_dim).

    Returns:
        float32 [batch, heads, queries], without a gradient.
    """
    if scale is None:
        scale = 1.0 / math.sqrt(q.shape[-1])
    mask = None if attn_mask is None else attn_mask.detach()
    return _log_sum_exp(q.detach(), k.detach(), mask, is_causal, scale)


# An op, because torch.compile would unroll the loop over chunks, whose number depends on the lengths.
@torch.library.custom_op(add_op_namespace_prefix("log_sum_exp"), mutates_args=())
def _log_sum_exp(
    q: torch.Tensor, k: torch.Tensor, attn_mask: Optional[torch.Tensor], is_causal: bool, scale: float
) -> torch.Tensor:
    heads, queries = q.shape[1], q.shape[2]
    key_heads, keys = k.shape[1], k.shape[2]
    if heads == 0:
        return torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    if attn_mask is not None:
        # By groups of query heads, like q.
        attn_mask = attn_mask.expand(q.shape[0], heads, queries, keys).unflatten(1, (key_heads, -1))
    q = q.reshape(q.shape[0], key_heads, heads // key_heads, queries, q.shape[3])
    k = k[:, :, None].float().transpose(-1, -2)
    out = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
    key_index = torch.arange(keys, device=q.device)

    step = max(1, _SCORES_AT_A_TIME // max(1, q.shape[0] * heads * keys))
    for first in range(0, queries, step):
        rows = q[..., first : first + step, :].float() * scale
        # Autocast would round the scores to 16 bits.
        with torch.autocast(q.device.type, enabled=False):
            scores = rows @ k
        if attn_mask is not None:
            chunk = attn_mask[..., first : first + step, :]
            scores = scores.masked_fill(~chunk, -torch.inf) if chunk.dtype == torch.bool else scores + chunk
        if is_causal:
            row_index = torch.arange(first, first + rows.shape[-2], device=q.device)
            scores.masked_fill_(key_index > row_index[:, None], -torch.inf)
        out[..., first : first + step] = torch.logsumexp(scores, dim=-1)
    return out.flatten(1, 2)


@_log_sum_exp.register_fake
def _(
    q: torch.Tensor, k: torch.Tensor, attn_mask: Optional[torch.Tensor], is_causal: bool, scale: float
) -> torch.Tensor:
    return torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
