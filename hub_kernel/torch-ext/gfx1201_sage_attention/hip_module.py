# SPDX-License-Identifier: MIT
"""Loads the package's code object through the process's HIP runtime and launches its kernels.

Nothing here runs at import. A call goes: the tensors' device -> what is prepared for that device and shape -> workspace
and output from torch -> the launches, in order, on torch's current stream. To prepare is to check the device, load its
module (once) and compute sizes and grids. Launch numbers and the order of arguments come from manifest.json, which the
build writes from the C++ header that the kernels include. This package holds the manifest's sha256 and the manifest the
code object's, so neither is used unless both are what the build made together.

A forked child inherits neither a usable HIP context nor usable modules, as in PyTorch itself, and is refused: start
workers with spawn.
The first call on a device loads a module, so make one before capturing a graph.
"""

import ctypes
import functools
import hashlib
import json
import operator
import os
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ._build import MANIFEST_SHA256
from .sage_attention_contract import check_device, empty_output

# `resolve()` would leave the Hub cache's snapshot folder, whose files are symlinks to blobs.
_PACKAGE = Path(__file__).parent
_MANIFEST = "manifest.json"

# Torch's own library for HIP: in every build of torch for ROCm, linked against the runtime that torch uses.
_TORCH_HIP_LIBRARY = "libc10_hip.so"

# What `launch` passes, in its order; the manifest names the same values in the order of the kernels' struct.
_VALUES = (
    *("q", "k", "v", "out", "workspace"),
    *("batch", "sequence", "heads"),
    *("q_stride_batch", "q_stride_sequence", "q_stride_head"),
    *("k_stride_batch", "k_stride_sequence", "k_stride_head"),
    *("v_stride_batch", "v_stride_sequence", "v_stride_head"),
    "softmax_scale",
)
_STRUCT_CODES = {"pointer": "P", "int64": "q", "float": "f"}

# Pairs of a device and a shape, of which a model has a few. A forgotten one costs only its arithmetic again.
_MAX_PREPARED = 256

_lock = threading.Lock()
_kernels_of_device: dict[int, dict[str, ctypes.c_void_p]] = {}
_is_forked = False  # after kernels were loaded


class DeviceFacts(NamedTuple):
    """What a call needs to know about the device that holds a tensor."""

    device_type: str
    index: int
    stream: int


class Launch(NamedTuple):
    """One kernel launch. The block is (threads, 1, 1) and no dynamic LDS is used."""

    kernel: str
    grid: tuple[int, int, int]


class Plan(NamedTuple):
    """What one call needs, for a batch, sequence and number of heads."""

    workspace_bytes: int
    launches: list[Launch]


class Prepared(NamedTuple):
    """A plan on one device: each launch is hipModuleLaunchKernel but for its last arguments, from the stream on."""

    workspace_bytes: int
    launches: list[Callable[..., int]]


class ArgumentLayout(NamedTuple):
    """The kernels' argument struct. `in_order` sorts a tuple like _VALUES into the order of `fields`."""

    in_order: Callable[[tuple], tuple]
    fields: struct.Struct


def launch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: float) -> torch.Tensor:
    """Runs attention on checked inputs (`sage_attention_contract.check_inputs`); returns before the GPU is done.

    Raises:
        RuntimeError, ValueError: `check_device`'s refusals.
        RuntimeError: no HIP runtime in the process, a process forked after a call, a damaged package, or a HIP error,
            with HIP's text.
    """
    device = device_facts(q)
    batch, sequence, heads, _ = q.shape
    prepared = _prepare(device.device_type, device.index, batch, sequence, heads)

    out = empty_output(q)
    # Torch's allocator reuses freed memory in stream order, so the workspace may be dropped while kernels still run.
    workspace = torch.empty(prepared.workspace_bytes, dtype=torch.uint8, device=q.device)
    q_strides, k_strides, v_strides = q.stride(), k.stride(), v.stride()
    values = (  # in the order of _VALUES
        q.data_ptr(),
        k.data_ptr(),
        v.data_ptr(),
        out.data_ptr(),
        workspace.data_ptr(),
        batch,
        sequence,
        heads,
        q_strides[0],
        q_strides[1],
        q_strides[2],
        k_strides[0],
        k_strides[1],
        k_strides[2],
        v_strides[0],
        v_strides[1],
        v_strides[2],
        softmax_scale,
    )
    layout = _argument_layout()
    # The struct is the kernels' only argument, so hipModuleLaunchKernel's array of parameters has one pointer.
    parameters = ctypes.byref(ctypes.c_char_p(layout.fields.pack(*layout.in_order(values))))
    stream = ctypes.c_void_p(device.stream)

    hip = _hip()
    before = _exchange_device(hip, device.index)
    try:
        for launch_kernel in prepared.launches:
            _check(hip, "hipModuleLaunchKernel", launch_kernel(stream, parameters, None))
    finally:
        if before != device.index:
            _exchange_device(hip, before)
    return out


def device_facts(tensor: torch.Tensor) -> DeviceFacts:
    """Asks torch about the device of `tensor`; index and stream are empty off ROCm."""
    device = tensor.device
    if torch.version.hip is None or device.type != "cuda":
        return DeviceFacts(device.type, -1, 0)
    return DeviceFacts("cuda", device.index, torch.cuda.current_stream(device.index).cuda_stream)


@functools.lru_cache(maxsize=_MAX_PREPARED)
def _prepare(device_type: str, index: int, batch: int, sequence: int, heads: int) -> Prepared:
    """What calls of one shape have in common. A refusal or a failure is not kept: the next call tries again."""
    # A device that has a module was checked before the module was loaded.
    kernels = _load(device_type, index)
    manifest = _manifest()["launch"]
    plan = plan_call(manifest, batch, sequence, heads)
    launch_kernel = _hip().hipModuleLaunchKernel
    launches = []
    for step in plan.launches:
        block = (manifest["threads"], 1, 1)
        launches.append(functools.partial(launch_kernel, kernels[step.kernel], *step.grid, *block, 0))
    return Prepared(plan.workspace_bytes, launches)


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
    return json.loads(_verified(_MANIFEST, MANIFEST_SHA256))


@functools.cache
def _argument_layout() -> ArgumentLayout:
    arguments = _manifest()["launch"]["arguments"]
    codes = "".join(_STRUCT_CODES[kind] for _, kind in arguments)
    places = [_VALUES.index(name) for name, _ in arguments]
    # "0P" pads the end as C does for a struct that holds pointers.
    return ArgumentLayout(operator.itemgetter(*places), struct.Struct(f"@{codes}0P"))


def _load(device_type: str, index: int) -> dict[str, ctypes.c_void_p]:
    """The kernels of a device, which is checked before anything is loaded on it."""
    if _is_forked:
        raise RuntimeError(
            "gfx1201_sage_attention was called before this process was forked, which leaves it no usable GPU: "
            "start workers with multiprocessing's spawn method."
        )
    with _lock:
        if index not in _kernels_of_device:
            architecture = torch.cuda.get_device_properties(index).gcnArchName if index >= 0 else ""
            check_device(torch.version.hip, device_type, architecture)
            hip = _hip()
            if not _kernels_of_device and hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=_refuse_further_calls)
            # HIP ties a module to the device it was loaded on.
            before = _exchange_device(hip, index)
            try:
                _kernels_of_device[index] = _load_kernels(hip)
            finally:
                _exchange_device(hip, before)
        return _kernels_of_device[index]


def _load_kernels(hip: ctypes.CDLL) -> dict[str, ctypes.c_void_p]:
    code_object = _verified_code_object()
    module = ctypes.c_void_p()
    _check(hip, "hipModuleLoadData", hip.hipModuleLoadData(ctypes.byref(module), code_object))
    kernels = {}
    for step in _manifest()["launch"]["launches"]:
        kernel = ctypes.c_void_p()
        status = hip.hipModuleGetFunction(ctypes.byref(kernel), module, step["kernel"].encode())
        _check(hip, "hipModuleGetFunction", status)
        kernels[step["kernel"]] = kernel
    return kernels


def _refuse_further_calls() -> None:
    global _is_forked
    _is_forked = True
    _prepare.cache_clear()


def _verified_code_object() -> bytes:
    manifest = _manifest()
    return _verified(manifest["code_object"], manifest["sha256"])


def _verified(name: str, sha256: str) -> bytes:
    """The content of one of the package's files. RuntimeError unless it is the one that the build wrote."""
    try:
        content = (_PACKAGE / name).read_bytes()
    except OSError as error:
        raise RuntimeError(
            f"{name} cannot be read ({error.strerror}): the package is damaged, download it again."
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise RuntimeError(
            f"{name} has sha256 {found}, but the build wrote {sha256}: the package is damaged, download it again."
        )
    return content


def _exchange_device(hip: ctypes.CDLL, index: int) -> int:
    """Makes `index` the thread's HIP device, which is torch's current device too. Returns the former one."""
    before = ctypes.c_int()
    _check(hip, "hipGetDevice", hip.hipGetDevice(ctypes.byref(before)))
    if before.value != index:
        _check(hip, "hipSetDevice", hip.hipSetDevice(index))
    return before.value


def _check(hip: ctypes.CDLL, name: str, status: int) -> None:
    """Raises what the HIP function `name` reported, if it was an error."""
    if status == 0:
        return
    # HIP keeps the error for the next hipGetLastError, where torch would report it against an unrelated operation.
    hip.hipGetLastError()
    raise RuntimeError(f"{name} failed: {hip.hipGetErrorString(status).decode()} (HIP error {status}).")


@functools.cache
def _hip() -> ctypes.CDLL:
    hip = _runtime_of_torch()
    pointer = ctypes.c_void_p
    signatures = {
        "hipGetDevice": [pointer],
        "hipSetDevice": [ctypes.c_int],
        "hipModuleLoadData": [pointer, ctypes.c_char_p],
        "hipModuleGetFunction": [pointer, pointer, ctypes.c_char_p],
        # Each call makes three of these, and converting by argtypes is half of their time. Without them ctypes passes
        # ints as C ints, which the sizes are, and the pointers come as ctypes objects.
        "hipModuleLaunchKernel": None,
        "hipGetLastError": [],
        "hipGetErrorString": [ctypes.c_int],
    }
    for name, types in signatures.items():
        function = getattr(hip, name, None)
        if function is None:
            raise RuntimeError(f"{hip._name} lacks {name}: check the ROCm build of PyTorch.")
        function.argtypes = types
        function.restype = ctypes.c_char_p if name == "hipGetErrorString" else ctypes.c_int
    return hip


def _runtime_of_torch() -> ctypes.CDLL:
    """The HIP runtime that torch uses: another copy in the process would know neither its streams nor its memory."""
    return _dll_of_torch() if sys.platform == "win32" else _shared_object_of_torch()


def _shared_object_of_torch() -> ctypes.CDLL:
    # Found through torch's own library and not by a file name: the runtime's file may be named with a hash, have been
    # replaced since it was loaded, or stand beside another. The handle answers for what the library was linked with.
    try:
        # RTLD_NOLOAD: a handle on what is loaded, never another copy.
        return ctypes.CDLL(_TORCH_HIP_LIBRARY, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError as error:
        raise RuntimeError(
            f"PyTorch has not loaded its {_TORCH_HIP_LIBRARY}, which leads to the HIP runtime: "
            "check the ROCm build of PyTorch."
        ) from error


def _dll_of_torch() -> ctypes.CDLL:
    # The driver may have loaded a runtime of another major version beside torch's.
    name = f"amdhip64_{(torch.version.hip or '').split('.')[0]}.dll"
    get_module_handle = ctypes.WinDLL("kernel32").GetModuleHandleW
    get_module_handle.argtypes = [ctypes.c_wchar_p]
    get_module_handle.restype = ctypes.c_void_p
    handle = get_module_handle(name)
    if not handle:
        raise RuntimeError(f"PyTorch has not loaded the HIP runtime {name}: check the ROCm build of PyTorch.")
    return ctypes.CDLL(name, handle=handle)
