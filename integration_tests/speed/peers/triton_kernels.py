# SPDX-License-Identifier: MIT
"""Triton kernels compiled for gfx1201 on a machine without a GPU, and their launch on the virtual device."""

import struct
from dataclasses import dataclass

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from integration_tests.virtual_gpu import VirtualGpu

TARGET = GPUTarget("hip", "gfx1201", 32)
LOG2_E = 1.44269504


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


def compile_kernel(
    function, signature: dict[str, str], constants: dict, divisible_by_16: tuple[str, ...] = (), **options
) -> CompiledKernel:
    """Compiles a Triton function for gfx1201.

    `divisible_by_16` names the arguments that Triton's launcher would find to be multiples of 16 and specialise on.
    """
    types = {name: signature.get(name, "constexpr") for name in function.arg_names}
    attributes = {(function.arg_names.index(name),): [["tt.divisibility", 16]] for name in divisible_by_16}
    source = ASTSource(function, signature=types, constexprs=constants, attrs=attributes)
    compiled = triton.compile(source, target=TARGET, options=options)
    metadata = compiled.metadata
    kinds = tuple(kind for kind in types.values() if kind != "constexpr")
    # Triton asks for LDS at launch; its code object declares none.
    return CompiledKernel(metadata.name, compiled.asm["hsaco"], metadata.num_warps * 32, metadata.shared, kinds)
