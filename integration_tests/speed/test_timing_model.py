# SPDX-License-Identifier: MIT
"""The WGP model on small kernels whose cycles follow from its constants: dependences, ports, LDS banks, waits,
barriers, and how many work-groups fit."""

import dataclasses
import struct

import pytest

from integration_tests.harness.hip_source import compile_hip
from integration_tests.speed import card as machine
from integration_tests.speed import micro_benchmarks
from integration_tests.speed.model import Line, WgpTimes
from integration_tests.speed.trace import traced

CYCLES = {name: int(constant.value) for name, constant in machine.TIMING.items()}
SHORT, LONG = 8, 40  # iterations; the difference leaves out what a kernel does once

MATRIX = """
typedef int int2v __attribute__((ext_vector_type(2)));
typedef int int8v __attribute__((ext_vector_type(8)));
extern "C" __global__ void kernel(int8v* out, int count) {
    int2v a = {1, int(thread_x())};
    int8v c[CHAINS];
    for (int n = 0; n < CHAINS; ++n) c[n] = out[n];
#pragma nounroll
    for (int i = 0; i < count; ++i)
#pragma unroll
        for (int step = 0; step < 8; ++step)
            for (int n = 0; n < CHAINS; ++n)
                c[n] = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, a, true, a, c[n], false);
    for (int n = 0; n < CHAINS; ++n) out[thread_x() * CHAINS + n] = c[n];
}"""

LDS = """
extern "C" __global__ void kernel(uint* out, int count) {
    __shared__ uint values[32 * STRIDE];
    volatile __shared__ uint* cell = (volatile __shared__ uint*)&values[thread_x() * STRIDE];
    uint sum = 0;
#pragma nounroll
    for (int i = 0; i < count; ++i) sum += *cell;
    out[thread_x()] = sum;
}""".replace("volatile __shared__ uint*", "volatile __attribute__((address_space(3))) uint*")


def launch(gpu, source, threads, count, out_bytes=1 << 16):
    """Traces one work-group of `kernel(out, count)`; the traces and the launch."""
    out = gpu.allocate(bytes(out_bytes))
    module = gpu.load_module(compile_hip(source))
    try:
        with traced(gpu) as traces:
            gpu.launch(module.function("kernel"), (1,), (threads,), struct.pack("Qi", out, count))
    finally:
        module.unload()
        gpu.free(out)
    return traces, traces.of("kernel")


def cycles_per_iteration(gpu, source, threads=32, groups=1, **changed):
    """Modelled cycles of one loop iteration of a work-group."""
    cycles = []
    for count in (SHORT, LONG):
        traces, found = launch(gpu, source, threads, count)
        cycles.append(traces.time(found, groups, groups, **changed)["cycles"])
    return (cycles[1] - cycles[0]) / (LONG - SHORT)


def test_a_chain_of_matrix_instructions_takes_their_latency(virtual_gpu):
    per_iteration = cycles_per_iteration(virtual_gpu, MATRIX.replace("CHAINS", "1"), branch_latency=1)
    assert per_iteration == 8 * CYCLES["matrix_latency"]


def test_four_chains_of_matrix_instructions_fill_the_unit(virtual_gpu):
    per_iteration = cycles_per_iteration(virtual_gpu, MATRIX.replace("CHAINS", "4"), branch_latency=1)
    assert per_iteration == 32 * CYCLES["matrix_issue"]
    assert 4 * CYCLES["matrix_issue"] > CYCLES["matrix_latency"]  # what makes four chains enough


def test_a_second_wave_of_a_simd_uses_the_cycles_that_the_first_one_waits(virtual_gpu):
    # Eight waves on four SIMDs: two chains share a unit that one of them leaves idle most of the time.
    one = cycles_per_iteration(virtual_gpu, MATRIX.replace("CHAINS", "1"), threads=128)
    two = cycles_per_iteration(virtual_gpu, MATRIX.replace("CHAINS", "1"), threads=256)
    assert two == one


@pytest.mark.parametrize("stride, passes", [(1, 1), (2, 2), (32, 32), (33, 1)])
def test_lds_banks_serve_lanes_that_do_not_share_them_at_once(virtual_gpu, stride, passes):
    _, found = launch(virtual_gpu, LDS.replace("STRIDE", str(stride)), 32, SHORT)
    assert found.lds_cycles == SHORT * passes and found.lds_conflict_cycles == SHORT * (passes - 1)


def test_a_wait_takes_the_latency_of_what_it_waits_for(virtual_gpu):
    source = LDS.replace("STRIDE", "1")
    slow = cycles_per_iteration(virtual_gpu, source, lds_latency=CYCLES["lds_latency"] + 100)
    assert slow - cycles_per_iteration(virtual_gpu, source) == 100


def test_a_barrier_holds_every_wave_until_the_slowest_has_come(virtual_gpu):
    source = """
    extern "C" __global__ void kernel(uint* out, int count) {
        float x = thread_x();
    #pragma nounroll
        for (int i = 0; i < count; ++i) {
            if (__builtin_amdgcn_readfirstlane(thread_x()) == 0)
    #pragma unroll
                for (int n = 0; n < 100; ++n) x = __builtin_amdgcn_sinf(x);
            __builtin_amdgcn_s_barrier();
        }
        out[thread_x()] = x;
    }"""
    alone = cycles_per_iteration(virtual_gpu, source, threads=32)
    assert alone > 100 * CYCLES["transcendental_latency"]
    together = cycles_per_iteration(virtual_gpu, source, threads=128)
    # The other three waves are on SIMDs of their own and have nothing else to do.
    assert abs(together - alone) <= CYCLES["barrier_latency"] + CYCLES["branch_latency"]


def test_work_groups_of_a_wgp_are_limited_by_registers_lds_and_wave_slots(virtual_gpu):
    _, found = launch(virtual_gpu, MATRIX.replace("CHAINS", "1"), 256, 1)
    shape = dataclasses.replace(found, vgprs=1, lds_bytes=0, waves_per_workgroup=8, workgroup_processor_mode=1)
    assert shape.resident_workgroups() == 8  # 16 slots a SIMD, two waves of each work-group
    assert dataclasses.replace(shape, vgprs=240).resident_workgroups() == 3  # 1536 / 240 = 6 waves a SIMD
    assert dataclasses.replace(shape, vgprs=241).resident_workgroups() == 2  # granules of 24: 264 each, 5 waves
    assert dataclasses.replace(shape, lds_bytes=65536).resident_workgroups() == 2
    cu_mode = dataclasses.replace(shape, vgprs=240, workgroup_processor_mode=0)
    assert cu_mode.resident_workgroups() == 2  # four waves a SIMD: one work-group a CU, two of six places stay empty


def test_generations_after_the_third_take_what_the_third_takes(virtual_gpu):
    traces, found = launch(virtual_gpu, MATRIX.replace("CHAINS", "4"), 256, SHORT)
    found = dataclasses.replace(found, vgprs=240)
    times = WgpTimes.of(traces, found)
    direct = traces.time(found, times.resident, 13)["cycles"]
    assert times.cycles(13) == pytest.approx(direct, rel=0.01)  # work-groups of one kernel drift against each other


@pytest.fixture(scope="module")
def micro(loaded_gpu, tmp_path_factory):
    """Modelled cycles of one wave's step in a micro-benchmark of the quick run, with `waves` on a SIMD."""
    folder = tmp_path_factory.mktemp("micro") / "built"
    micro_benchmarks.build(folder)
    module = loaded_gpu.load_module((folder / micro_benchmarks.CODE_OBJECT).read_bytes())
    out = loaded_gpu.allocate(bytes(1 << 12))

    def cycles(name, waves, rounds, **changed):
        count = 1 if waves == 1 else waves * machine.SIMDS_PER_WGP
        with traced(loaded_gpu) as traces:
            arguments = struct.pack("Qi", out, rounds)
            loaded_gpu.launch(module.function(name), (1,), (count * micro_benchmarks.WAVE,), arguments)
        return traces.time(traces.launches[0], 1, 1, **changed)["cycles"]

    def step(name, waves, **changed):
        def more(which):
            return cycles(which, waves, 2, **changed) - cycles(which, waves, 1, **changed)

        steps_a_round = 256
        return (more(name) - more(micro_benchmarks.NOTHING)) / steps_a_round / waves

    yield step
    module.unload()
    loaded_gpu.free(out)


@pytest.mark.parametrize("waves", micro_benchmarks.WAVES_PER_SIMD)
@pytest.mark.parametrize(
    "name, constant",
    [
        ("exp_alone", "transcendental_unit"),
        ("valu_dependent", "vector_latency"),
        ("wmma_independent", "matrix_issue"),
        ("wmma_same_accumulator", "matrix_latency"),
    ],
)
def test_a_micro_benchmark_takes_the_constant_that_it_measures(micro, name, constant, waves):
    assert micro(name, waves) == pytest.approx(CYCLES[constant], rel=0.02)  # the loop's ends


def test_the_transcendental_unit_works_beside_other_vector_instructions(micro):
    # Three additions fit between two transcendentals; one after the other would take 4 + 3.
    assert micro("exp_among_valu", 6) < CYCLES["transcendental_unit"] + 1


def test_readings_differ_where_a_matrix_instruction_follows_a_transcendental(micro):
    both = {reading: micro("exp_and_wmma", 6, **changed) for reading, changed in machine.READINGS.items()}
    matrix, unit = CYCLES["matrix_issue"], CYCLES["transcendental_unit"]
    assert both[machine.CAUTIOUS] == pytest.approx(matrix + unit, rel=0.01)
    assert both[machine.PARALLEL] == pytest.approx(matrix + 1 + CYCLES["matrix_entry"], rel=0.01)


@pytest.mark.parametrize("name, constant", [("lds_dependent", "vector_drain"), ("lds_among_wmma", "matrix_drain")])
def test_lds_waits_until_the_waves_own_vector_instructions_have_drained(micro, name, constant):
    later = micro(name, 1, **{constant: CYCLES[constant] + 10})
    assert later - micro(name, 1) == pytest.approx(10, rel=0.02)


def test_a_measured_constant_takes_the_place_of_the_tables(monkeypatch):
    monkeypatch.setattr(machine, "TIMING", dict(machine.TIMING))
    monkeypatch.setattr(machine, "READINGS", dict(machine.READINGS))
    assert machine.adopt({}, "nowhere") == []
    measured = {"transcendental_unit": 4.9, "matrix_waits_for_transcendental": 0.3, "perm_issue": 1.0}
    assert machine.adopt(measured, "a card") == ["transcendental_unit", "matrix_waits_for_transcendental"]
    assert machine.TIMING["transcendental_unit"].value == 5 and machine.TIMING["transcendental_unit"].source == "a card"
    assert list(machine.READINGS) == [machine.PARALLEL]


def test_a_line_goes_through_both_points():
    assert Line.through((8, 100.0), (16, 180.0)).at(100) == 20 + 10 * 100


def test_constants_reach_the_model_by_name(loaded_gpu, monkeypatch):
    # The order of the table is nobody's business: reversed, it gives the same times.
    expected = cycles_per_iteration(loaded_gpu, LDS.replace("STRIDE", "2"))
    monkeypatch.setattr(machine, "TIMING", dict(reversed(machine.TIMING.items())))
    assert cycles_per_iteration(loaded_gpu, LDS.replace("STRIDE", "2")) == expected


@pytest.mark.parametrize("change", [{"lds_latencies": 1}, {}], ids=["unknown name", "missing name"])
def test_a_table_that_does_not_name_the_models_constants_is_refused(loaded_gpu, monkeypatch, change):
    table = {name: constant for name, constant in machine.TIMING.items() if name != "lds_latency"}
    monkeypatch.setattr(machine, "TIMING", table | dict.fromkeys(change, machine.TIMING["lds_latency"]))
    with pytest.raises(ValueError, match="do not name the same constants: .*lds_latency"):
        cycles_per_iteration(loaded_gpu, LDS.replace("STRIDE", "2"))
