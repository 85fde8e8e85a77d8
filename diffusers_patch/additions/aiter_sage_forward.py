# SPDX-License-Identifier: MIT
"""The forward op through which context parallelism calls aiter's operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from diffusers.models.attention_dispatch import aiter_sage_attention


if TYPE_CHECKING:
    from diffusers.models._modeling_parallel import ParallelConfig


def _load_aiter_sage_attention() -> Callable:
    # Whether an aiter has the operator is asked of aiter itself. Importing it looks for a GPU and may compile, so this
    # happens when the backend is chosen, or with the first call if it was chosen in another way.
    global aiter_sage_attention
    if aiter_sage_attention is None:
        try:
            from aiter import gfx1201_sage_attention
        except (Exception, SystemExit) as e:
            # aiter raises KeyError for GPUs that it does not know and SystemExit when it cannot compile.
            raise RuntimeError(
                "Backend 'aiter_sage' is not usable because `from aiter import gfx1201_sage_attention` failed: "
                f"{e!r}. Please install an `amd-aiter` that has this operator."
            ) from e
        aiter_sage_attention = gfx1201_sage_attention
    return aiter_sage_attention


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

    return _load_aiter_sage_attention()(query, key, value, scale)
