# SPDX-License-Identifier: MIT
"""The record of a run: read back as written, and never mistaken for hardware."""

import json
from dataclasses import replace

import pytest

from integration_tests.harness import hardware_record

VERSIONS = hardware_record.Versions(
    python="3.12.3",
    torch="2.13.0+rocm7.2",
    rocm="7.2.53211",
    hip_runtime=70253211,
    packages={"kernels": "0.17.2"},
    settings={},
)
GPU = hardware_record.Gpu(
    name="AMD Radeon AI PRO R9700", architecture="gfx1201:xnack-", memory_bytes=2**35, compute_units=64, driver="6.16.6"
)
SUITE = hardware_record.Suite(
    name="op",
    delivery="hub",
    command="pytest integration_tests/tests/op",
    seconds=3.5,
    tests=(
        hardware_record.Test(name="a", outcome="passed", figures={"relative_l2": 0.0375}),
        hardware_record.Test(name="b", outcome="skipped", reason="needs the virtual device"),
    ),
)
TIMING = hardware_record.Timing(
    shape=(1, 4096, 24, 128),
    call="scaled_dot_product_attention",
    sdpa_backend="FLASH_ATTENTION",
    chosen_by_torch=True,
    kernels=("attn_fwd",),
    repeats=20,
    median_us=2.0,
    low_us=1.0,
    high_us=3.0,
    relative_l2=None,
)
MEASURED = hardware_record.Results(
    measured_on=hardware_record.GFX1201,
    date="2026-11-30T08:00:00+00:00",
    commit="0" * 40,
    gpu=GPU,
    versions=VERSIONS,
    suites=(SUITE,),
    timings=(TIMING,),
    not_timed=(hardware_record.NotTimed(shape=(1, 73923, 56, 128), call="SDPA", reason="out of memory"),),
)
REHEARSED = replace(
    MEASURED,
    measured_on=hardware_record.VIRTUAL_GFX1201,
    gpu=None,
    suites=(replace(SUITE, seconds=None),),
    timings=(),
)


@pytest.mark.parametrize("record", [MEASURED, REHEARSED], ids=["hardware", "dry run"])
def test_a_record_is_read_back_as_written(tmp_path, record):
    hardware_record.save(record, tmp_path / "out.json")
    assert hardware_record.load(tmp_path / "out.json") == record


def test_only_a_gpu_counts_as_measured(tmp_path):
    path = tmp_path / "hardware.json"
    assert hardware_record.load_measured(path) is None
    hardware_record.save(MEASURED, path)
    assert hardware_record.load_measured(path) == MEASURED
    hardware_record.save(REHEARSED, path)
    with pytest.raises(hardware_record.ResultsError, match="measured on the virtual gfx1201, not on hardware"):
        hardware_record.load_measured(path)


@pytest.mark.parametrize(
    "change, complaint",
    [
        (lambda r: r | {"measured_on": "virtual gfx1201"}, "neither a GPU nor times"),
        (lambda r: r | {"measured_on": "gfx1200"}, "measured_on"),
        (lambda r: r | {"gpu": None}, "names its GPU"),
        (lambda r: r | {"gpu": r["gpu"] | {"architecture": "gfx12010"}}, "names its GPU"),
        (lambda r: r | {"versions": r["versions"] | {"rocm": None}}, "names its ROCm"),
        (lambda r: r | {"suites": [r["suites"][0] | {"seconds": None}]}, "how long each suite took"),
        (lambda r: r | {"timings": [r["timings"][0] | {"median_us": float("nan")}]}, "median_us"),
        (lambda r: r | {"timings": [r["timings"][0] | {"median_us": "2"}]}, "median_us"),
        (lambda r: r | {"speed": 1}, "speed"),
        (lambda r: {key: value for key, value in r.items() if key != "date"}, "date"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(tmp_path, change, complaint):
    path = tmp_path / "hardware.json"
    hardware_record.save(MEASURED, path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(hardware_record.ResultsError, match=complaint):
        hardware_record.load(path)


def test_times_of_the_virtual_device_cannot_be_written():
    with pytest.raises(ValueError, match="neither a GPU nor times"):
        replace(REHEARSED, timings=(TIMING,))


@pytest.mark.parametrize(
    "outcomes, passed",
    [(["passed", "skipped"], True), (["skipped"], False), (["passed", "failed"], False), (["passed", "error"], False)],
)
def test_a_suite_passes_when_something_passed_and_nothing_failed(outcomes, passed):
    tests = tuple(
        hardware_record.Test(name=str(i), outcome=outcome, reason=None if outcome == "passed" else "why")
        for i, outcome in enumerate(outcomes)
    )
    suite = replace(SUITE, tests=tests)
    assert suite.passed is passed
    assert replace(MEASURED, suites=(SUITE, suite)).passed is passed
    assert not replace(MEASURED, suites=()).passed


def test_a_suite_is_summed_up_in_words():
    assert SUITE.summary() == "1 passed, 1 skipped"


# The quick run

CHECK = hardware_record.Check(
    inputs="normal",
    shape=(1, 33, 2, 128),
    call="gfx1201_sage_attention (hub)",
    relative_l2=0.03,
    bound=0.04,
    relative_l2_to_sdpa=0.031,
    bound_to_sdpa=0.044,
)
KERNEL = hardware_record.KernelTime(
    shape=(1, 33, 2, 128), call="gfx1201_sage_attention (hub)", kernel="main", launches=1, microseconds=2.0
)
QUICK = replace(
    MEASURED,
    suites=(),
    checks=(CHECK,),
    micro=(hardware_record.Micro(name="exp_alone", waves=6, cycles=2.0, ratio=3.0),),
    kernels=(KERNEL,),
    clock_hertz=1.0,
    power_watts=1.0,
)
STEP_REHEARSED = hardware_record.Micro(name="exp_alone", waves=6, cycles=None, ratio=None)
QUICK_REHEARSED = replace(REHEARSED, suites=(), checks=(CHECK,), micro=(STEP_REHEARSED,))


@pytest.mark.parametrize("record", [QUICK, QUICK_REHEARSED], ids=["hardware", "dry run"])
def test_a_quick_run_is_read_back_as_written(tmp_path, record):
    hardware_record.save(record, tmp_path / "out.json")
    assert hardware_record.load(tmp_path / "out.json") == record and record.passed


@pytest.mark.parametrize("figure", ["relative_l2", "relative_l2_to_sdpa"])
@pytest.mark.parametrize("value", [0.045, None])
def test_one_figure_beyond_its_bound_or_not_finite_fails_the_run(figure, value):
    assert not replace(QUICK, checks=(CHECK, replace(CHECK, **{figure: value}))).passed


@pytest.mark.parametrize(
    "part", [{"micro": QUICK.micro}, {"kernels": (KERNEL,)}, {"clock_hertz": 1.0}, {"power_watts": 1.0}]
)
def test_figures_of_the_virtual_device_cannot_be_written(part):
    with pytest.raises(ValueError, match="neither a GPU nor times"):
        replace(QUICK_REHEARSED, **part)


def test_a_micro_benchmark_without_figures_is_no_record_of_a_gpu():
    with pytest.raises(ValueError, match="what each micro-benchmark gave"):
        replace(QUICK, micro=QUICK_REHEARSED.micro)


def test_quick_and_full_runs_of_one_commit_complete_each_other(tmp_path):
    assert hardware_record.load_earlier(tmp_path / "hardware.json") is None
    assert hardware_record.completed(QUICK, None) == QUICK
    both = hardware_record.completed(QUICK, MEASURED)
    assert both == replace(QUICK, suites=MEASURED.suites) == hardware_record.completed(MEASURED, both)
    for other in ({"commit": "1" * 40}, {"commit": None}, {"gpu": replace(GPU, name="another")}):
        assert hardware_record.completed(replace(QUICK, **other), MEASURED) == replace(QUICK, **other)


def test_a_run_that_stopped_has_not_passed():
    assert QUICK.passed and not replace(QUICK, stopped="the GPU is gone").passed


def test_who_cites_tests_is_told_that_a_quick_run_has_none(tmp_path):
    path = tmp_path / "hardware.json"
    assert hardware_record.load_tested(path) is None
    hardware_record.save(MEASURED, path)
    assert hardware_record.load_tested(path) == MEASURED
    hardware_record.save(QUICK, path)
    with pytest.raises(hardware_record.ResultsError, match="has no tests to cite"):
        hardware_record.load_tested(path)
