# SPDX-License-Identifier: MIT
"""One code object of many small kernels in gfx1201 assembly."""

import subprocess
import sys
import tempfile
from pathlib import Path

LDS_BYTES = 1024
COMPILER = [sys.executable, "-m", "ziglang"]

_DESCRIPTOR = """
.rodata
.p2align 6
.amdhsa_kernel {name}
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_system_sgpr_workgroup_id_x 1
  .amdhsa_group_segment_fixed_size {lds}
  .amdhsa_private_segment_fixed_size 64
  .amdhsa_enable_private_segment 1
  .amdhsa_kernarg_size 16
  .amdhsa_next_free_vgpr 64
  .amdhsa_next_free_sgpr 32
  .amdhsa_wavefront_size32 1
.end_amdhsa_kernel
.text
"""
_METADATA = """
  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: 16
    .kernarg_segment_align: 8
    .group_segment_fixed_size: {lds}
    .private_segment_fixed_size: 64
    .wavefront_size: 32
    .sgpr_count: 32
    .vgpr_count: 64
    .max_flat_workgroup_size: 1024
    .args:
      - {{ .size: 8, .offset: 0, .value_kind: global_buffer, .address_space: global }}
      - {{ .size: 8, .offset: 8, .value_kind: global_buffer, .address_space: global }}"""

# s[4:5] and s[6:7] are the two arguments, v0 the thread, v1 four times that.
_START = """
s_load_b128 s[4:7], s[0:1], 0x0
v_and_b32 v0, 0x3ff, v0
v_lshlrev_b32 v1, 2, v0
s_wait_kmcnt 0x0
"""


def code_object(bodies: dict[str, str]) -> bytes:
    """A kernel of each name: the body between the common start and s_endpgm."""
    text, metadata = '.amdgcn_target "amdgcn-amd-amdhsa--gfx1201"\n.text\n', ""
    for name, body in bodies.items():
        text += f".globl {name}\n.p2align 8\n.type {name},@function\n{name}:\n{_START}{body}\ns_endpgm\n"
        text += f".size {name}, .-{name}\n{_DESCRIPTOR.format(name=name, lds=LDS_BYTES)}"
        metadata += _METADATA.format(name=name, lds=LDS_BYTES)
    head = "---\namdhsa.version: [1, 2]\namdhsa.target: amdgcn-amd-amdhsa--gfx1201\namdhsa.kernels:"
    text += f".amdgpu_metadata\n{head}{metadata}\n...\n.end_amdgpu_metadata\n"
    with tempfile.TemporaryDirectory() as folder:
        source, part, image = (Path(folder) / name for name in ("kernels.s", "kernels.o", "kernels.co"))
        source.write_text(text)
        target = ["-target", "amdgcn-amd-amdhsa", "-mcpu=gfx1201"]
        _run([*COMPILER, "clang", *target, "-c", str(source), "-o", str(part)])
        _run([*COMPILER, "ld.lld", "-shared", str(part), "-o", str(image)])
        return image.read_bytes()


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise ValueError(result.stderr)
