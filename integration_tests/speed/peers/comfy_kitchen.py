# SPDX-License-Identifier: MIT
"""The INT8 attention of PyPI's `comfy-kitchen`, which ComfyUI installs, on the virtual device.

Nothing of it is ours and nothing is patched: the wheel's own code object for gfx1201 and its own launcher run as they
are. What CPU torch lacks is what `rocm_torch` gives it, inside which everything here must run:

- Importing the package loads its extension, which is linked to libamdhip64.so.7: the virtual device, once that is
  loaded. `torch.version.hip` must be set by then, or the package takes itself to be on CUDA.
- For each call it asks `torch.cuda.current_stream` of the tensors' device, which `rocm_torch` answers for CPU tensors.

Its public `int8_attention` wants tensors that say they are on a GPU and `torch.cuda.is_available`, which stays False
(harness/rocm_torch.py). Called is therefore the function below it, which is all that it does with unmasked bfloat16
tensors of 128 channels.
"""

import functools
from types import ModuleType

import torch

NAME = "comfy-kitchen"
# int8_attn_kernel<128 channels, 64 keys, no mask, bfloat16, false>, as the wheel's code object spells it.
KERNEL = (
    "_ZN5comfy11hip_backend4sage12_GLOBAL__N_116int8_attn_kernelILi128ELi64ELNS1_8MaskModeE0EDF16bLb0EEEv"
    "PKaS6_S6_PT2_PKfSA_SA_PKvlllliiiiiillllllllllfPKlPfi"
)
# One launch each of these for the key that all others are taken relative to, Q, K and V precedes the main kernel's.
PROLOGUE = ("detect_k_anchor_kernel", "quant_q_int8_kernel", "quant_k_int8_kernel", "quant_v_int8_kernel")
QUERY_BLOCK, KEY_BLOCK = 128, 64


@functools.cache
def package() -> ModuleType:
    """The package's HIP side. ImportError when this platform's wheel has none or it did not load."""
    from comfy_kitchen.backends import hip

    if not hip._EXT_AVAILABLE:
        raise ImportError(f"comfy-kitchen: {hip._EXT_ERROR}")
    return hip


def comfy_kitchen_attention(q, k, v, softmax_scale: float) -> torch.Tensor:
    """softmax(softmax_scale q k^T) v for bfloat16 [batch, sequence, heads, 128] with last stride 1, on any length."""
    by_head = (x.transpose(1, 2) for x in (q, k, v))
    return package().sage_int8_sdpa(*by_head, attention_scale=softmax_scale, attn_mask=None).transpose(1, 2)
