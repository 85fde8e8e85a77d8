# SPDX-License-Identifier: MIT
"""`sageattn` on ROCm: the gfx1201 kernel computes what it supports, PyTorch's SDPA the rest.

`reason_for_sdpa` alone decides. The logger "sage_attention" reports each route and reason once at level INFO, and
every call at level DEBUG; a compiled graph, whose route its guards fix, reports while it is traced. A machine on which
no call can reach the kernel is named once at level WARNING, when the package is imported.
"""

import inspect
import logging
import os
from typing import Any, NamedTuple, Optional, Union

import torch

from .gfx1201_sage_attention import gfx1201_sage_attention
from .log_sum_exp import log_sum_exp
from .sage_attention_contract import (
    ARCHITECTURE,
    ARCHITECTURE_OVERRIDE,
    DTYPE,
    HEAD_DIM,
    MAX_SOFTMAX_SCALE,
    has_tangent,
    is_number,
    is_too_long,
)

# Not torch.nn.functional's name for it, which an application may replace by `sageattn`, before or after this import.
_scaled_dot_product_attention = torch._C._nn.scaled_dot_product_attention

_logger = logging.getLogger("sage_attention")


class Call(NamedTuple):
    """One call of attention. The fields up to `return_lse` are sageattn's own arguments, in its order."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    tensor_layout: str = "HND"
    is_causal: bool = False
    sm_scale: Optional[float] = None
    return_lse: bool = False
    attn_mask: Optional[torch.Tensor] = None
    dropout_p: float = 0.0
    enable_gqa: bool = False


# What `scaled_dot_product_attention` calls the fields: its order of arguments, then its names.
_SDPA_ORDER = ("q", "k", "v", "attn_mask", "dropout_p", "is_causal")
_SDPA_NAMES = {"query": "q", "key": "k", "value": "v", "scale": "sm_scale"}


def sageattn(*args: Any, **kwargs: Any) -> Union[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """Attention, `softmax(sm_scale * q @ k^T) @ v` per batch and head.

    A call that the gfx1201 kernel supports (bfloat16, head_dim 128, equal shapes, no mask, not causal, no lse, no
    derivatives) runs on it, with INT8 Q K^T and FP8 P V. Every other call gives what
    `torch.nn.functional.scaled_dot_product_attention` gives, derivatives included. Works inside
    `torch.compile(fullgraph=True)`.

    It can stand in for `scaled_dot_product_attention`, and then takes that function's arguments: by its names, or by
    position, where the fourth is a mask or None instead of a layout.

    Args:
        q: [batch, heads, sequence, head_dim] for the layout "HND", [batch, sequence, heads, head_dim] for "NHD". SDPA
            also takes other numbers of dimensions, [..., sequence, head_dim].
        k, v: like q, with their own sequence length. Fewer heads than q's, a divisor, are grouped-query attention.
            Any strides; the kernel reads views in place when the last dimension's stride is 1.
        tensor_layout: "HND" or "NHD".
        is_causal: whether row i attends to keys 0 to i only.
        sm_scale: factor on the scores; None means 1 / sqrt(head_dim). SDPA calls it `scale`.
        return_lse: also return the log-sum-exp of the scores.
        attn_mask: bool, True where a row attends to a key, or numbers that are added to the scores;
            [..., rows, keys], broadcast. Keyword, or fourth by position, as in SDPA.
        dropout_p: probability with which a weight is dropped, as in SDPA.
        enable_gqa: as in SDPA; for four dimensions the numbers of heads decide.

    Returns:
        The output in q's layout and dtype, stored in the order [batch, sequence, heads, head_dim] by the kernel. With
        `return_lse` a pair: the output, and the natural logarithm of the sum of exponentials of the scaled scores,
        float32 [batch, heads, sequence] in both layouts, which carries no gradient.

    Raises:
        TypeError: an argument that is missing, given twice or not listed above, q, k or v that is no tensor, a
            tensor_layout that is no string, or a scale that is no number.
        ValueError: another layout, or a layout "NHD" or `return_lse` for tensors that are not 4-D.
        Anything that SDPA raises, for calls that it receives.
    """
    call = checked(_bound(args, kwargs))
    reason = reason_for_sdpa(call)
    log_route(reason)
    if reason is None:
        return on_the_kernel(call)

    is_hnd = call.tensor_layout == "HND"
    q, k, v = _with_heads_at(1, call)
    enable_gqa = call.enable_gqa
    if q.dim() == 4:
        # A branch, because torch.compile holds the comparison of dynamic sizes as a symbol, which SDPA does not take.
        enable_gqa = True if q.shape[1] != k.shape[1] else False
    out = _scaled_dot_product_attention(
        q, k, v, call.attn_mask, call.dropout_p, call.is_causal, scale=call.sm_scale, enable_gqa=enable_gqa
    )
    out = out if is_hnd else out.transpose(1, 2)
    if not call.return_lse:
        return out
    return out, log_sum_exp(q, k, call.attn_mask, call.is_causal, call.sm_scale)


# What readers and tools see, in the order in which other builds of sage-attention have it.
sageattn.__signature__ = inspect.Signature(
    [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD if position < 7 else inspect.Parameter.KEYWORD_ONLY,
            default=Call._field_defaults.get(name, inspect.Parameter.empty),
        )
        for position, name in enumerate(Call._fields)
    ]
)


def reason_for_sdpa(call: Call) -> Optional[str]:
    """Why the gfx1201 kernel cannot compute a call, in words; None if it can. Reads no data."""
    q, k, v = call.q, call.k, call.v
    if not (q.device == k.device == v.device and _architecture(q.device) == ARCHITECTURE):
        return f"not all tensors are on one {ARCHITECTURE} device"
    if call.attn_mask is not None:
        return "attn_mask is given"
    if call.dropout_p != 0.0:
        return "dropout_p is not 0"
    if call.is_causal:
        return "is_causal is set"
    if call.return_lse:
        return "return_lse is set"
    if not (q.dtype == k.dtype == v.dtype == DTYPE):
        return f"not all tensors are {DTYPE}"
    if q.dim() != 4:
        return "the tensors are not 4-D"
    if q.shape[3] != HEAD_DIM:
        return f"head_dim is not {HEAD_DIM}"
    if not (q.shape == k.shape == v.shape):
        return "the shapes of q, k and v differ"
    batch, sequence = q.shape[0], q.shape[2 if call.tensor_layout == "HND" else 1]
    heads = q.shape[1 if call.tensor_layout == "HND" else 2]
    if not (batch >= 1 and sequence >= 1 and heads >= 1) or is_too_long(sequence):
        return "the tensors are empty or the sequence is too long"
    if not (q.stride(3) == k.stride(3) == v.stride(3) == 1):
        return "the stride of the last dimension is not 1"
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return "a gradient is required"
    if has_tangent(q) or has_tangent(k) or has_tangent(v):
        return "forward-mode derivatives are computed"
    # A number that torch.compile holds as an array has no value yet: the op checks it.
    if isinstance(call.sm_scale, float) and not (-MAX_SOFTMAX_SCALE <= call.sm_scale <= MAX_SOFTMAX_SCALE):
        return "sm_scale is not finite"
    return None


def on_the_kernel(call: Call) -> torch.Tensor:
    """The output of a call for which `reason_for_sdpa` has no reason, in its layout."""
    q, k, v = _with_heads_at(2, call)
    out = gfx1201_sage_attention(q, k, v, call.sm_scale)
    return out.transpose(1, 2) if call.tensor_layout == "HND" else out


def warn_unless_there_is_a_gpu_for_the_kernel() -> None:
    """Says once, when the package is imported, that every call will run on SDPA, if that is so."""
    if torch.version.hip is None:
        found = f"this PyTorch ({torch.__version__}) is not built for ROCm"
    else:
        names = [_name_of(index) for index in range(torch.cuda.device_count())]
        if ARCHITECTURE in names:
            return
        found = f"this machine has no {ARCHITECTURE} GPU (found {', '.join(names) or 'none'})"
        if override := os.environ.get(ARCHITECTURE_OVERRIDE):
            found += f", but {ARCHITECTURE_OVERRIDE} is set to {override}, which replaces the GPU's own architecture"
    _logger.warning("sageattn: all calls run on PyTorch's attention, because %s.", found)


def _bound(args: tuple, kwargs: dict[str, Any]) -> Call:
    """The call that the arguments ask for, in sageattn's order and names or in SDPA's."""
    is_sdpa = len(args) > 3 and not isinstance(args[3], str)
    order = _SDPA_ORDER if is_sdpa else Call._fields[:7]
    if len(args) > len(order):
        raise TypeError(f"sageattn takes {len(order)} arguments by position, got {len(args)}.")
    given = dict(zip(order, args))
    for name, value in kwargs.items():
        field = _SDPA_NAMES.get(name, name)
        if field not in Call._fields:
            raise TypeError(f"sageattn on ROCm has no argument {name!r}: leave it out.")
        if field in given:
            raise TypeError(f"sageattn got {name!r} twice: give it once.")
        given[field] = value
    missing = [name for name in ("q", "k", "v") if name not in given]
    if missing:
        raise TypeError(f"sageattn needs q, k and v, and got no {' and no '.join(missing)}.")
    return Call(**given)


def checked(call: Call) -> Call:
    """The call with its scale as a float. Refuses what neither the kernel nor SDPA would understand as it is meant."""
    q, k, v, layout = call.q, call.k, call.v, call.tensor_layout
    if not (isinstance(q, torch.Tensor) and isinstance(k, torch.Tensor) and isinstance(v, torch.Tensor)):
        names = f"q {type(q).__name__}, k {type(k).__name__}, v {type(v).__name__}"
        raise TypeError(f"sageattn needs tensors as q, k and v, got {names}.")
    if not isinstance(layout, str):
        raise TypeError(f'sageattn needs a string as tensor_layout, got {type(layout).__name__}: pass "HND" or "NHD".')
    if layout not in ("HND", "NHD"):
        raise ValueError(f'sageattn needs tensor_layout "HND" or "NHD", got {layout!r}.')
    if (layout == "NHD" or call.return_lse) and not (q.dim() == k.dim() == v.dim() == 4):
        what = 'tensor_layout "NHD"' if layout == "NHD" else "return_lse"
        dimensions = f"q {q.dim()}-D, k {k.dim()}-D, v {v.dim()}-D"
        raise ValueError(f"sageattn needs 4-D tensors for {what}, got {dimensions}: reshape them.")
    if call.sm_scale is None:
        return call
    if not is_number(call.sm_scale):
        raise TypeError(f"sageattn needs a number or None as sm_scale, got {type(call.sm_scale).__name__}.")
    return call._replace(sm_scale=float(call.sm_scale))


def _with_heads_at(dimension: int, call: Call) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k and v as they are, or transposed, so that the heads are at 1 (SDPA's layout) or at 2 (the kernel's)."""
    if dimension == (1 if call.tensor_layout == "HND" else 2):
        return call.q, call.k, call.v
    return call.q.transpose(1, 2), call.k.transpose(1, 2), call.v.transpose(1, 2)


@torch.compiler.assume_constant_result
def _architecture(device: torch.device) -> str:
    """The device's architecture without feature suffixes; empty for one that is not ROCm's."""
    # A device capability would not do: on gfx1201 it reads (12, 0), like that of an NVIDIA sm120.
    return _name_of(device) if torch.version.hip is not None and device.type == "cuda" else ""


def _name_of(device: Union[torch.device, int]) -> str:
    return torch.cuda.get_device_properties(device).gcnArchName.split(":")[0]


_reported: set[Optional[str]] = set()


# A logger inside a traced function breaks the graph; a call that is evaluated while tracing does not.
@torch.compiler.assume_constant_result
def log_route(reason: Optional[str]) -> None:
    level = logging.DEBUG if reason in _reported else logging.INFO
    _reported.add(reason)
    if reason is None:
        _logger.log(level, "sageattn: %s kernel", ARCHITECTURE)
    else:
        _logger.log(level, "sageattn: SDPA, because %s", reason)
