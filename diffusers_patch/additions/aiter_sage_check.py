# SPDX-License-Identifier: MIT
"""What every backend of this kernel refuses; not specific to how the kernel was obtained."""

import torch

from diffusers.models.attention_dispatch import AttentionBackendName


def _check_aiter_sage_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None,
    dropout_p: float,
    is_causal: bool,
    enable_gqa: bool,
    return_lse: bool,
) -> None:
    # Called by the backend itself, because `DIFFUSERS_ATTN_CHECKS` is off by default and a kernel that ignored one of
    # these would return a plausible but wrong result.
    if attn_mask is not None:
        raise ValueError("`attn_mask` is not supported for aiter sage attention.")
    if dropout_p > 0.0:
        raise ValueError("`dropout_p` is not supported for aiter sage attention.")
    if is_causal:
        raise ValueError("`is_causal` is not supported for aiter sage attention.")
    if enable_gqa:
        raise ValueError("`enable_gqa` is not supported for aiter sage attention.")
    if return_lse:
        raise ValueError("`return_lse` is not supported for aiter sage attention.")
    if not query.dtype == key.dtype == value.dtype == torch.bfloat16:
        raise ValueError(
            f"Query, key, and value must be bfloat16 for aiter sage attention, got {query.dtype}, {key.dtype} and "
            f"{value.dtype}."
        )
    if not query.shape == key.shape == value.shape:
        raise ValueError(
            f"Query, key, and value must have the same shape for aiter sage attention, got {tuple(query.shape)}, "
            f"{tuple(key.shape)} and {tuple(value.shape)}."
        )
    if query.shape[-1] != 128:
        raise ValueError(f"The head dimension must be 128 for aiter sage attention, got {query.shape[-1]}.")


def _check_aiter_sage_device(backend: AttentionBackendName) -> None:
    # For when the backend is set: the model may be on any of the devices, and the call checks its own.
    architectures = []
    if torch.version.hip is not None:
        devices = range(torch.cuda.device_count())
        architectures = [torch.cuda.get_device_properties(i).gcnArchName.split(":")[0] for i in devices]
    if "gfx1201" not in architectures:
        raise RuntimeError(
            f"Backend '{backend.value}' is not usable because it needs a ROCm build of PyTorch and a gfx1201 GPU. Found "
            f"torch {torch.__version__} with {', '.join(architectures) or 'no AMD GPU'}."
        )
