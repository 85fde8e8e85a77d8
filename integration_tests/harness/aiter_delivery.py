# SPDX-License-Identifier: MIT
"""aiter as users get it, with the operator applied by its recipe.

The base is the installed amd-aiter release, or a checkout of ROCm/aiter's main (AITER_TREE). A copy of it in dist/ gets
the recipe; the base itself is never changed. aiter's own JIT builds the module: on a GPU with the machine's ROCm, else
with the stand-in ROCm SDK, whose HIP runtime is the virtual device.

What keeps a process whose torch is a CPU build from being a ROCm machine, and is bridged here and nowhere else: the
environment variables under which aiter looks for ROCm; two libraries of ROCm torch that modules name but do not use;
Triton's driver, which asks for a GPU; torch's CPU tensors, which do not say that they are on one (the module's
`device_facts`).

Run as a script (`--jit DIR`: where modules are built, `--cxx PROGRAM`: another linker driver) it makes calls in a
process of its own and prints JSON: seconds until aiter is imported, and for each of two calls its seconds or its error.
"""

import argparse
import ctypes
import functools
import hashlib
import importlib
import importlib.metadata
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest import mock

import torch

from aiter_op import recipe
from hub_kernel.build_code_object import staged
from integration_tests.harness import device_under_test, standin_rocm
from integration_tests.harness.rocm_torch import rocm_torch
from integration_tests.paths import DIST
from integration_tests.virtual_gpu import VirtualGpu

TREES = DIST / "aiter"
OPERATOR = "aiter.ops.gfx1201_sage_attention"


@dataclass(frozen=True)
class PatchedAiter:
    """A copy of aiter with the operator: the folder for sys.path, and where its JIT puts modules."""

    root: Path
    jit: Path

    def environment(self) -> dict[str, str]:
        """The variables under which this copy imports and builds for the device under test."""
        return {
            **(_standin_environment() if device_under_test.is_virtual() else {}),
            "GPU_ARCHS": standin_rocm.ARCHITECTURE,
            # No Composable Kernel: its sources are no part of a release's wheel or of a plain checkout.
            "ENABLE_CK": "0",
            "CK_DIR": str(self.root / "no_composable_kernel"),
            "AITER_JIT_DIR": str(self.jit),
            "MAX_JOBS": "2",
        }


def base_tree() -> Path:
    """The checkout that AITER_TREE names, else the folder of the installed release. RuntimeError without either."""
    if checkout := os.environ.get("AITER_TREE"):
        return Path(checkout).resolve()
    try:
        return Path(importlib.metadata.distribution("amd-aiter").locate_file("")).resolve()
    except importlib.metadata.PackageNotFoundError as error:
        raise RuntimeError("no aiter: install amd-aiter, or name a checkout of ROCm/aiter in AITER_TREE") from error


@functools.cache
def patched_aiter() -> PatchedAiter:
    """The base with the recipe applied, copied once per content of base and recipe."""
    base = base_tree()
    kind = recipe.recipe_for(base)
    prepared = recipe.plan_for(base)
    identity = hashlib.sha256(str(base).encode())
    for change in prepared.changes:
        identity.update(change.file.encode() + b"\0" + change.after)
    folder = TREES / f"{kind.name}-{identity.hexdigest()[:16]}"
    if not folder.exists():
        with staged(folder) as copy:
            _copy_base(base, copy / "tree")
            recipe.plan_for(copy / "tree").apply()
    virtual = device_under_test.is_virtual()
    toolchain = standin_rocm.toolchain_id() if virtual else f"rocm-{torch.version.hip}-torch-{torch.__version__}"
    return PatchedAiter(folder / "tree", folder / f"jit-{toolchain}")


def _copy_base(base: Path, target: Path) -> None:
    """Copies what the recipe changes; the rest of aiter's data (kernels for other GPUs) is linked."""
    target.mkdir(parents=True)
    shutil.copytree(base / "aiter", target / "aiter", ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    if (base / "aiter_meta").is_dir():
        _copy_sources(base / "aiter_meta", target / "aiter_meta")
    else:
        _copy_sources(base, target, ("csrc", "3rdparty", "gradlib", "hsa"))
        (target / "op_tests").mkdir()


def _copy_sources(base: Path, target: Path, names: tuple[str, ...] | None = None) -> None:
    target.mkdir(exist_ok=True)
    for entry in sorted(base.iterdir()):
        if names is not None and entry.name not in names:
            continue
        if entry.name == "csrc":
            shutil.copytree(entry, target / "csrc")
        else:
            (target / entry.name).symlink_to(entry)


@functools.cache
def rocm() -> Path:
    """The stand-in SDK on top of the virtual device."""
    return standin_rocm.build(VirtualGpu.load().path)


def _standin_environment() -> dict[str, str]:
    return {**standin_rocm.environment(rocm()), "CU_NUM": str(standin_rocm.COMPUTE_UNITS)}


@functools.cache
def load_aiter() -> ModuleType:
    """`import aiter` of the patched copy, with the operator's module built and loaded; torch must look like ROCm."""
    patched = patched_aiter()
    with mock.patch.dict(os.environ, patched.environment()):
        aiter = import_aiter(patched)
        # Builds the module while the environment is aiter's, and launches nothing.
        importlib.import_module(OPERATOR).gfx1201_sage_attention_workspace_bytes(1, 1, 1)
    return aiter


def import_aiter(patched: PatchedAiter) -> ModuleType:
    """`import aiter` of `patched` under its environment, for tensors of the device under test; builds no operator."""
    if device_under_test.is_virtual():
        for library in ("libc10_hip.so", "libtorch_hip.so"):
            ctypes.CDLL(str(rocm() / "lib" / library), mode=ctypes.RTLD_GLOBAL)
        _exchange_device_on(VirtualGpu.load())
        _give_triton_a_gfx1201()
    sys.path.insert(0, str(patched.root))
    aiter = importlib.import_module("aiter")
    if device_under_test.is_virtual():
        operator = importlib.import_module(OPERATOR)
        operator.device_facts = functools.partial(_facts_of_a_rocm_tensor, operator.DeviceFacts)
    return aiter


def _smallest_inputs() -> list[torch.Tensor]:
    return [torch.zeros(1, 1, 1, 128, dtype=torch.bfloat16) for _ in range(3)]


def _facts_of_a_rocm_tensor(facts: type, tensor: torch.Tensor) -> tuple:
    index = torch.cuda.current_device()
    return facts("cuda", index, torch.cuda.get_device_properties(index).gcnArchName)


def _exchange_device_on(gpu: VirtualGpu) -> None:
    """Makes `with torch.cuda.device(index)`, which CPU torch refuses, switch the virtual device."""

    def exchange(index: int) -> int:
        before = gpu.current_device()
        gpu.set_device(index)
        return before

    torch.cuda._exchange_device = exchange
    # A function of its own: torch.compile tells the two apart.
    torch.cuda._maybe_exchange_device = lambda index: exchange(index)


def _give_triton_a_gfx1201() -> None:
    """Main asks Triton at import which GPU there is, and Triton would ask torch's ROCm build."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    target = GPUTarget("hip", standin_rocm.ARCHITECTURE, 32)
    driver.set_active(SimpleNamespace(get_current_target=lambda: target))


def calls_in_this_process(jit: Path, cxx: str | None) -> dict:
    """Imports aiter and calls the operator twice, with modules in `jit`."""
    patched = replace(patched_aiter(), jit=jit)
    environment = patched.environment() | ({"CXX": cxx} if cxx else {})
    report: dict = {"calls": []}
    with rocm_torch(VirtualGpu.load()), mock.patch.dict(os.environ, environment):
        start = time.perf_counter()
        aiter = import_aiter(patched)
        report["import"] = time.perf_counter() - start
        report["modules_after_import"] = sorted(path.name for path in jit.glob("*.so"))
        for _ in range(2):
            start = time.perf_counter()
            try:
                aiter.gfx1201_sage_attention(*_smallest_inputs())
                report["calls"].append(time.perf_counter() - start)
            except RuntimeError as error:
                report["calls"].append(str(error))
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jit", type=Path, required=True)
    parser.add_argument("--cxx")
    arguments = parser.parse_args()
    # aiter and its build tools write to stdout too: the report is the last line.
    print("\n" + json.dumps(calls_in_this_process(arguments.jit, arguments.cxx)), flush=True)


if __name__ == "__main__":
    main()
