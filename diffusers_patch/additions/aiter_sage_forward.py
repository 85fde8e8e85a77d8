# SPDX-License-Identifier: MIT
"""The forward op through which context parallelism calls aiter's operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from diffusers.models.attention_dispatch import aiter_sage_attention


if TYPE_CHECKING:
    from diffusers.models._modeling_parallel import ParallelConfig


def _aiter_sage_attention_forward_op(
    ctx: torch.autograd.function.FunctionCtx,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    _save_ctx: bool = True,
    _parallel_config: "ParallelConfig" | None = None,
):
    if return_lse:
        raise ValueError(
            "Ring attention is not supported for aiter sage attention, which returns no LSE. Use Ulysses."
        )

    return aiter_sage_attention(query, key, value, scale)
