# SPDX-License-Identifier: MIT
"""Finds a gfx1201 behind the process's own PyTorch and HIP runtime."""

import ctypes
import os
import re
from pathlib import Path

import torch

GFX1201 = "gfx1201"


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
            if is_virtual_runtime(hip_runtime()):
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


def _architectures() -> list[str]:
    # CUDA builds of torch have no gcnArchName, but do not get here.
    return [torch.cuda.get_device_properties(index).gcnArchName for index in range(torch.cuda.device_count())]


def hip_runtime() -> ctypes.CDLL | None:
    """The libamdhip64 that this process has loaded; None on systems that do not list a process's libraries in /proc."""
    maps = Path("/proc/self/maps")
    paths = re.findall(r"/.*/libamdhip64\.so[.0-9]*$", maps.read_text(), re.MULTILINE) if maps.exists() else []
    return ctypes.CDLL(paths[0], mode=os.RTLD_NOW | os.RTLD_NOLOAD) if paths else None


def is_virtual_runtime(runtime: ctypes.CDLL | None) -> bool:
    return hasattr(runtime, "virtual_gpu_configure")
