# SPDX-License-Identifier: MIT
"""The stand-in SDK builds ordinary HIP programs: launch syntax, device libraries, exceptions between modules."""

import ctypes
import os
import struct
import subprocess

import pytest
import torch

from integration_tests.harness import standin_rocm
from integration_tests.harness.standin_rocm.offload_bundler import MAGIC, bundle

pytestmark = pytest.mark.aiter

PROGRAM = """
#include <hip/hip_runtime.h>
#include <cmath>
__global__ void sines(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = sinf(x[i]);
}
extern "C" __attribute__((visibility("default"))) int compute(const float* x, float* y, int n) {
    sines<<<dim3((n + 63) / 64), dim3(64)>>>(x, y, n);
    return hipGetLastError();
}
"""
THROWING = """
#include <stdexcept>
extern "C" __attribute__((visibility("default"))) void raise() { throw std::runtime_error("from the other module"); }
"""
CATCHING = """
#include <cstring>
#include <stdexcept>
extern "C" __attribute__((visibility("default"))) int caught(void (*raise)()) {
    try {
        raise();
    } catch (const std::exception& error) {
        return std::strcmp(error.what(), "from the other module") == 0;
    } catch (...) {
    }
    return 0;
}
"""


@pytest.fixture
def rocm(loaded_gpu):
    return standin_rocm.build(loaded_gpu.path)


def build_module(rocm, folder, name, source):
    """Compiles and links as aiter's JIT does, and loads the result."""
    (folder / f"{name}.cu").write_text(source)
    environment = os.environ | standin_rocm.environment(rocm)
    flags = ["-fPIC", "-O3", "-std=c++20", "-fvisibility=hidden", "--offload-arch=gfx1201"]
    for command in (
        ["hipcc", *flags, "-c", f"{name}.cu", "-o", f"{name}.o"],
        ["clang++", "-shared", f"{name}.o", f"-L{rocm / 'lib'}", "-lamdhip64", "-o", f"{name}.so"],
    ):
        subprocess.run([rocm / "bin" / command[0], *command[1:]], cwd=folder, env=environment, check=True)
    return ctypes.CDLL(str(folder / f"{name}.so"))


def test_a_kernel_with_device_library_calls_runs_on_the_virtual_device(virtual_gpu, rocm, tmp_path):
    module = build_module(rocm, tmp_path, "program", PROGRAM)
    # Large arguments take the device library's long path.
    x = torch.linspace(-1e5, 1e5, 1000)
    y = torch.empty_like(x)
    assert module.compute(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), x.numel()) == 0
    assert virtual_gpu.launches("_Z5sinesPKfPfi") == 1
    # AMD's libraries promise 2 units in the last place of results up to 1.
    assert (y.double() - x.double().sin()).abs().max() <= 2 * 2.0**-24


def test_an_exception_of_one_module_is_caught_by_type_in_another(rocm, tmp_path):
    thrower = build_module(rocm, tmp_path, "throwing", THROWING)
    catcher = build_module(rocm, tmp_path, "catching", CATCHING)
    assert catcher.caught(getattr(thrower, "raise")) == 1


@pytest.mark.parametrize("flag, supported", [("-mllvm --lsr-drop-solution=1", True), ("-mllvm --no-such-flag", False)])
def test_hipcc_tells_known_flags_from_unknown_ones(rocm, flag, supported):
    # The way in which aiter asks.
    command = f"{rocm}/bin/hipcc {flag} -x hip -E -P /dev/null -o /dev/null 2>/dev/null"
    assert (subprocess.run(command, shell=True).returncode == 0) is supported


def test_a_bundle_holds_aligned_payloads_in_order():
    payloads = [b"", b"device code", b"more"]
    data = bundle(["host", "gfx1201", "gfx942"], payloads, 64)
    assert data.startswith(MAGIC + struct.pack("<Q", 3))
    position, found = len(MAGIC) + 8, {}
    for _ in payloads:
        offset, size, length = struct.unpack_from("<QQQ", data, position)
        found[data[position + 24 : position + 24 + length].decode()] = data[offset : offset + size]
        assert offset % 64 == 0
        position += 24 + length
    assert found == dict(zip(["host", "gfx1201", "gfx942"], payloads, strict=True))
