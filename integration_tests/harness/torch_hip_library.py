# SPDX-License-Identifier: MIT
"""`libc10_hip.so`, which ROCm builds of torch have and CPU builds lack, reduced to what the deliveries ask of it: it is
linked against the HIP runtime, so its handle answers for the runtime's functions."""

import functools
import os
import subprocess
import sys
import tempfile
from ctypes import CDLL
from pathlib import Path

from integration_tests.paths import DIST

NAME = "libc10_hip.so"
TARGET = "x86_64-linux-gnu.2.28"


def link(runtime: Path, folder: Path) -> Path:
    """Writes `folder`/libc10_hip.so, which needs the library `runtime` by its soname. RuntimeError when it fails."""
    library = folder / NAME
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", TARGET, "-shared", "-nostdlib"]
    needs = ["-x", "c", os.devnull, "-x", "none", "-Wl,--no-as-needed", str(runtime)]
    finished = subprocess.run([*zig, f"-Wl,-soname,{NAME}", *needs, "-o", str(library)], capture_output=True, text=True)
    if finished.returncode:
        raise RuntimeError(f"linking {NAME} failed:\n{finished.stdout}{finished.stderr}")
    return library


@functools.cache
def load(runtime: Path) -> CDLL:
    """Loads one for a runtime that the process has loaded, as torch does before anyone can call it."""
    folder = DIST / "torch_hip_library" / runtime.parent.name
    if not (folder / NAME).exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            os.replace(link(runtime.with_name("libamdhip64.so"), Path(scratch)), folder / NAME)
    return CDLL(str(folder / NAME), mode=os.RTLD_NOW | os.RTLD_GLOBAL)
