# SPDX-License-Identifier: MIT
"""Scratch memory, which belongs to a launch: one assembled kernel that uses every scratch instruction."""

import re
import struct
import subprocess
import sys

import numpy as np

from . import machine
from .machine import LANES

HEADER = """
.amdgcn_target "amdgcn-amd-amdhsa--gfx1201"
.text
.globl kernel
.p2align 8
.type kernel,@function
kernel:
"""
DESCRIPTOR = """
s_endpgm
.size kernel, .-kernel
.rodata
.p2align 6
.amdhsa_kernel kernel
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_private_segment_fixed_size 256
  .amdhsa_uses_dynamic_stack 0
  .amdhsa_enable_private_segment 1
  .amdhsa_kernarg_size 8
  .amdhsa_next_free_vgpr 32
  .amdhsa_next_free_sgpr 16
  .amdhsa_wavefront_size32 1
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.target: amdgcn-amd-amdhsa--gfx1201
amdhsa.kernels:
  - .name: kernel
    .symbol: kernel.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 256
    .wavefront_size: 32
    .sgpr_count: 16
    .vgpr_count: 32
    .max_flat_workgroup_size: 1024
    .args:
      - { .size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global }
...
.end_amdgpu_metadata
"""


def link(text: str, directory) -> bytes:
    """A code object from assembly."""
    machine.assemble(text, directory)
    image = directory / "program.co"
    subprocess.run(
        [sys.executable, "-m", "ziglang", "ld.lld", "-shared", directory / "program.o", "-o", image], check=True
    )
    return image.read_bytes()


def names(part: str) -> list[str]:
    return [n.lower() for e, n in machine.implemented() if e == "VSCRATCH" and part in n]


def program() -> tuple[str, list[str]]:
    """The kernel's body and, in order of output, what each group of four result words holds.

    Lane by lane: v[4:7] is a pattern, v[12:15] what a destination held before. Addresses: v2 holds 64, s4 holds 64.
    """
    lines = [
        "s_load_b64 s[2:3], s[0:1], 0x0",
        "s_mov_b32 s4, 64",
        "v_mov_b32_e32 v2, 64",
        "v_and_b32_e32 v0, 0x3ff, v0",
    ]
    lines += ["v_lshlrev_b32_e32 v1, 2, v0", "s_wait_kmcnt 0x0"]
    lines += [f"v_mul_u32_u24_e32 v{4 + i}, 0x{0x10305 + i * 0x20406:x}, v0" for i in range(4)]
    lines += [f"v_add_nc_u32_e32 v{4 + i}, 0x{0x80C1E2F3 + i * 0x11223344 & 0xFFFFFFFF:x}, v{4 + i}" for i in range(4)]
    labels = []

    def emit(label: str) -> None:
        for i in range(4):
            lines.append(f"global_store_b32 v1, v{12 + i}, s[2:3] offset:{(len(labels) * 4 + i) * LANES * 4}")
        labels.append(label)

    def destination() -> None:
        lines.extend(f"v_mov_b32_e32 v{12 + i}, 0x5a5a5a5a" for i in range(4))

    lines.append("scratch_store_b128 off, v[4:7], off offset:64")
    for name in names("LOAD"):
        unaligned = ("v2, off offset:1",) if bits_of(name) < 128 else ()  # all sixteen bytes have no neighbours
        for address in ("off, off offset:64", "v2, off", "off, s4", *unaligned):
            destination()
            lines.append(f"{name} {register(name, 12)}, {address}")
            emit(f"{name} {address}")
    for name in names("STORE"):
        destination()
        lines.append("scratch_store_b128 off, v[12:15], off offset:128")
        lines.append(f"{name} off, {register(name, 4)}, off offset:{128 + store_offset(name)}")
        lines.append("scratch_load_b128 v[12:15], off, off offset:128")
        emit(name)
    return "\n".join(lines), labels


def bits_of(name: str) -> int:
    return int(re.search(r"[biu](\d+)$", name).group(1))


def store_offset(name: str) -> int:
    """Where a store's sixteen bytes of surroundings hold it: beside the start, where it fits there."""
    return 2 if bits_of(name) < 128 else 0


def register(name: str, first: int) -> str:
    words = max(1, bits_of(name) // 32)
    return f"v{first}" if words == 1 else f"v[{first}:{first + words - 1}]"


def expected(label: str, pattern: bytes) -> bytes:
    """Sixteen bytes: the destination, or the memory around a store, afterwards."""
    name = label.split()[0]
    size, result = bits_of(name) // 8, bytearray(b"\x5a" * 16)
    if "store" in name:
        start = 2 if "_hi_" in name else 0
        at = store_offset(name)
        result[at : at + size] = pattern[start : start + size]
        return bytes(result)
    source = pattern[1 if "offset:1" in label else 0 :][:size]
    if size < 4:
        wide = 2 if "_d16_" in name else 4
        value = int.from_bytes(source, "little", signed="_i" in name)
        at = 2 if "_hi_" in name else 0
        result[at : at + wide] = (value & (1 << 8 * wide) - 1).to_bytes(wide, "little")
    else:
        result[:size] = source
    return bytes(result)


def test_every_scratch_instruction(tmp_path):
    from integration_tests.virtual_gpu import VirtualGpu

    body, labels = program()
    device = VirtualGpu.load()
    module = device.load_module(link(HEADER + body + DESCRIPTOR, tmp_path))
    output = np.zeros((len(labels), 4, LANES), np.uint32)
    with machine.Memory(output) as memory:
        device.launch(module.function("kernel"), [1], [LANES], struct.pack("Q", memory.address))
        result = memory.bytes.view(np.uint32).reshape(output.shape)
    lane = np.arange(LANES, dtype=np.uint64)
    words = [
        (lane * (0x10305 + i * 0x20406) + (0x80C1E2F3 + i * 0x11223344 & 0xFFFFFFFF)) & 0xFFFFFFFF for i in range(4)
    ]
    for index, label in enumerate(labels):
        for n in range(LANES):
            pattern = b"".join(int(w[n]).to_bytes(4, "little") for w in words)
            assert result[index, :, n].tobytes() == expected(label, pattern), (label, n)
