# SPDX-License-Identifier: MIT
"""The device's C API (control.h) for Python: the one place that declares its functions and structures to ctypes."""

import ctypes
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path


class Watched(Structure):
    """`virtual_gpu_watched`: one moment of the wave that is watched."""

    _fields_ = [
        ("event", c_uint32),
        ("offset", c_uint64),
        ("text", c_char_p),
        ("vgpr", POINTER(c_uint32)),
        ("scalar", POINTER(c_uint32)),
        ("scc", c_uint32),
        ("mode", c_uint32),
        ("lds", POINTER(c_uint8)),
        ("lds_bytes", c_uint32),
        ("space", c_uint32),
        ("is_store", c_uint32),
        ("bytes", c_uint32),
        ("lane", c_int32),
        ("address", c_uint64),
    ]


Watcher = ctypes.CFUNCTYPE(None, POINTER(Watched))
# virtual_gpu_schedule_step: wave, instruction (dword position), cycle of issue, cycle of execution or 0.
ScheduleStep = ctypes.CFUNCTYPE(None, c_uint32, c_uint32, c_uint64, c_uint64)

# What each function returns and takes.
FUNCTIONS: dict[str, tuple] = {
    "configure": (None, c_char_p, c_int),
    "reset_records": (None,),
    "records_json": (c_char_p,),
    "last_fault": (c_char_p,),
    "fail_next": (None, c_char_p, c_int),
    "set_schedule_seed": (None, c_uint64),
    "accept_only": (None, c_int),
    "add_allocation": (None, c_void_p, c_uint64, c_char_p),
    "remove_allocation": (c_int, c_void_p),
    "watch_torch": (c_int,),
    "reset_torch_peak": (None,),
    "torch_peak_bytes": (c_int64,),
    "sanitize": (None, c_int),
    "findings_json": (c_char_p,),
    "fault_classes": (c_char_p,),
    "execute": (c_int, c_char_p, c_size_t, c_void_p, c_char_p, c_size_t),
    "implemented": (c_char_p,),
    "register_use_of": (c_int, c_char_p, c_size_t, c_void_p),
    "disassemble": (c_char_p, c_char_p, c_size_t),
    "watch": (None, c_char_p, c_uint32, c_uint32, c_uint32, c_uint32, Watcher),
    "watch_stop": (None,),
    "trace_start": (None, c_uint32),
    "trace_stop": (None,),
    "trace_json": (c_char_p,),
    "timing_parameter_names": (c_char_p,),
    "timing_result_names": (c_char_p,),
    "trace_simulate": (c_int, c_uint32, c_uint32, c_uint32, c_void_p, c_void_p),
    "trace_schedule": (c_int, c_uint32, c_void_p, ScheduleStep),
}


def load(library: Path) -> ctypes.CDLL:
    """The device's library, made the process's `libamdhip64.so.7`, with the functions of its own API declared."""
    device = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    for name, (result, *arguments) in FUNCTIONS.items():
        function = getattr(device, f"virtual_gpu_{name}")
        function.restype, function.argtypes = result, arguments
    device.hipGetErrorName.restype = c_char_p
    device.hipGetErrorString.restype = c_char_p
    return device
