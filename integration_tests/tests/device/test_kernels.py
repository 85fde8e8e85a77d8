# SPDX-License-Identifier: MIT
"""What a launch sets up: grids, work-groups, LDS, scratch, barriers, atomics."""

import struct

import numpy as np
import pytest

from integration_tests.harness.hip_source import compile_hip
from integration_tests.virtual_gpu import HipError

POISON = 0xFFFBFFFB  # what the device puts into registers and LDS that nobody has written


def run(gpu, source, grid, block, *arguments, out_bytes, lds=0, kernel="kernel"):
    """Launches `kernel(out, arguments...)` and returns what it left in `out`, which starts as zeros."""
    out = gpu.allocate(bytes(out_bytes))
    packed = struct.pack("Q" + "Q" * len(arguments), out, *arguments)
    module = gpu.load_module(compile_hip(source))
    try:
        gpu.launch(module.function(kernel), grid, block, packed, lds=lds)
        return gpu.read(out, out_bytes)
    finally:
        module.unload()
        gpu.free(out)


def test_every_thread_of_a_grid_with_ragged_waves_runs_once(virtual_gpu):
    source = """
    extern "C" __global__ void kernel(uint* out) {
        uint block = thread_y() * 9 + thread_x();
        uint group = (group_z() * 2 + group_y()) * 3 + group_x();
        __atomic_fetch_add(&out[group * 45 + block], 1 + group * 1000 + block, __ATOMIC_RELAXED);
    }"""
    values = np.frombuffer(run(virtual_gpu, source, (3, 2, 4), (9, 5), out_bytes=24 * 45 * 4), np.uint32)
    group, block = np.divmod(np.arange(24 * 45), 45)
    assert np.array_equal(values, 1 + group * 1000 + block)


def test_dynamic_lds_is_shared_across_a_barrier(virtual_gpu):
    source = """
    extern __shared__ uint shared[];
    extern "C" __global__ void kernel(uint* out) {
        shared[thread_x()] = thread_x() * 7;
        barrier();
        out[group_x() * 256 + thread_x()] = shared[255 - thread_x()];
    }"""
    values = np.frombuffer(run(virtual_gpu, source, (2,), (256,), out_bytes=2048, lds=1024), np.uint32)
    assert np.array_equal(values.reshape(2, 256), np.tile((255 - np.arange(256)) * 7, (2, 1)))


def test_waves_take_many_barriers_in_step(virtual_gpu):
    # Each round every thread reads its neighbour's value of the round before: one missed barrier breaks the sum.
    source = """
    extern "C" __global__ void kernel(uint* out) {
        __shared__ uint values[2][256];
        uint t = thread_x();
        values[0][t] = t;
        for (int round = 0; round < 50; ++round) {
            barrier();
            values[(round + 1) % 2][t] = values[round % 2][(t + 33) % 256] + 1;
        }
        barrier();
        out[t] = values[0][t];
    }"""
    values = np.frombuffer(run(virtual_gpu, source, (1,), (256,), out_bytes=1024), np.uint32)
    assert np.array_equal(values, (np.arange(256) + 33 * 50) % 256 + 50)


def test_private_arrays_live_in_scratch(virtual_gpu):
    source = """
    extern "C" __global__ void kernel(uint* out) {
        uint values[64];
        for (uint i = 0; i < 64; ++i) values[(i * 29 + thread_x()) % 64] = i;
        uint sum = 0;
        for (uint i = 0; i < 64; i += 1 + thread_x() % 3) sum = sum * 3 + values[(i + out[0]) % 64];
        out[thread_x() + 1] = sum;
    }"""

    def expected(thread):
        values = [0] * 64
        for i in range(64):
            values[(i * 29 + thread) % 64] = i
        total = 0
        for i in range(0, 64, 1 + thread % 3):
            total = (total * 3 + values[i]) % 2**32
        return total

    values = np.frombuffer(run(virtual_gpu, source, (1,), (48,), out_bytes=49 * 4), np.uint32)
    assert values[1:].tolist() == [expected(thread) for thread in range(48)]


@pytest.mark.finds("undefined-result")
def test_memory_that_nobody_wrote_is_not_zero(virtual_gpu):
    source = """
    extern "C" __global__ void kernel(uint* out) {
        __shared__ volatile uint never_written[64];
        out[thread_x()] = never_written[thread_x()];
    }"""
    values = np.frombuffer(run(virtual_gpu, source, (1,), (64,), out_bytes=256), np.uint32)
    assert np.all(values == POISON)


def test_a_barrier_that_can_never_complete_is_a_fault(virtual_gpu):
    source = """
    extern "C" __global__ void kernel(uint* out) {
        if (thread_x() < 32) {
            for (;;) { __builtin_amdgcn_s_barrier(); if (__atomic_load_n(out, __ATOMIC_RELAXED)) break; }
        } else {
            for (;;) { __builtin_amdgcn_s_barrier_wait(-1); }
        }
    }"""
    with pytest.raises(HipError, match=r"barrier can never complete.*kernel kernel, work-group \(0, 0, 0\)"):
        run(virtual_gpu, source, (1,), (64,), out_bytes=4)


@pytest.mark.finds("barrier-divergence")
@pytest.mark.parametrize("waves_at_the_barrier, uneven", [(2, False), (1, True)])
def test_waves_that_skip_a_barrier_are_recorded(virtual_gpu, waves_at_the_barrier, uneven):
    # Hardware lets a wave that ended drop out of barriers, so the launch itself is no fault.
    source = """
    extern "C" __global__ void kernel(uint* out, unsigned long waves) {
        if (__builtin_amdgcn_readfirstlane(thread_x()) / 32 < waves) barrier();
        out[thread_x()] = 1;
    }"""
    values = np.frombuffer(run(virtual_gpu, source, (1,), (64,), waves_at_the_barrier, out_bytes=256), np.uint32)
    assert np.all(values == 1)
    assert [record.uneven_barriers for record in virtual_gpu.records()] == [uneven]


@pytest.mark.finds("global-race")  # all threads store the same
def test_a_launch_knows_its_size(virtual_gpu):
    source = """
    extern "C" __global__ void kernel(uint* out) {
        out[0] = __builtin_amdgcn_workgroup_size_x();
        out[1] = __builtin_amdgcn_workgroup_size_y();
        out[2] = __builtin_amdgcn_workgroup_size_z();
        const uint* implicit = (const uint*)(unsigned long)__builtin_amdgcn_implicitarg_ptr();
        for (int axis = 0; axis < 3; ++axis) out[3 + axis] = implicit[axis];  // hidden_block_count_x, y, z
    }"""
    values = np.frombuffer(run(virtual_gpu, source, (3, 4, 5), (8, 2, 4), out_bytes=24), np.uint32)
    assert values.tolist() == [8, 2, 4, 3, 4, 5]


@pytest.mark.parametrize("threads", ["1", "2"])
def test_atomics_of_all_work_groups_add_up(virtual_gpu, monkeypatch, threads):
    monkeypatch.setenv("VIRTUAL_GPU_THREADS", threads)
    source = """
    extern "C" __global__ void kernel(uint* out) { __atomic_fetch_add(&out[thread_x() % 2], 1u, __ATOMIC_RELAXED); }
    """
    values = np.frombuffer(run(virtual_gpu, source, (50,), (96,), out_bytes=8), np.uint32)
    assert values.tolist() == [50 * 48, 50 * 48]


def test_a_wave_starts_with_no_lanes_beyond_its_32(virtual_gpu):
    # clang counts a 64-bit EXEC for __ballot and __activemask in wave32 too.
    source = """
    extern "C" __global__ void count(unsigned* out) {
        unsigned long mask;
        asm volatile("s_mov_b64 %0, exec" : "=s"(mask));
        out[thread_x()] = __builtin_popcountll(mask);
    }
    """
    module = virtual_gpu.load_module(compile_hip(source))
    memory = virtual_gpu.allocate(bytes(4 * 40))
    virtual_gpu.launch(module.function("count"), (1,), (40,), struct.pack("Q", memory))
    assert struct.unpack("40I", virtual_gpu.read(memory, 160)) == (32,) * 32 + (8,) * 8
    virtual_gpu.free(memory)
    module.unload()


@pytest.mark.parametrize("clamp", [False, True])
def test_clamp_does_nothing_to_the_dot_product_of_halves(virtual_gpu, clamp):
    # AMD's __ockl_fdot2 always sets it: bitsandbytes' wheels have it in their 4-bit products.
    source = f"""
    typedef _Float16 half2 __attribute__((ext_vector_type(2)));
    extern "C" __global__ void dot(float* out) {{
        half2 a = {{3, 2}}, b = {{5, 4}};
        out[thread_x()] = __builtin_amdgcn_fdot2(a, b, -1000.0f * thread_x(), {str(clamp).lower()});
    }}
    """
    module = virtual_gpu.load_module(compile_hip(source))
    memory = virtual_gpu.allocate(bytes(128))
    virtual_gpu.launch(module.function("dot"), (1,), (32,), struct.pack("Q", memory))
    assert struct.unpack("32f", virtual_gpu.read(memory, 128)) == tuple(23.0 - 1000 * i for i in range(32))
    virtual_gpu.free(memory)
    module.unload()
