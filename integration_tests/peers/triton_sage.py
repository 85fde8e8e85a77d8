# SPDX-License-Identifier: MIT
"""PyPI's `sageattention` 1.0.6 (Triton: INT8 Q K^T, FP16 P V), compiled for gfx1201 and launched on the virtual device.

Nothing of it is ours: the kernels' source is the package's, the compiler is Triton's. That makes it a check of the
virtual device and, later, a peer to compare with.
"""

import functools
import importlib.util
import struct
from dataclasses import dataclass
from pathlib import Path

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from integration_tests.virtual_gpu import VirtualGpu

TARGET = GPUTarget("hip", "gfx1201", 32)
LOG2_E = 1.44269504
QUERY_BLOCK, KEY_BLOCK = 128, 64  # rows per scale, as the package calls them


@dataclass(frozen=True)
class CompiledKernel:
    """A gfx1201 code object from Triton, with what a launch of it needs."""

    name: str
    code_object: bytes
    threads: int
    lds_bytes: int
    argument_types: tuple[str, ...]

    def launch(self, gpu: VirtualGpu, grid: tuple[int, ...], *arguments) -> None:
        """Tensors and numbers in the order of the kernel's signature, without its constants."""
        packed = b""
        for value, kind in zip(arguments, self.argument_types, strict=True):
            code = "Q" if kind.startswith("*") else {"i32": "i", "i64": "q", "fp32": "f"}[kind]
            packed += bytes(-len(packed) % struct.calcsize(code))
            packed += struct.pack(code, value.data_ptr() if isinstance(value, torch.Tensor) else value)
        # Triton appends two pointers to scratch memory that these kernels do not use.
        packed += bytes(-len(packed) % 8 + 16)
        module = gpu.load_module(self.code_object)
        try:
            gpu.launch(module.function(self.name), grid, (self.threads,), packed, lds=self.lds_bytes)
        finally:
            module.unload()


def package_module(name: str):
    """One module of the package, loaded by file: the package itself imports its CUDA side."""
    folder = Path(importlib.util.find_spec("sageattention").origin).parent
    spec = importlib.util.spec_from_file_location(f"sageattention_{name}", folder / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_kernel(function, signature: dict[str, str], constants: dict, **options) -> CompiledKernel:
    """Compiles a Triton function for gfx1201 on a machine without a GPU."""
    types = {name: signature.get(name, "constexpr") for name in function.arg_names}
    source = ASTSource(function, signature=types, constexprs=constants)
    compiled = triton.compile(source, target=TARGET, options=options)
    metadata = compiled.metadata
    kinds = tuple(kind for kind in types.values() if kind != "constexpr")
    # Triton asks for LDS at launch; its code object declares none.
    return CompiledKernel(metadata.name, compiled.asm["hsaco"], metadata.num_warps * 32, metadata.shared, kinds)


@functools.cache
def quantise_kernel(block: int) -> CompiledKernel:
    """bfloat16 rows -> int8 and one scale per `block` rows."""
    strides = dict.fromkeys(
        ("L", "stride_iz", "stride_ih", "stride_in", "stride_oz", "stride_oh", "stride_on", "stride_sz", "stride_sh"),
        "i32",
    )
    signature = {"Input": "*bf16", "Output": "*i8", "Scale": "*fp32", **strides, "sm_scale": "fp32"}
    function = package_module("quant_per_block").quant_per_block_int8_kernel
    return compile_kernel(function, signature, {"C": 128, "BLK": block})


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
    return compile_kernel(function, signature, constants, num_warps=8, num_stages=1)


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
