# SPDX-License-Identifier: MIT
"""SageAttention for AMD RDNA4 (gfx1201): INT8 Q K^T and FP8 P V behind a BF16 interface."""

from typing import Optional

import torch

from . import hip_module
from ._ops import add_op_namespace_prefix
from .sage_attention_contract import (
    check_gradients,
    check_inputs,
    check_softmax_scale,
    empty_output,
    let_shards_be_computed,
    resolve_softmax_scale,
)

__all__ = ["gfx1201_sage_attention"]


def gfx1201_sage_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: Optional[float] = None
) -> torch.Tensor:
    """Attention without mask: `softmax(softmax_scale * q @ k^T) @ v`, per batch and head.

    Q is quantised to INT8 per row and K per block of 32 rows, after K's mean is taken out and both are rotated, V to
    FP8 (e4m3) per channel after its mean is taken out; all of it happens inside the call. Runs on the current stream
    of the tensors' device and does not wait for it. Forward only. Works inside `torch.compile(fullgraph=True)`.

    Args:
        q, k, v: bfloat16 [batch, sequence, heads, 128], equal shapes, on one gfx1201 device. Any strides with 1 in
            the last dimension (views into packed QKV are read in place). Every size at least 1. DTensors are computed
            where they are when they are sharded over batch or heads.
        softmax_scale: factor on the scores, finite, of either sign; None means 1 / sqrt(128).

    Returns:
        bfloat16 [batch, sequence, heads, 128], contiguous.

    Raises:
        TypeError: another dtype, or a softmax_scale that is not a number.
        ValueError: another shape, stride, device or softmax_scale, or a tensor that derivatives are wanted of.
        RuntimeError: PyTorch is not built for ROCm, the device is not gfx1201, the package's code object is damaged,
            or HIP reports an error.
    """
    if torch.compiler.is_compiling():
        # Traced with the caller's code, a refusal stays what it is; from the op's fake it would be Dynamo's error.
        check_inputs(q, k, v)
    else:
        # The op checks everything else, and cannot check this: it runs below autograd, with grad disabled.
        check_gradients(q, k, v)
    if type(q) is not torch.Tensor:
        _let_shards_be_computed()
    return _sage_attention_forward(q, k, v, resolve_softmax_scale(softmax_scale))


@torch.library.custom_op(add_op_namespace_prefix("sage_attention_forward"), mutates_args=())
def _sage_attention_forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float) -> torch.Tensor:
    # Compiled graphs and torch.ops callers arrive here without the public function.
    check_inputs(q, k, v)
    check_softmax_scale(softmax_scale)
    return hip_module.launch(q, k, v, softmax_scale)


@_sage_attention_forward.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float) -> torch.Tensor:
    check_inputs(q, k, v)
    return empty_output(q)


@torch.compiler.assume_constant_result
def _let_shards_be_computed() -> None:
    let_shards_be_computed(_sage_attention_forward._opoverload)
