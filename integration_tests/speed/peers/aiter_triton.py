# SPDX-License-Identifier: MIT
"""The Triton flash attention of PyPI's amd-aiter, compiled for gfx1201 and launched on the virtual device.

ROCm/aiter's pull request 2397 published speeds of this kernel on gfx1201 with the tile sizes below. The package does
not import without ROCm, so its kernel is loaded by file, with empty parent packages and a stand-in for Triton's driver.
"""

import functools
import importlib
import sys
import types
from importlib.metadata import distribution
from unittest import mock

import torch
from triton.runtime import driver

from integration_tests.speed.peers.triton_kernels import TARGET, CompiledKernel, compile_kernel
from integration_tests.virtual_gpu import VirtualGpu

KERNEL = "attn_fwd"
QUERY_BLOCK, KEY_BLOCK, WARPS, WAVES_PER_SIMD, HEAD_DIM = 128, 32, 8, 6, 128
FOLDER = "aiter.ops.triton._triton_kernels.flash_attn_triton_amd"


class _Driver:
    """What the package asks of Triton's driver when it is imported."""

    def get_current_target(self):
        return TARGET

    def get_active_torch_device(self):
        return torch.device("cpu")

    def get_benchmarker(self):
        return lambda *_, **__: 0.0


def package_kernel():
    """The package's kernel, without its autotuner, whichever aiter this process may have imported."""
    root = distribution("amd-aiter").locate_file("")
    parents = {}
    for depth in range(1, FOLDER.count(".") + 2):
        name = ".".join(FOLDER.split(".")[:depth])
        parents[name] = types.ModuleType(name)
        parents[name].__path__ = [str(root / name.replace(".", "/"))]
    properties = types.SimpleNamespace(multi_processor_count=64, gcnArchName="gfx1201")
    others = {name: module for name, module in sys.modules.items() if name.split(".")[0] != "aiter"}
    with (
        mock.patch.dict(sys.modules, others | parents, clear=True),
        mock.patch.object(torch.cuda, "get_device_properties", lambda *_: properties),
        mock.patch.object(driver, "_active", _Driver()),
    ):
        kernel = importlib.import_module(f"{FOLDER}.fwd_prefill").attn_fwd
    while not hasattr(kernel, "arg_names") or hasattr(kernel, "configs"):
        kernel = kernel.fn
    return kernel


@functools.cache
def attention_kernel(sequence: int, heads: int) -> CompiledKernel:
    """The kernel as the package would specialise it for bfloat16 without mask, bias or dropout."""
    pointers = dict.fromkeys(("Q", "K", "V", "Out"), "*bf16") | {"LSE": "*fp32"}
    strides = dict.fromkeys(_stride_names(), "i32")
    constants = {
        **{f"stride_{name}": 1 for name in ("qk", "kk", "vn", "on", "lse_m")},
        **{"HQ": heads, "HK": heads, "ACTUAL_BLOCK_DMODEL_QK": HEAD_DIM, "ACTUAL_BLOCK_DMODEL_V": HEAD_DIM},
        **{"MAX_SEQLENS_Q": sequence, "MAX_SEQLENS_K": sequence, "SM_SCALE": HEAD_DIM**-0.5, "USE_EXP2": True},
        **{"BLOCK_M": QUERY_BLOCK, "BLOCK_N": KEY_BLOCK, "BLOCK_DMODEL_QK": HEAD_DIM, "BLOCK_DMODEL_V": HEAD_DIM},
        **{"WINDOW_SIZE_LEFT": -1, "WINDOW_SIZE_RIGHT": -1, "FP8_MAX": 448.0, "dropout_p": 0.0},
    }
    kernel = package_kernel()
    for name in kernel.arg_names:
        if name not in pointers and name not in strides and name not in constants:
            absent = name in ("bias", "SD_MASK", "ALIBI_SLOPES") or name.endswith(("_Descale", "_q", "_k"))
            constants[name] = None if absent else 0 if name.startswith(("stride_", "philox_")) else False
    options = {"num_warps": WARPS, "num_stages": 1, "waves_per_eu": WAVES_PER_SIMD}
    return compile_kernel(kernel, {**pointers, **strides}, constants, (*pointers, *strides), **options)


def _stride_names() -> list[str]:
    axes = {"q": "zhm", "k": "zhn", "v": "zhk", "o": "zhm", "lse_": "zh"}
    return [f"stride_{tensor}{axis}" for tensor, names in axes.items() for axis in names]


def aiter_flash_attention(gpu: VirtualGpu, q, k, v) -> torch.Tensor:
    """softmax(q k^T / sqrt(128)) v for contiguous bfloat16 [batch, sequence, heads, 128], sequence in steps of 128."""
    batch, sequence, heads, _ = q.shape
    if sequence % QUERY_BLOCK:
        raise ValueError(f"sequence must be a multiple of {QUERY_BLOCK}, got {sequence}")
    out, log_sums = torch.empty_like(q), torch.empty(batch, heads, sequence)
    rows = (q.stride(0), q.stride(2), q.stride(1))
    arguments = (q, k, v, log_sums, out, *rows * 4, log_sums.stride(0), log_sums.stride(1))
    grid = (batch, heads, sequence // QUERY_BLOCK)
    attention_kernel(sequence, heads).launch(gpu, grid, *arguments)
    return out
