# SPDX-License-Identifier: MIT
"""ROCm/aiter's FlyDSL BF16 flash attention for gfx1201, compiled without a GPU and run on the virtual device.

    python -m integration_tests.speed.peers.flydsl_flash CHECKOUT OUT.hsaco HEADS

needs a checkout of ROCm/aiter (the kernel's source is in no package) and the `flydsl` wheel. It is a program of its own
because it puts an empty `aiter` package in front of the checkout's files: the real one does not import without ROCm.
"""

import functools
import os
import struct
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import torch

from integration_tests.virtual_gpu import VirtualGpu

KERNEL = "flash_attn_func_kernel_0"
QUERY_BLOCK, KEY_BLOCK, THREADS, HEAD_DIM = 128, 32, 256, 128
PACKAGES = ("aiter", "aiter/ops", "aiter/ops/flydsl", "aiter/ops/flydsl/kernels")


def embedded_object(module: str) -> bytes:
    """The ELF in the text of an MLIR module: a string with quotes, backslashes and other bytes as \\hh."""
    start = module.index("\\7FELF")
    text, result, at = module[start : module.index('"', start)], bytearray(), 0
    while at < len(text):
        if text[at] != "\\":
            result.append(ord(text[at]))
            at += 1
        elif text[at + 1] in '\\"':
            result.append(ord(text[at + 1]))
            at += 2
        else:
            result.append(int(text[at + 1 : at + 3], 16))
            at += 3
    return bytes(result)


def compile_here(checkout: Path, heads: int) -> bytes:
    """Compiles in this process, which is then of no other use."""
    for package in PACKAGES:
        module = types.ModuleType(package.replace("/", "."))
        module.__path__ = [str(checkout / package)]
        sys.modules[module.__name__] = module
    with tempfile.TemporaryDirectory() as scratch:
        linker = Path(scratch) / "rocm" / "llvm" / "bin" / "ld.lld"
        linker.parent.mkdir(parents=True)
        linker.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang ld.lld "$@"\n')
        linker.chmod(0o755)
        os.environ.update(
            ROCM_PATH=str(Path(scratch) / "rocm"),
            PATH=f"{linker.parent}:{os.environ['PATH']}",
            COMPILE_ONLY="1",
            ARCH="gfx1201",
            FLYDSL_GPU_ARCH="gfx1201",
            FLYDSL_DUMP_IR="1",
            FLYDSL_DUMP_DIR=scratch,
            FLYDSL_RUNTIME_ENABLE_CACHE="0",
        )
        from aiter.ops.flydsl.kernels import flash_attn_func_gfx1201

        launch = flash_attn_func_gfx1201.build_flash_attn_func_module(heads, HEAD_DIM, causal=False)
        tensors = [torch.zeros(QUERY_BLOCK * heads * HEAD_DIM, dtype=torch.bfloat16) for _ in range(4)]
        launch.compile(*tensors, 1, QUERY_BLOCK)
        (dump,) = Path(scratch).rglob("*_gpu_module_to_binary.mlir")
        return embedded_object(dump.read_text())


@functools.cache
def code_object(checkout: Path, heads: int) -> bytes:
    """The kernel for `heads` heads, compiled in a process of its own. RuntimeError with its output when that fails."""
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "kernel.hsaco"
        command = [sys.executable, "-m", "integration_tests.speed.peers.flydsl_flash", checkout, out, heads]
        result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
        if result.returncode:
            raise RuntimeError(f"flydsl did not compile {checkout}:\n{result.stderr[-2000:]}")
        return out.read_bytes()


def flydsl_flash_attention(gpu: VirtualGpu, checkout: Path, q, k, v) -> torch.Tensor:
    """softmax(q k^T / sqrt(128)) v for contiguous bfloat16 [batch, sequence, heads, 128], sequence in steps of 128."""
    batch, sequence, heads, _ = q.shape
    if sequence % QUERY_BLOCK:
        raise ValueError(f"sequence must be a multiple of {QUERY_BLOCK}, got {sequence}")
    out = torch.empty_like(q)
    module = gpu.load_module(code_object(checkout, heads))
    arguments = struct.pack("QQQQi", *(x.data_ptr() for x in (q, k, v, out)), sequence)
    try:
        gpu.launch(module.function(KERNEL), (batch * sequence // QUERY_BLOCK * heads,), (THREADS,), arguments)
    finally:
        module.unload()
    return out


if __name__ == "__main__":
    Path(sys.argv[2]).write_bytes(compile_here(Path(sys.argv[1]), int(sys.argv[3])))
