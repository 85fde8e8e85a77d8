# SPDX-License-Identifier: MIT
"""Python declares the functions and the structure of the device's C API as control.h does."""

import ctypes
import re

from integration_tests.virtual_gpu import binding
from integration_tests.virtual_gpu.build import SOURCES

HEADER = re.sub(r"//.*|^#.*", "", (SOURCES / "control.h").read_text("utf-8"), flags=re.MULTILINE)

# How C types reach Python. Pointers other than texts are addresses.
TYPES = {
    "void": None,
    "int": ctypes.c_int,
    "const char*": ctypes.c_char_p,
    "uint32_t": ctypes.c_uint32,
    "int32_t": ctypes.c_int32,
    "uint64_t": ctypes.c_uint64,
    "int64_t": ctypes.c_int64,
    "size_t": ctypes.c_size_t,
    "char*": ctypes.c_char_p,
    "const uint8_t*": ctypes.c_char_p,
    "virtual_gpu_watcher": binding.Watcher,
    "virtual_gpu_schedule_step": binding.ScheduleStep,
}


def declared() -> dict[str, tuple]:
    """What each function of the header returns and takes."""
    functions = {}
    for result, name, arguments in re.findall(r"VIRTUAL_GPU_API (.*?)virtual_gpu_(\w+)\((.*?)\);", HEADER, re.DOTALL):
        types = [re.sub(r"\s*\b\w+$", "", one.strip()) for one in arguments.split(",") if one.strip() != "void"]
        functions[name] = tuple(TYPES.get(kind.strip(), ctypes.c_void_p) for kind in (result, *types))
    return functions


def test_python_declares_every_function_as_the_header_does():
    assert declared() == binding.FUNCTIONS


def test_the_watched_moment_has_the_headers_fields_in_order():
    body = re.search(r"struct virtual_gpu_watched \{(.*?)\};", HEADER, re.DOTALL)[1]
    fields = [
        name.strip().lstrip("*")
        for line in body.split(";")
        for name in re.sub(r"^\s*(const )?\w+\*?\s", "", line.strip()).split(",")
        if name.strip()
    ]
    assert fields == [name for name, _ in binding.Watched._fields_]
    sizes = {"uint32_t": 4, "int32_t": 4, "uint64_t": 8}
    for name, kind in binding.Watched._fields_:
        c_type = re.search(rf"(\w+)(\*?)\s[\w, ]*\b{name}\b[\w, ]*;", body)
        assert ctypes.sizeof(kind) == (8 if c_type[2] else sizes[c_type[1]]), name


def test_events_have_the_headers_numbers():
    from integration_tests.virtual_gpu import looking

    events = re.findall(r"virtual_gpu_watch_(\w+),", re.search(r"enum .*?\{(.*?)\}", HEADER, re.DOTALL)[1])
    assert [getattr(looking, event.upper()) for event in events] == list(range(len(events)))
