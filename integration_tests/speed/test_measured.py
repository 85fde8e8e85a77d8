# SPDX-License-Identifier: MIT
"""Constants come out of a made-up record as they went into it."""

import re

import pytest

from integration_tests.harness import hardware_record
from integration_tests.harness.hardware_record import Gpu, Micro, Results, ResultsError, Versions
from integration_tests.speed import measured, micro_benchmarks

VERSIONS = Versions(python="3.12", torch="2.13.0+rocm7.2", rocm="7.2", hip_runtime=None, packages={}, settings={})
GPU = Gpu(name="a made-up card", architecture="gfx1201", memory_bytes=1, compute_units=1)

# A machine in which nobody could believe: every constant is a number of its own.
RATES = {
    "exp_alone": 40.0,
    "exp_among_valu": 3 + 7.0,
    "exps_then_valu": 3 + 11.0,
    "wmma_independent": 80.0,
    "wmma_fp8": 81.0,
    "wmma_f16": 160.0,
    "exp_and_wmma": 80 + 7 + 13.0,
    "wmma_three_banks": 80 + 2.0,
    "wmma_one_bank": 80 + 5.0,
    "lds_b128": 21.0,
    "lds_among_valu": 16 + 0.5,
    "lds_among_wmma": 4 * 80 + 0.25,
}
CYCLES = {
    "valu_dependent": 50.0,
    "wmma_same_accumulator": 90.0,
    "wmma_then_valu": 270 + 50.0,
    "lds_dependent": 300 + 50.0,
}
CONSTANTS = {
    "transcendental_unit": 40.0,
    "transcendental_vector": 7.0,
    "transcendental_clustered": 11.0,
    "matrix_issue": 80.0,
    "fp8_matrix_issue": 81.0,
    "wide_matrix_issue": 160.0,
    "matrix_waits_for_transcendental": 13.0,
    "matrix_three_banks": 2.0,
    "matrix_one_bank": 5.0,
    "matrix_accumulator_latency": 90.0,
    "matrix_latency": 270.0,
    "vector_latency": 50.0,
    "lds_latency": 300.0,
    "lds_load_issue": 21.0,
    "access_vector_slots": 0.5,
    "access_matrix_slots": 0.25,
}


def record(**changes) -> Results:
    names = re.findall(r"^MICRO_BENCHMARK\((\w+)", micro_benchmarks.SOURCE.read_text(), re.MULTILINE)
    steps = [
        Micro(
            name=name,
            waves=waves,
            cycles=CYCLES.get(name, 1.0) if waves == 1 else 1.0,
            ratio=RATES.get(name, 1.0) + (1000 if waves == 1 else 0),
        )
        for waves in micro_benchmarks.WAVES_PER_SIMD
        for name in names
        if name != micro_benchmarks.NOTHING
    ]
    fields = {
        "measured_on": hardware_record.GFX1201,
        "date": "2026-01-01T00:00:00+00:00",
        "commit": None,
        "gpu": GPU,
        "versions": VERSIONS,
        "suites": (),
        "micro": tuple(steps),
    }
    return Results(**{**fields, **changes})


def test_each_constant_is_what_its_micro_benchmark_gives(tmp_path):
    hardware_record.save(record(), tmp_path / "hardware.json")
    found = measured.measured_constants(tmp_path / "hardware.json")
    single = {f"{name}_issue": 1.0 for name in measured.SINGLE}
    alone = {"transcendental_vector": 7, "transcendental_clustered": 11, "access_vector_slots": 0.5}
    assert found == CONSTANTS | single | {f"{name}_alone": 1000.0 + value for name, value in alone.items()}


def test_the_docstring_names_every_constant(tmp_path):
    hardware_record.save(record(), tmp_path / "hardware.json")
    for name in measured.measured_constants(tmp_path / "hardware.json"):
        single = name.removesuffix("_issue") in measured.SINGLE
        assert single or re.search(rf"\| .*\b{name}\b.* \|", measured.measured_constants.__doc__), name


def test_without_micro_benchmarks_there_are_none(tmp_path):
    assert measured.measured_constants(tmp_path / "hardware.json") == {}
    hardware_record.save(record(micro=()), tmp_path / "hardware.json")
    assert measured.measured_constants(tmp_path / "hardware.json") == {}


def test_a_rehearsal_gives_none(tmp_path):
    rehearsed = record(measured_on=hardware_record.VIRTUAL_GFX1201, gpu=None, micro=())
    hardware_record.save(rehearsed, tmp_path / "hardware.json")
    with pytest.raises(ResultsError, match="not on hardware"):
        measured.measured_constants(tmp_path / "hardware.json")
