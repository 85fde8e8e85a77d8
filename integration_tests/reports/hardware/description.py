# SPDX-License-Identifier: MIT
"""Describes the GPU and the software that the measurements were made with."""

import ctypes
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

import torch

from integration_tests.harness.gpu_finder import hip_runtime, is_virtual_runtime
from integration_tests.harness.hardware_record import Gpu, Versions
from integration_tests.paths import REPOSITORY

PACKAGES = ("kernels", "diffusers", "amd-aiter", "triton", "pytorch-triton-rocm")

# PyTorch may keep its fused backends of SDPA behind it.
FUSED_SDPA = "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL"
# Settings of ROCm and PyTorch that change which attention or which architecture is used.
SETTINGS = ("HSA_OVERRIDE_GFX_VERSION", FUSED_SDPA)


def describe_gpu(index: int) -> Gpu:
    properties = torch.cuda.get_device_properties(index)
    return Gpu(
        name=properties.name,
        architecture=properties.gcnArchName,
        memory_bytes=properties.total_memory,
        compute_units=properties.multi_processor_count,
        driver=_driver(),
    )


def describe_versions() -> Versions:
    """What this process runs; `hip_runtime` only where a HIP runtime is loaded that is not the virtual device."""
    runtime, number = hip_runtime(), ctypes.c_int()
    if runtime is not None and (is_virtual_runtime(runtime) or runtime.hipRuntimeGetVersion(ctypes.byref(number))):
        runtime = None
    return Versions(
        python=platform.python_version(),
        torch=torch.__version__,
        rocm=torch.version.hip,
        hip_runtime=None if runtime is None else number.value,
        packages={name: version for name in PACKAGES if (version := _package_version(name))},
        settings={name: os.environ[name] for name in SETTINGS if name in os.environ},
    )


def describe_commit() -> str | None:
    """The checkout's commit; None outside of git, or with changes on top, which no commit describes."""
    git = ["git", "-C", str(REPOSITORY)]
    try:
        status = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True)
    except FileNotFoundError:
        return None
    if status.returncode or status.stdout:
        return None
    return subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()


def _driver() -> str | None:
    """The version of AMD's out-of-tree amdgpu module, or the kernel whose own module it is."""
    version = Path("/sys/module/amdgpu/version")
    if version.exists():
        return f"amdgpu {version.read_text().strip()}"
    return f"amdgpu of Linux {platform.release()}" if version.parent.exists() else None


def _package_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
