# SPDX-License-Identifier: MIT
"""SageAttention for RDNA4 (gfx1201): INT8 Q K^T and FP8 P V behind a BF16 interface."""

import os
from typing import NamedTuple

import torch
from torch import Tensor

from ..jit.core import compile_ops, get_user_jit_dir
from ..jit.utils.torch_guard import torch_compile_guard
from .sage_attention_contract import (
    ARCHITECTURE,
    check_device,
    check_inputs,
    check_softmax_scale,
    empty_output,
    let_shards_be_computed,
    resolve_softmax_scale,
)

__all__ = ["gfx1201_sage_attention"]

MODULE = "module_gfx1201_sage_attention"

# HIP's words for hipErrorNoBinaryForGpu.
NO_KERNEL_IMAGE = "no kernel image is available"


def gfx1201_sage_attention(
    q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = None
) -> Tensor:
    """Attention without mask: `softmax(softmax_scale * q @ k^T) @ v`, per batch and head.

    Q is quantised to INT8 per row and K per block of 32 rows, after K's mean is taken
    out and both are rotated, V to FP8 (e4m3) per channel after its mean is taken out;
    all of it happens inside the call. Runs on the current stream of the tensors' device and does
    not wait for it. Forward only. Works inside `torch.compile(fullgraph=True)`.

    Args:
        q, k, v: bfloat16 [batch, sequence, heads, 128], equal shapes, on one gfx1201
            device. Any strides with 1 in the last dimension (views into packed QKV are
            read in place). Every size at least 1. DTensors are computed where they are
            when they are sharded over batch or heads.
        softmax_scale: factor on the scores, finite, of either sign; None means
            1 / sqrt(128).

    Returns:
        bfloat16 [batch, sequence, heads, 128], contiguous.

    Raises:
        TypeError: another dtype, or a softmax_scale that is not a number.
        ValueError: another shape, stride, device or softmax_scale, or a tensor that
            derivatives are wanted of.
        RuntimeError: PyTorch is not built for ROCm, the device is not gfx1201, the
            module does not build, or HIP reports an error.
    """
    check_inputs(q, k, v)
    if type(q) is not Tensor:
        _let_shards_be_computed()
    return _gfx1201_sage_attention_forward(
        q, k, v, resolve_softmax_scale(softmax_scale)
    )


@compile_ops(MODULE, develop=True)
def gfx1201_sage_attention_workspace_bytes(
    batch: int, sequence: int, heads: int
) -> int: ...


@compile_ops(MODULE, develop=True)
def gfx1201_sage_attention_launch(
    out: Tensor,
    workspace: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    softmax_scale: float,
) -> None: ...


class DeviceFacts(NamedTuple):
    """What the host needs to know about the device that holds a tensor."""

    device_type: str
    index: int
    architecture: str


def device_facts(tensor: Tensor) -> DeviceFacts:
    """Asks torch about the device of `tensor`; index and architecture are empty off ROCm."""
    if torch.version.hip is None or tensor.device.type != "cuda":
        return DeviceFacts(tensor.device.type, -1, "")
    index = tensor.device.index
    architecture = torch.cuda.get_device_properties(index).gcnArchName
    return DeviceFacts("cuda", index, architecture)


def _forward_fake(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float) -> Tensor:
    check_inputs(q, k, v)
    return empty_output(q)


@torch_compile_guard(mutates_args=[], gen_fake=_forward_fake)
def _gfx1201_sage_attention_forward(
    q: Tensor, k: Tensor, v: Tensor, softmax_scale: float
) -> Tensor:
    # Everything is refused here, before the module is built: a failed check in the
    # module would abort the process. Compiled graphs arrive without the public function.
    check_inputs(q, k, v)
    check_softmax_scale(softmax_scale)
    device = device_facts(q)
    check_device(torch.version.hip, device.device_type, device.architecture)
    _check_build_architectures()
    batch, sequence, heads, _ = q.shape
    # The module is given the current device's stream.
    with torch.cuda.device(device.index):
        out = empty_output(q)
        # Torch's allocator reuses freed memory in stream order, so the workspace may be
        # dropped while kernels still run.
        workspace = torch.empty(
            gfx1201_sage_attention_workspace_bytes(batch, sequence, heads),
            dtype=torch.uint8,
            device=q.device,
        )
        try:
            gfx1201_sage_attention_launch(out, workspace, q, k, v, softmax_scale)
        except RuntimeError as error:
            if NO_KERNEL_IMAGE not in str(error):
                raise
            raise RuntimeError(
                f"{MODULE}.so in {get_user_jit_dir()} has no code for {ARCHITECTURE}, "
                "because it was built for other GPUs: delete it, or set AITER_REBUILD=1 once."
            ) from error
    return out


def _check_build_architectures() -> None:
    """Refuses to build a module that this GPU could not run. RuntimeError."""
    architectures = os.environ.get("GPU_ARCHS", "native").split(";")
    if not {"native", ARCHITECTURE} & set(architectures):
        raise RuntimeError(
            f"GPU_ARCHS is {';'.join(architectures)}, so aiter builds for other GPUs than "
            f"this {ARCHITECTURE}: add {ARCHITECTURE} to it, or unset it."
        )


@torch.compiler.assume_constant_result
def _let_shards_be_computed() -> None:
    let_shards_be_computed(torch.ops.aiter._gfx1201_sage_attention_forward.default)
