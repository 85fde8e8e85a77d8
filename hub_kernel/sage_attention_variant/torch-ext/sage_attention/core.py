# SPDX-License-Identifier: MIT
"""`sageattn` on ROCm: the gfx1201 kernel computes what it supports, PyTorch's SDPA the rest.

`reason_for_sdpa` alone decides. The logger "sage_attention" reports each decision at level DEBUG; a compiled graph,
whose route its guards fix, reports once, while it is traced.
"""

import logging
from typing import Any, Optional, Union

import torch

from .gfx1201_sage_attention import gfx1201_sage_attention
from .log_sum_exp import log_sum_exp
from .sage_attention_contract import ARCHITECTURE, DTYPE, HEAD_DIM, MAX_SEQUENCE, MAX_SOFTMAX_SCALE

# Bound here: an application may replace torch's function by `sageattn`, which would then call itself.
_scaled_dot_product_attention = torch.nn.functional.scaled_dot_product_attention

_logger = logging.getLogger("sage_attention")


def sageattn(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    tensor_layout: str = "HND",
    is_causal: bool = False,
    sm_scale: Optional[float] = None,
    return_lse: bool = False,
    **kwargs: Any,
) -> Union[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """Attention, `softmax(sm_scale * q @ k^T) @ v` per batch and head.

    A call that the gfx1201 kernel supports (bfloat16, head_dim 128, equal shapes, not causal, no lse, no gradients)
    runs on it, with INT8 Q K^T and FP8 P V. Every other call gives what
    `torch.nn.functional.scaled_dot_product_attention` gives, gradients included. Works inside
    `torch.compile(fullgraph=True)`.

    Args:
        q: [batch, heads, sequence, head_dim] for the layout "HND", [batch, sequence, heads, head_dim] for "NHD".
        k, v: like q, with their own sequence length. Fewer heads than q's, a divisor, are grouped-query attention.
            Any strides; the kernel reads views in place when the last dimension's stride is 1.
        tensor_layout: "HND" or "NHD".
        is_causal: whether row i attends to keys 0 to i only.
        sm_scale: factor on the scores; None means 1 / sqrt(head_dim).
        return_lse: also return the log-sum-exp of the scores.
        kwargs: what SDPA calls `attn_mask`, `dropout_p`, `scale` and `enable_gqa`, at values that ask for nothing
            more, so that `sageattn` can stand in for it.

    Returns:
        The output in q's layout and dtype, stored in the order [batch, sequence, heads, head_dim] by the kernel. With
        `return_lse` a pair: the output, and the natural logarithm of the sum of exponentials of the scaled scores,
        float32 [batch, heads, sequence] in both layouts, which carries no gradient.

    Raises:
        TypeError: a keyword that is not listed above, or a tensor_layout that is no string.
        ValueError: another layout, tensors that are not 4-D, a mask, dropout, or a factor called `scale`.
        Anything that SDPA raises, for calls that it receives.
    """
    _check_arguments(q, k, v, tensor_layout, **kwargs)
    is_hnd = tensor_layout == "HND"
    if is_hnd:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    reason = reason_for_sdpa(q, k, v, is_causal, sm_scale, return_lse)
    _log_route(reason)
    if reason is None:
        out = gfx1201_sage_attention(q, k, v, sm_scale)
        return out.transpose(1, 2) if is_hnd else out

    q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    # A branch, because torch.compile holds the comparison of dynamic sizes as a symbol, which SDPA does not take.
    enable_gqa = True if q.shape[1] != k.shape[1] else False
    out = _scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=sm_scale, enable_gqa=enable_gqa)
    out = out if is_hnd else out.transpose(1, 2)
    return (out, log_sum_exp(q, k, is_causal, sm_scale)) if return_lse else out


def reason_for_sdpa(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    is_causal: bool,
    sm_scale: Optional[float],
    return_lse: bool,
) -> Optional[str]:
    """Why the gfx1201 kernel cannot compute a call, in words; None if it can.

    Args as in `sageattn`, with the tensors as [batch, sequence, heads, head_dim]. Reads no data.
    """
    if not (q.device == k.device == v.device and _architecture(q.device) == ARCHITECTURE):
        return f"not all tensors are on one {ARCHITECTURE} device"
    if is_causal:
        return "is_causal is set"
    if return_lse:
        return "return_lse is set"
    if not (q.dtype == k.dtype == v.dtype == DTYPE):
        return f"not all tensors are {DTYPE}"
    if q.shape[3] != HEAD_DIM:
        return f"head_dim is not {HEAD_DIM}"
    if not (q.shape == k.shape == v.shape):
        return "the shapes of q, k and v differ"
    if not (q.shape[0] >= 1 and 1 <= q.shape[1] <= MAX_SEQUENCE and q.shape[2] >= 1):
        return "the tensors are empty or the sequence is too long"
    if not (q.stride(3) == k.stride(3) == v.stride(3) == 1):
        return "the stride of the last dimension is not 1"
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return "a gradient is required"
    if sm_scale is not None and not (0.0 <= sm_scale <= MAX_SOFTMAX_SCALE):
        return "sm_scale is negative or not finite"
    return None


@torch.compiler.assume_constant_result
def _architecture(device: torch.device) -> str:
    """The device's architecture without feature suffixes; empty for one that is not ROCm's."""
    # A device capability would not do: on gfx1201 it reads (12, 0), like that of an NVIDIA sm120.
    if torch.version.hip is None or device.type != "cuda":
        return ""
    return torch.cuda.get_device_properties(device).gcnArchName.split(":")[0]


# A logger inside a traced function breaks the graph; a call that is evaluated while tracing does not.
@torch.compiler.assume_constant_result
def _log_route(reason: Optional[str]) -> None:
    if reason is None:
        _logger.debug("sageattn: %s kernel", ARCHITECTURE)
    else:
        _logger.debug("sageattn: SDPA, because %s", reason)


def _check_arguments(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    tensor_layout: str,
    attn_mask: None = None,
    dropout_p: float = 0.0,
    scale: None = None,
    enable_gqa: bool = False,  # either value: the numbers of heads decide
    **unknown: Any,
) -> None:
    if unknown:
        raise TypeError(f"sageattn on ROCm has no argument {next(iter(unknown))!r}: leave it out.")
    if not isinstance(tensor_layout, str):
        raise TypeError(
            f"sageattn needs a tensor_layout as fourth argument, got {type(tensor_layout).__name__}: "
            "attn_mask, which SDPA has there, is not supported."
        )
    if tensor_layout not in ("HND", "NHD"):
        raise ValueError(f'sageattn needs tensor_layout "HND" or "NHD", got {tensor_layout!r}.')
    if not (q.dim() == k.dim() == v.dim() == 4):
        raise ValueError(f"sageattn needs 4-D tensors, got q {q.dim()}-D, k {k.dim()}-D, v {v.dim()}-D: reshape them.")
    if attn_mask is not None:
        raise ValueError("sageattn takes no attn_mask: call scaled_dot_product_attention for masked attention.")
    if dropout_p != 0.0:
        raise ValueError("sageattn has no dropout: pass dropout_p 0.0 or call scaled_dot_product_attention.")
    if scale is not None:
        raise ValueError("sageattn calls the factor on the scores sm_scale: pass it under that name.")
