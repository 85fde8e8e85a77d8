# SPDX-License-Identifier: MIT
"""The forward op through which context parallelism calls the Hub kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from diffusers.models.attention_dispatch import (
    _HUB_KERNELS_REGISTRY,
    AttentionBackendName,
    _maybe_download_kernel_for_backend,
)


if TYPE_CHECKING:
    from diffusers.models._modeling_parallel import ParallelConfig


def _load_aiter_sage_attention_hub() -> Callable:
    # Loaded already unless the backend was chosen for one module, by environment variable, or in another process.
    _maybe_download_kernel_for_backend(AttentionBackendName.AITER_SAGE_HUB)
    return _HUB_KERNELS_REGISTRY[AttentionBackendName.AITER_SAGE_HUB].kernel_fn


def _aiter_sage_attention_hub_forward_op(
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

    func = _load_aiter_sage_attention_hub()
    return func(q=query, k=key, v=value, softmax_scale=scale)
