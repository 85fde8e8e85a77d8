# SPDX-License-Identifier: MIT
"""PyPI's `sageattention` 1.0.6 (Triton: INT8 Q K^T, FP16 P V), compiled for gfx1201 and launched on the virtual device.

Nothing of it is ours: the kernels' source is the package's, the compiler is Triton's. That makes it a check of the
virtual device and, later, a peer to compare with.
"""

import functools
import importlib.util
from pathlib import Path

import torch

from integration_tests.speed.peers.triton_kernels import LOG2_E, CompiledKernel, compile_kernel
from integration_tests.virtual_gpu import VirtualGpu

QUERY_BLOCK, KEY_BLOCK = 128, 64  # rows per scale, as the package calls them


def package_module(name: str):
    """One module of the package, loaded by file: the package itself imports its CUDA side."""
    folder = Path(importlib.util.find_spec("sageattention").origin).parent
    spec = importlib.util.spec_from_file_location(f"sageattention_{name}", folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def quantise_kernel(block: int) -> CompiledKernel:
    """bfloat16 rows -> int8 and one scale per `block` rows."""
    tensor_strides = [f"stride_{tensor}{axis}" for tensor in "io" for axis in "zhn"]
    pointers = {"Input": "*bf16", "Output": "*i8", "Scale": "*fp32"}
    strides = dict.fromkeys((*tensor_strides, "stride_sz", "stride_sh"), "i32")
    signature = {**pointers, "L": "i32", **strides, "sm_scale": "fp32"}
    function = package_module("quant_per_block").quant_per_block_int8_kernel
    return compile_kernel(function, signature, {"C": 128, "BLK": block}, (*pointers, *tensor_strides))


@functools.cache
def attention_kernel(heads: int) -> CompiledKernel:
    """int8 Q and K with scales, float16 V -> bfloat16."""
    pointers = {"Q": "*i8", "K": "*i8", "V": "*fp16", "Q_scale": "*fp32", "K_scale": "*fp32", "Out": "*bf16"}
    strides = {f"stride_{tensor}{axis}": "i32" for tensor in "qkvo" for axis in "zhn"}
    constants = {
        "H": heads,
        "num_kv_groups": 1,
        "HEAD_DIM": 128,
        "BLOCK_M": QUERY_BLOCK,
        "BLOCK_N": KEY_BLOCK,
        "STAGE": 1,
    }
    function = package_module("attn_qk_int8_per_block")._attn_fwd
    signature = {**pointers, **strides, "qo_len": "i32", "kv_len": "i32"}
    return compile_kernel(function, signature, constants, (*pointers, *strides), num_warps=8, num_stages=1)


def triton_sage_attention(gpu: VirtualGpu, q, k, v, softmax_scale: float) -> torch.Tensor:
    """The package's attention, K's mean taken out as it does: bfloat16 [batch, sequence, heads, 128]."""
    batch, sequence, heads, _ = q.shape
    k = (k - k.mean(dim=1, keepdim=True)).contiguous()
    quantised = []
    for rows, block, scale in ((q, QUERY_BLOCK, softmax_scale * LOG2_E), (k, KEY_BLOCK, 1.0)):
        integers = torch.empty(rows.shape, dtype=torch.int8)
        scales = torch.empty(batch, heads, -(-sequence // block))
        strides = [(x.stride(0), x.stride(2), x.stride(1)) for x in (rows, integers)]
        grid = (scales.shape[2], heads, batch)
        scale_strides = (scales.stride(0), scales.stride(1))
        arguments = (rows, integers, scales, sequence, *strides[0], *strides[1], *scale_strides, scale)
        quantise_kernel(block).launch(gpu, grid, *arguments)
        quantised.append((integers, scales))
    (q8, q_scale), (k8, k_scale) = quantised
    out, v16 = torch.empty(q.shape, dtype=torch.bfloat16), v.to(torch.float16)
    strides = [(x.stride(0), x.stride(2), x.stride(1)) for x in (q8, k8, v16, out)]
    grid = (-(-sequence // QUERY_BLOCK), heads, batch)
    arguments = (q8, k8, v16, q_scale, k_scale, out, *(s for triple in strides for s in triple), sequence, sequence)
    attention_kernel(heads).launch(gpu, grid, *arguments)
    return out
