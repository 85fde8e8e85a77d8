# SPDX-License-Identifier: MIT
"""Runs single instructions and short programs on the virtual device, from outside: bytes in, registers out."""

import ctypes
import functools
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
from tinygrad.runtime.autogen.amd.rdna4 import ins

from integration_tests.virtual_gpu import binding, build

LANES = 32
VCC, NULL, M0, EXEC, EXEC_HI = 106, 124, 125, 126, 127
VGPR0 = 256  # the first VGPR in the 9-bit source operand space
LITERAL, DPP16, DPP8, DPP8_FI = 255, 250, 233, 234

# The layout of `virtual_gpu_registers` in control.h.
REGISTERS = np.dtype(
    [
        ("vgpr", "<u4", (256, LANES)),
        ("scalar", "<u4", (128,)),
        ("scc", "<u4"),
        ("mode", "<u4"),
        ("lds_bytes", "<u4"),
        ("lds", "u1", (65536,)),
    ]
)
MODE_DEFAULT = 0xF0  # round to nearest even, all denormals kept: what HIP kernels start with


class Stopped(Exception):
    """The device refused or faulted; the text says why."""


@functools.cache
def library() -> ctypes.CDLL:
    return binding.load(build())


def implemented() -> list[tuple[str, str]]:
    """(encoding, mnemonic) of every instruction the device executes, in AMD's spelling: ("VOP3", "V_ADD_F32")."""
    lines = library().virtual_gpu_implemented().decode().split("\n")
    return [tuple(line.upper().split()) for line in lines if line]


def new_registers(rng: np.random.Generator | None = None, mode: int = MODE_DEFAULT, lds_bytes: int = 0) -> np.ndarray:
    """A register file: zeros with every lane on, or random contents with a random, never empty EXEC."""
    registers = np.zeros((), REGISTERS)
    registers["scalar"][EXEC] = 0xFFFFFFFF
    if rng is not None:
        registers["vgpr"] = rng.integers(0, 1 << 32, (256, LANES), dtype=np.uint32)
        registers["scalar"] = rng.integers(0, 1 << 32, 128, dtype=np.uint32)
        registers["scalar"][EXEC] |= 1 << int(rng.integers(LANES))
        registers["scalar"][NULL] = 0
        registers["scc"] = rng.integers(2)
        registers["lds"][:lds_bytes] = rng.integers(0, 256, lds_bytes, dtype=np.uint8)
    registers["mode"] = mode
    registers["lds_bytes"] = lds_bytes
    return registers


def execute(code: bytes, registers: np.ndarray) -> np.ndarray:
    """The registers after running ``code`` on a copy of ``registers``. Raises Stopped."""
    after = registers.copy()
    error = ctypes.create_string_buffer(1024)
    if library().virtual_gpu_execute(code, len(code), after.ctypes.data, error, len(error)):
        raise Stopped(error.value.decode())
    return after


class Memory:
    """A registered allocation of global memory; leave the ``with`` block and accesses to it fault."""

    def __init__(self, contents: np.ndarray, name: str = "test"):
        self.bytes = np.frombuffer(contents.tobytes(), np.uint8).copy()
        self.address = self.bytes.ctypes.data
        self.name = name

    def __enter__(self) -> "Memory":
        library().virtual_gpu_add_allocation(self.address, self.bytes.nbytes, self.name.encode())
        return self

    def __exit__(self, *exception) -> None:
        library().virtual_gpu_remove_allocation(self.address)


def operation(encoding: str, name: str):
    """tinygrad's opcode for ("VOP3", "V_ADD_F32"), with or without the encoding suffix."""
    members = getattr(ins, f"{encoding}Op").__members__
    for suffix in ("", "_E64", "_E32"):
        if name + suffix in members:
            return members[name + suffix]
    raise KeyError(f"{encoding} {name}")


def encode(encoding: str, name: str | tuple[str, str], variant: str = "", **fields: int) -> bytes:
    """Machine code from raw field values, at the field positions of AMD's published encoding tables.

    ``variant`` is "", "LIT", "DPP16", "DPP8" or "SDST". Fields that are not given are 0, except that a packed
    instruction selects high halves for its high result, and an absent scalar offset is NULL.
    """
    layout = getattr(ins, f"{encoding}_{variant}" if variant else encoding)
    values = {"saddr": NULL, "soffset": NULL, "opsel_hi": 3, "opsel_hi2": 1} | fields
    if encoding == "VOPD":
        values["opx"], values["opy"] = (operation("VOPD", n).value for n in name)
    elif encoding not in ("VEXPORT",):
        values["op"] = operation(encoding, name).value
    word = 0
    for field, place in layout._fields:
        value = place.default if type(place).__name__ == "FixedBitField" else values.get(field, 0)
        word |= (value & place.mask) << place.lo
    unknown = set(fields) - {field for field, _ in layout._fields}
    if unknown:
        raise KeyError(f"{layout.__name__} has no field {', '.join(sorted(unknown))}")
    return word.to_bytes(layout._base_size, "little")


def assemble(text: str, directory: Path) -> bytes:
    """The .text bytes that clang's assembler makes of gfx1201 assembly."""
    source, target = directory / "program.s", directory / "program.o"
    source.write_text(text + "\n")
    clang = [sys.executable, "-m", "ziglang", "clang", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx1201"]
    # Names the halves of registers: v1.l and v1.h.
    halves = ["-Xclangas", "-target-feature", "-Xclangas", "+real-true16"]
    command = [*clang, *halves, "-c"]
    result = subprocess.run([*command, source, "-o", target], capture_output=True, text=True)
    if result.returncode:
        raise ValueError(result.stderr)
    return elf_section(target.read_bytes(), b".text")


def elf_section(elf: bytes, name: bytes) -> bytes:
    """Contents of a section of a little-endian ELF64 file."""
    table, (entry_size, count, names_index) = (
        struct.unpack_from("<Q", elf, 40)[0],
        struct.unpack_from("<3H", elf, 58),
    )
    sections = [struct.unpack_from("<IIQQQQ", elf, table + i * entry_size) for i in range(count)]
    names = sections[names_index][4]
    for section in sections:
        start = names + section[0]
        if elf[start : elf.index(b"\0", start)] == name:
            return elf[section[4] : section[4] + section[5]]
    raise KeyError(name.decode())
