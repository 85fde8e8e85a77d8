# SPDX-License-Identifier: MIT
"""Finds a gfx1201 behind the process's own PyTorch and HIP runtime, and describes it."""

import ctypes
import importlib.metadata
import os
import platform
import re
from pathlib import Path

import torch

from integration_tests.hardware.results import GFX1201, Gpu, Versions

PACKAGES = ("kernels", "diffusers", "amd-aiter", "triton", "pytorch-triton-rocm")

# Settings of ROCm and PyTorch that change which attention or which architecture is used.
SETTINGS = ("HSA_OVERRIDE_GFX_VERSION", "TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL")


class NoGpuError(RuntimeError):
    """There is no gfx1201 to run on. The text is one sentence: what was looked for, and what was found."""


def find_gfx1201() -> int:
    """The index of torch's first gfx1201.

    Raises:
        NoGpuError: torch is not built for ROCm, shows no gfx1201, or runs on the virtual device.
    """
    architectures = [] if torch.version.hip is None else _architectures()
    for index, architecture in enumerate(architectures):
        if architecture.split(":")[0] == GFX1201:
            if _is_virtual(_hip_runtime()):
                raise NoGpuError(
                    "No GPU to run on: looked for a gfx1201 behind ROCm's libamdhip64, "
                    "found the virtual device loaded in its place."
                )
            return index
    raise NoGpuError(
        f"No GPU to run on: looked for a ROCm build of PyTorch (found torch {torch.__version__} with torch.version.hip "
        f"{torch.version.hip}) and in it for a device whose gcnArchName starts with {GFX1201} "
        f"(found {', '.join(architectures) or 'none'})."
    )


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
    runtime, number = _hip_runtime(), ctypes.c_int()
    if runtime is not None and (_is_virtual(runtime) or runtime.hipRuntimeGetVersion(ctypes.byref(number))):
        runtime = None
    return Versions(
        python=platform.python_version(),
        torch=torch.__version__,
        rocm=torch.version.hip,
        hip_runtime=None if runtime is None else number.value,
        packages={name: version for name in PACKAGES if (version := _package_version(name))},
        settings={name: os.environ[name] for name in SETTINGS if name in os.environ},
    )


def _architectures() -> list[str]:
    # CUDA builds of torch have no gcnArchName, but do not get here.
    return [torch.cuda.get_device_properties(index).gcnArchName for index in range(torch.cuda.device_count())]


def _hip_runtime() -> ctypes.CDLL | None:
    """The libamdhip64 that this process has loaded; None on systems that do not list a process's libraries in /proc."""
    maps = Path("/proc/self/maps")
    paths = re.findall(r"/.*/libamdhip64\.so[.0-9]*$", maps.read_text(), re.MULTILINE) if maps.exists() else []
    return ctypes.CDLL(paths[0], mode=os.RTLD_NOW | os.RTLD_NOLOAD) if paths else None


def _is_virtual(runtime: ctypes.CDLL | None) -> bool:
    return hasattr(runtime, "virtual_gpu_configure")


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
