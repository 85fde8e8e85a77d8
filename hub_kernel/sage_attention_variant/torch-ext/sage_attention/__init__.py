# SPDX-License-Identifier: MIT
"""sage-attention for ROCm: `sageattn` with the kernel for AMD RDNA4 (gfx1201), and PyTorch's SDPA for the rest."""

from .core import sageattn, warn_unless_there_is_a_gpu_for_the_kernel
from .quant import per_block_int8, per_channel_fp8, per_warp_int8, sub_mean
from .sdpa_replacement import replace_sdpa

__all__ = ["per_block_int8", "per_channel_fp8", "per_warp_int8", "replace_sdpa", "sageattn", "sub_mean"]

warn_unless_there_is_a_gpu_for_the_kernel()
