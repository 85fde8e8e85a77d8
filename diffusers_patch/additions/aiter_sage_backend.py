# SPDX-License-Identifier: MIT
"""The backend `aiter_sage`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from diffusers.models.attention_dispatch import (
    AttentionBackendName,
    _aiter_sage_attention_forward_op,
    _AttentionBackendRegistry,
    _check_aiter_sage_attention,
    _check_device_cuda,
    _check_qkv_dtype_bf16,
    _check_shape,
    _load_aiter_sage_attention,
    _sage_attention_backward_op,
    _templated_context_parallel_attention,
)


if TYPE_CHECKING:
    from diffusers.models._modeling_parallel import ParallelConfig


@_AttentionBackendRegistry.register(
    AttentionBackendName.AITER_SAGE,
    constraints=[_check_device_cuda, _check_qkv_dtype_bf16, _check_shape],
    supports_context_parallel=True,
)
def _aiter_sage_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    _parallel_config: "ParallelConfig" | None = None,
) -> torch.Tensor:
    _check_aiter_sage_attention(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa, return_lse)

    if _parallel_config is None:
        return _load_aiter_sage_attention()(query, key, value, scale)

    return _templated_context_parallel_attention(
        query,
        key,
        value,
        None,
        0.0,
        False,
        scale,
        False,
        False,
        forward_op=_aiter_sage_attention_forward_op,
        backward_op=_sage_attention_backward_op,
        _parallel_config=_parallel_config,
    )
