# SPDX-License-Identifier: MIT
"""The package's quantisation functions: they prepare operands of its CUDA kernels, which are not in this variant."""

from typing import Any, NoReturn


def per_block_int8(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: the CUDA kernels' INT8 blocks of Q and K have no reader on ROCm."""
    _refuse("per_block_int8")


def per_warp_int8(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: the CUDA kernels' INT8 warps of Q and blocks of K have no reader on ROCm."""
    _refuse("per_warp_int8")


def sub_mean(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: the CUDA kernels' FP16 V without its mean has no reader on ROCm."""
    _refuse("sub_mean")


def per_channel_fp8(*args: Any, **kwargs: Any) -> NoReturn:
    """Raises NotImplementedError: the CUDA kernels' transposed and permuted FP8 V has no reader on ROCm."""
    _refuse("per_channel_fp8")


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"sage_attention.{name} prepares operands of the CUDA kernels, which the ROCm variant does not have: "
        "call sageattn, which quantises inside."
    )
