# SPDX-License-Identifier: MIT
"""What `gfx1201_sage_attention(q, k, v, softmax_scale)` accepts, in every delivery.

Each refusal is one sentence: what is needed, what was given, what to do. All of them are raised before anything is
launched. The exception's type tells the kind of mistake: TypeError for a wrong dtype or a scale that is no number,
ValueError for any other argument, RuntimeError for a machine that cannot run the kernel.

Sizes and scales may be symbols while torch.compile or torch.export traces a call. What would tie a graph to one range
of them is checked when the graph runs, by the op.
"""

from __future__ import annotations  # Python 3.9 reads "float | None" only unevaluated

import functools
import math
import os
import sys

import torch
from torch.autograd import forward_ad

ARCHITECTURE = "gfx1201"
HEAD_DIM = 128
DTYPE = torch.bfloat16
DEFAULT_SOFTMAX_SCALE = 1.0 / math.sqrt(HEAD_DIM)

# HIP counts a grid's threads per axis in 32 bits, and the kernels use one thread per row of the sequence (256 rows
# for 256 threads).
MAX_SEQUENCE = 2**32 - 256

# ROCm then reports this architecture instead of the GPU's own.
ARCHITECTURE_OVERRIDE = "HSA_OVERRIDE_GFX_VERSION"

# The kernel takes the scale as a float32.
MAX_SOFTMAX_SCALE = torch.finfo(torch.float32).max


def check_inputs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Refuses tensors that the kernels cannot take.

    Accepts bfloat16 [batch, sequence, heads, 128] of equal shape on one device, every size >= 1, any strides as long
    as the last dimension's is 1. Reads no data, so meta and fake tensors can be checked too.

    Raises:
        TypeError: a dtype other than bfloat16.
        ValueError: number of dimensions, head_dim, unequal or empty shapes, sequence length, last stride, devices, or
            a tensor that derivatives are wanted of.
    """
    # torch makes sizes and strides anew at each access, and this runs in every call: each is read once.
    _check_shapes(q.shape, k.shape, v.shape)
    if not (q.dtype == k.dtype == v.dtype == DTYPE):
        raise TypeError(
            f"gfx1201_sage_attention needs bfloat16, got q {_name(q.dtype)}, k {_name(k.dtype)}, v {_name(v.dtype)}: "
            "cast all three with .to(torch.bfloat16)."
        )
    if not (q.stride()[3] == k.stride()[3] == v.stride()[3] == 1):
        raise ValueError(
            "gfx1201_sage_attention needs stride 1 in the last dimension, "
            f"got q {q.stride(3)}, k {k.stride(3)}, v {v.stride(3)}: call .contiguous() on the tensor."
        )
    if not (q.device == k.device == v.device):
        raise ValueError(
            "gfx1201_sage_attention needs q, k and v on one device, "
            f"got q {q.device}, k {k.device}, v {v.device}: move them with .to(device)."
        )
    check_gradients(q, k, v)


def check_gradients(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Refuses tensors that derivatives are wanted of. Part of `check_inputs`; custom ops run below autograd.

    Raises:
        ValueError: a tensor requires grad while grad is enabled, or carries a tangent of forward-mode derivatives.
    """
    named = (("q", q), ("k", k), ("v", v))
    if torch.is_grad_enabled() and (
        q.requires_grad or k.requires_grad or v.requires_grad
    ):
        names = [name for name, tensor in named if tensor.requires_grad]
        raise ValueError(
            "gfx1201_sage_attention computes no gradients, but grad is enabled and required by "
            f"{', '.join(names)}: call it under torch.no_grad() or torch.inference_mode()."
        )
    if has_tangent(q) or has_tangent(k) or has_tangent(v):
        names = [name for name, tensor in named if has_tangent(tensor)]
        raise ValueError(
            "gfx1201_sage_attention computes no forward-mode derivatives, but a tangent is carried by "
            f"{', '.join(names)}: use another attention under torch.func.jvp and dual_level."
        )


def has_tangent(tensor: torch.Tensor) -> bool:
    """Whether forward-mode derivatives (torch.func.jvp, torch.autograd.forward_ad) are computed through `tensor`."""
    return forward_ad.unpack_dual(tensor).tangent is not None


def _check_shapes(q: torch.Size, k: torch.Size, v: torch.Size) -> None:
    if not (len(q) == len(k) == len(v) == 4):
        raise ValueError(
            "gfx1201_sage_attention needs 4-D tensors [batch, sequence, heads, 128], "
            f"got q {len(q)}-D, k {len(k)}-D, v {len(v)}-D: reshape them."
        )
    if not (q[3] == k[3] == v[3] == HEAD_DIM):
        raise ValueError(
            f"gfx1201_sage_attention needs head_dim {HEAD_DIM}, "
            f"got q {q[3]}, k {k[3]}, v {v[3]}: use another attention for other sizes."
        )
    if not (q == k == v):
        raise ValueError(
            "gfx1201_sage_attention needs equal shapes, "
            f"got q {list(q)}, k {list(k)}, v {list(v)}: "
            "use another attention for cross-attention and grouped-query attention."
        )
    batch, sequence, heads, _ = q
    if not (batch >= 1 and sequence >= 1 and heads >= 1):
        raise ValueError(
            "gfx1201_sage_attention needs batch, sequence and heads of at least 1, "
            f"got {list(q)}: skip the call for empty tensors."
        )
    if is_too_long(sequence):
        raise ValueError(
            f"gfx1201_sage_attention needs a sequence of at most {MAX_SEQUENCE}, got {sequence}: split the sequence."
        )


def is_too_long(sequence: int) -> bool:
    """Whether a sequence has more rows than a launch can hold; False while a graph is traced, for any length."""
    is_traced = torch.compiler.is_compiling() or isinstance(sequence, torch.SymInt)
    return not is_traced and sequence > MAX_SEQUENCE


def resolve_softmax_scale(softmax_scale: float | None) -> float:
    """The factor on Q K^T as a float: the given number, or 1 / sqrt(128) for None. Zero averages V.

    Takes what `scaled_dot_product_attention` takes: Python's and NumPy's numbers, and tensors of one element.
    Looks at no value: `check_softmax_scale` does.

    Raises:
        TypeError: neither a number nor None.
    """
    if softmax_scale is None:
        return DEFAULT_SOFTMAX_SCALE
    if not is_number(softmax_scale):
        raise TypeError(
            "gfx1201_sage_attention needs softmax_scale as a number or None, "
            f"got {type(softmax_scale).__name__}: convert it with float()."
        )
    return float(softmax_scale)


def is_number(value: object) -> bool:
    """Whether `value` is a number: Python's, NumPy's, or a tensor of one element."""
    # torch.compile knows the type of what it traces, and not whether that has an attribute.
    return isinstance(value, (int, float)) or (
        not isinstance(value, (str, bytes)) and hasattr(value, "__float__")
    )


def check_softmax_scale(softmax_scale: float) -> None:
    """Refuses a factor that is not finite in float32. For the op: in a compiled graph the value is known only there.

    Raises:
        ValueError: NaN, infinite, or beyond float32.
    """
    if not (-MAX_SOFTMAX_SCALE <= softmax_scale <= MAX_SOFTMAX_SCALE):
        raise ValueError(
            "gfx1201_sage_attention needs a softmax_scale that is finite in float32, "
            f"got {softmax_scale}: check what it was computed from."
        )


def check_device(hip_version: str | None, device_type: str, architecture: str) -> None:
    """Refuses a machine that cannot run the code object.

    Args:
        hip_version: `torch.version.hip`, None in builds of torch that are not for ROCm.
        device_type: type of the tensors' device; ROCm's is "cuda".
        architecture: `gcnArchName` of that device, with or without feature suffixes ("gfx1201:sramecc+:xnack-").

    Raises:
        RuntimeError: torch is not built for ROCm, or the device is not gfx1201.
        ValueError: the tensors are not on a ROCm device.
    """
    if hip_version is None:
        raise RuntimeError(
            f"gfx1201_sage_attention needs PyTorch built for ROCm, got {torch.__version__}: "
            "install a ROCm build of PyTorch or use another attention."
        )
    if device_type != "cuda":
        raise ValueError(
            "gfx1201_sage_attention needs tensors on a ROCm device, "
            f'got {device_type} tensors: move them with .to("cuda").'
        )
    name = architecture.split(":")[0]
    if name != ARCHITECTURE:
        override = os.environ.get(ARCHITECTURE_OVERRIDE)
        raise RuntimeError(
            f"gfx1201_sage_attention needs a {ARCHITECTURE} GPU (RDNA4), got {name}: "
            + (
                f"unset {ARCHITECTURE_OVERRIDE}, which is {override} and replaces the GPU's own architecture."
                if override
                else "use another attention on this device."
            )
        )


def empty_output(q: torch.Tensor) -> torch.Tensor:
    """The result's buffer: bfloat16, q's shape and device, contiguous whatever q's strides. Also the op's fake."""
    return torch.empty_like(q, memory_format=torch.contiguous_format)


def let_shards_be_computed(op: torch._ops.OpOverload) -> None:
    """Lets `op(q, k, v, softmax_scale)` take DTensors: batches and heads are independent of one another, so tensors that
    are sharded over these are computed where they are. Over rows or channels they are gathered first.
    """
    if (
        "torch.distributed.tensor" in sys.modules
    ):  # else there is no DTensor, and importing it takes a second
        _register_sharding(op)


@functools.cache
def _register_sharding(op: torch._ops.OpOverload) -> None:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.experimental import register_sharding

    placements = [Shard(0), Shard(2), Replicate()]

    @register_sharding(op)
    def shardings(q, k, v, softmax_scale):
        return [([place], [place, place, place, None]) for place in placements]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).replace("torch.", "")
