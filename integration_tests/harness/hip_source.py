# SPDX-License-Identifier: MIT
"""Small HIP kernels, compiled for gfx1201 with the compiler that builds the op."""

import functools
import tempfile
from pathlib import Path

from hub_kernel.build_code_object import Compiler, compile_code_object

_HEADER = """
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
typedef unsigned int uint;
__device__ inline uint thread_x() { return __builtin_amdgcn_workitem_id_x(); }
__device__ inline uint thread_y() { return __builtin_amdgcn_workitem_id_y(); }
__device__ inline uint group_x() { return __builtin_amdgcn_workgroup_id_x(); }
__device__ inline uint group_y() { return __builtin_amdgcn_workgroup_id_y(); }
__device__ inline uint group_z() { return __builtin_amdgcn_workgroup_id_z(); }
__device__ inline void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
"""


@functools.cache
def compile_hip(source: str) -> bytes:
    """The code object of `source`, which may use the helpers above but no HIP header."""
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "kernel.hip", Path(folder) / "kernel.hsaco"
        file.write_text(_HEADER + source)
        compile_code_object(Compiler.find("ziglang"), out, source=file)
        return out.read_bytes()
