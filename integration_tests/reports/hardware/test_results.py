# SPDX-License-Identifier: MIT
"""The record of a run: read back as written, and never mistaken for hardware."""

import json
from dataclasses import replace

import pytest

from integration_tests.reports.hardware import results

VERSIONS = results.Versions(
    python="3.12.3",
    torch="2.13.0+rocm7.2",
    rocm="7.2.53211",
    hip_runtime=70253211,
    packages={"kernels": "0.17.2"},
    settings={},
)
GPU = results.Gpu(
    name="AMD Radeon AI PRO R9700", architecture="gfx1201:xnack-", memory_bytes=2**35, compute_units=64, driver="6.16.6"
)
SUITE = results.Suite(
    name="op",
    delivery="hub",
    command="pytest integration_tests/tests/op",
    seconds=3.5,
    tests=(
        results.Test(name="a", outcome="passed", figures={"relative_l2": 0.0375}),
        results.Test(name="b", outcome="skipped", reason="needs the virtual device"),
    ),
)
TIMING = results.Timing(
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
MEASURED = results.Results(
    measured_on=results.GFX1201,
    date="2026-11-30T08:00:00+00:00",
    commit="0" * 40,
    gpu=GPU,
    versions=VERSIONS,
    suites=(SUITE,),
    timings=(TIMING,),
    not_timed=(results.NotTimed(shape=(1, 73923, 56, 128), call="SDPA", reason="out of memory"),),
)
REHEARSED = replace(
    MEASURED,
    measured_on=results.VIRTUAL_GFX1201,
    gpu=None,
    suites=(replace(SUITE, seconds=None),),
    timings=(),
)


@pytest.mark.parametrize("record", [MEASURED, REHEARSED], ids=["hardware", "dry run"])
def test_a_record_is_read_back_as_written(tmp_path, record):
    results.save(record, tmp_path / "out.json")
    assert results.load(tmp_path / "out.json") == record


def test_only_a_gpu_counts_as_measured(tmp_path):
    path = tmp_path / "hardware.json"
    assert results.load_measured(path) is None
    results.save(MEASURED, path)
    assert results.load_measured(path) == MEASURED
    results.save(REHEARSED, path)
    with pytest.raises(results.ResultsError, match="measured on the virtual gfx1201, not on hardware"):
        results.load_measured(path)


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
    results.save(MEASURED, path)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(results.ResultsError, match=complaint):
        results.load(path)


def test_times_of_the_virtual_device_cannot_be_written():
    with pytest.raises(ValueError, match="neither a GPU nor times"):
        replace(REHEARSED, timings=(TIMING,))


@pytest.mark.parametrize(
    "outcomes, passed",
    [(["passed", "skipped"], True), (["skipped"], False), (["passed", "failed"], False), (["passed", "error"], False)],
)
def test_a_suite_passes_when_something_passed_and_nothing_failed(outcomes, passed):
    tests = tuple(
        results.Test(name=str(i), outcome=outcome, reason=None if outcome == "passed" else "why")
        for i, outcome in enumerate(outcomes)
    )
    suite = replace(SUITE, tests=tests)
    assert suite.passed is passed
    assert replace(MEASURED, suites=(SUITE, suite)).passed is passed
    assert not replace(MEASURED, suites=()).passed


def test_a_suite_is_summed_up_in_words():
    assert SUITE.summary() == "1 passed, 1 skipped"
