# SPDX-License-Identifier: MIT
"""Loads the package's code object through the process's HIP runtime and launches its kernels.

Nothing here runs at import. A call goes: facts about the device -> checks -> module of that device (loaded once, after
its sha256 was compared with the manifest) -> workspace and output from torch -> the launches, in order, on torch's
current stream. Launch numbers and the order of arguments come from manifest.json, which the build writes from the C++
header that the kernels include.

A forked child inherits neither a usable HIP context nor usable modules, as in PyTorch itself: start workers with spawn.
The first call on a device loads a module, so make one before capturing a graph.
"""

import ctypes
import functools
import hashlib
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Optional

import torch

from .sage_attention_contract import check_device, empty_output

# `resolve()` would leave the Hub cache's snapshot folder, whose files are symlinks to blobs.
_PACKAGE = Path(__file__).parent

_C_TYPES = {"pointer": ctypes.c_uint64, "int64": ctypes.c_int64, "float": ctypes.c_float}

_lock = threading.Lock()
_kernels_of_device: dict[int, dict[str, ctypes.c_void_p]] = {}


class DeviceFacts(NamedTuple):
    """What the host needs to know about the device that holds a tensor."""

    hip_version: Optional[str]
    device_type: str
    index: int
    architecture: str
    stream: int


class Launch(NamedTuple):
    """One kernel launch. The block is (threads, 1, 1) and no dynamic LDS is used."""

    kernel: str
    grid: tuple[int, int, int]


class Plan(NamedTuple):
    """What one call needs, for a batch, sequence and number of heads."""

    workspace_bytes: int
    launches: list[Launch]


def launch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float) -> torch.Tensor:
    """Runs attention on checked inputs (`sage_attention_contract.check_inputs`); returns before the GPU is done.

    Raises:
        RuntimeError, ValueError: `check_device`'s refusals.
        RuntimeError: no HIP runtime in the process, a damaged package, or a HIP error, with HIP's text.
    """
    device = device_facts(q)
    check_device(device.hip_version, device.device_type, device.architecture)
    manifest = _manifest()["launch"]
    batch, sequence, heads, _ = q.shape
    plan = plan_call(manifest, batch, sequence, heads)

    out = empty_output(q)
    # Torch's allocator reuses freed memory in stream order, so the workspace may be dropped while kernels still run.
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device=q.device)
    values = {
        "q": q.data_ptr(),
        "k": k.data_ptr(),
        "v": v.data_ptr(),
        "out": out.data_ptr(),
        "workspace": workspace.data_ptr(),
        "batch": batch,
        "sequence": sequence,
        "heads": heads,
        "softmax_scale": softmax_scale,
    }
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        values[f"{name}_stride_batch"] = tensor.stride(0)
        values[f"{name}_stride_sequence"] = tensor.stride(1)
        values[f"{name}_stride_head"] = tensor.stride(2)
    arguments = _argument_struct()(*(values[name] for name, _ in manifest["arguments"]))
    parameters = (ctypes.c_void_p * 1)(ctypes.addressof(arguments))

    hip = _hip()
    with _current_device(hip, device.index):
        kernels = _load(hip, device.index)
        for step in plan.launches:
            block = (manifest["threads"], 1, 1)
            stream = ctypes.c_void_p(device.stream)
            _call(hip, "hipModuleLaunchKernel", kernels[step.kernel], *step.grid, *block, 0, stream, parameters, None)
    return out


def device_facts(tensor: torch.Tensor) -> DeviceFacts:
    """Asks torch about the device of `tensor`; index, architecture and stream are empty off ROCm."""
    if torch.version.hip is None or tensor.device.type != "cuda":
        return DeviceFacts(torch.version.hip, tensor.device.type, -1, "", 0)
    index = tensor.device.index
    architecture = torch.cuda.get_device_properties(index).gcnArchName
    return DeviceFacts(torch.version.hip, "cuda", index, architecture, torch.cuda.current_stream(index).cuda_stream)


def plan_call(manifest: dict[str, Any], batch: int, sequence: int, heads: int) -> Plan:
    """Workspace size and grids, by the formulas of sage_attention_launch.h with the numbers of `manifest`."""
    rows_per_pass = manifest["statistics_rows"] * manifest["max_statistics_groups"]
    statistics_rows = manifest["statistics_rows"] * _divide_up(sequence, rows_per_pass)
    tiles = _divide_up(sequence, manifest["keys_per_tile"])
    sizes = manifest["workspace"]
    bytes_per_head = (
        tiles * sizes["bytes_per_tile"]
        + sizes["bytes_per_head"]
        + _divide_up(sequence, statistics_rows) * sizes["bytes_per_statistics_group"]
        + _divide_up(sequence, manifest["keys_per_quantise_group"]) * sizes["bytes_per_quantise_group"]
    )
    grid_y = min(batch * heads, manifest["max_grid_y"])
    grid_z = _divide_up(batch * heads, grid_y)
    launches = []
    for step in manifest["launches"]:
        rows = statistics_rows if step["rows"] == "statistics_rows" else step["rows"]
        launches.append(Launch(step["kernel"], (_divide_up(sequence, rows), grid_y, grid_z)))
    return Plan(batch * heads * bytes_per_head, launches)


def _divide_up(value: int, by: int) -> int:
    return (value + by - 1) // by


@functools.cache
def _manifest() -> dict[str, Any]:
    return json.loads((_PACKAGE / "manifest.json").read_text(encoding="utf-8"))


@functools.cache
def _argument_struct() -> type:
    fields = [(name, _C_TYPES[kind]) for name, kind in _manifest()["launch"]["arguments"]]
    return type("Arguments", (ctypes.Structure,), {"_fields_": fields})


def _load(hip: ctypes.CDLL, index: int) -> dict[str, ctypes.c_void_p]:
    """The kernels of device `index`, which must be current: HIP ties a module to the device it was loaded on."""
    with _lock:
        if index not in _kernels_of_device:
            code_object = _verified_code_object()
            module = ctypes.c_void_p()
            _call(hip, "hipModuleLoadData", ctypes.byref(module), code_object)
            kernels = {}
            for step in _manifest()["launch"]["launches"]:
                kernels[step["kernel"]] = ctypes.c_void_p()
                function = ctypes.byref(kernels[step["kernel"]])
                _call(hip, "hipModuleGetFunction", function, module, step["kernel"].encode())
            _kernels_of_device[index] = kernels
        return _kernels_of_device[index]


def _verified_code_object() -> bytes:
    manifest = _manifest()
    code_object = (_PACKAGE / manifest["code_object"]).read_bytes()
    sha256 = hashlib.sha256(code_object).hexdigest()
    if sha256 != manifest["sha256"]:
        raise RuntimeError(
            f"{manifest['code_object']} has sha256 {sha256}, but its manifest says {manifest['sha256']}: "
            "the package is damaged, download it again."
        )
    return code_object


@contextmanager
def _current_device(hip: ctypes.CDLL, index: int) -> Iterator[None]:
    """Makes `index` the thread's HIP device, which is torch's current device too, and puts the former one back."""
    before = ctypes.c_int()
    _call(hip, "hipGetDevice", ctypes.byref(before))
    if before.value == index:
        yield
        return
    _call(hip, "hipSetDevice", index)
    try:
        yield
    finally:
        _call(hip, "hipSetDevice", before.value)


def _call(hip: ctypes.CDLL, name: str, *arguments: Any) -> None:
    status = getattr(hip, name)(*arguments)
    if status == 0:
        return
    # HIP keeps the error for the next hipGetLastError, where torch would report it against an unrelated operation.
    hip.hipGetLastError()
    raise RuntimeError(f"{name} failed: {hip.hipGetErrorString(status).decode()} (HIP error {status}).")


@functools.cache
def _hip() -> ctypes.CDLL:
    hip = _runtime_of_this_process()
    unsigned = ctypes.c_uint
    pointer = ctypes.c_void_p
    signatures = {
        "hipGetDevice": [pointer],
        "hipSetDevice": [ctypes.c_int],
        "hipModuleLoadData": [pointer, ctypes.c_char_p],
        "hipModuleGetFunction": [pointer, pointer, ctypes.c_char_p],
        "hipModuleLaunchKernel": [pointer] + 7 * [unsigned] + [pointer, pointer, pointer],
        "hipGetLastError": [],
        "hipGetErrorString": [ctypes.c_int],
    }
    for name, types in signatures.items():
        function = getattr(hip, name)
        function.argtypes = types
        function.restype = ctypes.c_char_p if name == "hipGetErrorString" else ctypes.c_int
    return hip


def _runtime_of_this_process() -> ctypes.CDLL:
    """The HIP runtime that torch has loaded: a second copy would know neither torch's streams nor its memory."""
    runtime = _loaded_dll() if sys.platform == "win32" else _loaded_shared_object()
    if runtime is None:
        raise RuntimeError("No HIP runtime is loaded in this process: check the ROCm build of PyTorch.")
    return runtime


def _loaded_dll() -> Optional[ctypes.CDLL]:
    get_module_handle = ctypes.WinDLL("kernel32").GetModuleHandleW
    get_module_handle.argtypes = [ctypes.c_wchar_p]
    get_module_handle.restype = ctypes.c_void_p
    for name in ("amdhip64_7.dll", "amdhip64_6.dll"):
        handle = get_module_handle(name)
        if handle:
            return ctypes.CDLL(name, handle=handle)
    return None


def _loaded_shared_object() -> Optional[ctypes.CDLL]:
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape")
    paths = sorted(set(re.findall(r"/.*/libamdhip64\.so[.0-9]*$", maps, re.MULTILINE)))
    if len(paths) > 1:
        raise RuntimeError(f"Several HIP runtimes are loaded in this process, keep one of {', '.join(paths)}.")
    # RTLD_NOLOAD: a handle on the library that is loaded, never another copy.
    return ctypes.CDLL(paths[0], mode=os.RTLD_NOW | os.RTLD_NOLOAD) if paths else None
