# SPDX-License-Identifier: MIT
"""The quick run, rehearsed: with torch and the standard library alone, whole, and never with a time."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from hub_kernel import build_code_object
from integration_tests.harness import device_under_test, hardware_record, plain_delivery
from integration_tests.harness.hardware_record import KernelTime, Timing
from integration_tests.harness.launches import KERNELS, MAIN_KERNEL
from integration_tests.paths import REPOSITORY, requirement
from integration_tests.reference.attention import attention_float64
from integration_tests.reports.hardware import description, quick, timing
from integration_tests.speed import micro_benchmarks
from integration_tests.speed.test_measured import record as made_up_record

QUICK = "integration_tests.reports.hardware.quick"

# Runs the command where nothing can be imported that `pip install torch ziglang` does not bring.
WITH_TORCH_ALONE = f"""
import importlib.machinery, importlib.metadata, re, runpy, sys

def with_requirements(name, found):
    name = re.sub("[-_.]+", "-", name).lower()
    if name not in found:
        try:
            lines = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            return
        found.add(name)
        for line in lines:
            if "extra ==" not in line:
                with_requirements(re.match("[A-Za-z0-9._-]+", line)[0], found)

present = {{"ziglang"}}
with_requirements("torch", present)
absent = set()
for module, distributions in importlib.metadata.packages_distributions().items():
    if not present & {{re.sub("[-_.]+", "-", name).lower() for name in distributions}}:
        absent.add(module)
assert {{"numpy", "pytest", "rich", "kernels"}} <= absent and "torch" not in absent

class OnlyTorch(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in absent else super().find_spec(name, path, target)

# Before torch is imported: it looks for some of these by itself.
sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = OnlyTorch
sys.argv = ["quick", "--dry-run"]
runpy.run_module("{QUICK}", run_name="__main__")
"""


@pytest.fixture(scope="module")
def rehearsed() -> subprocess.CompletedProcess:
    """A dry run of the command, in an environment that has torch alone."""
    from integration_tests.virtual_gpu import build

    build()
    command = [sys.executable, "-c", WITH_TORCH_ALONE]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)


@pytest.fixture
def calls(rocm_torch):
    """The op of each kernel, on the virtual device."""
    quick.take_or_build()
    return {kernel.name: plain_delivery.load(kernel).gfx1201_sage_attention for kernel in plain_delivery.KERNELS}


def test_a_rehearsal_needs_torch_alone_and_writes_a_record_without_times(rehearsed):
    assert rehearsed.returncode == 0, rehearsed.stderr
    record = hardware_record.load(hardware_record.DRY_RUN)
    assert not record.is_measured and record.passed and not record.timings and not record.kernels
    timed = [("normal", quick.REHEARSED)] * len(quick.TIMED)
    assert [(check.inputs, check.shape[:3]) for check in record.checks] == [*quick.CHECKED, *timed]
    names = [name for name in micro_benchmarks.names(quick.MICRO) if name != micro_benchmarks.NOTHING]
    assert [(step.name, step.waves) for step in record.micro] == [(name, waves) for waves in (1, 6) for name in names]
    assert {row.reason for row in record.not_timed} == {"the virtual device has no clock"}
    assert len(record.not_timed) == 2 * len(quick.TIMED)
    with pytest.raises(hardware_record.ResultsError, match="not on hardware"):
        hardware_record.load_measured(hardware_record.DRY_RUN)


def test_a_rehearsal_says_what_it_does_and_ends_with_one_screen(rehearsed):
    for step in range(1, 5):
        assert f"[{step}/4] " in rehearsed.stdout
    screen = rehearsed.stdout.partition("\nvirtual gfx1201; ")[2].splitlines()
    assert len(screen) < 12
    assert screen[-1].startswith("Written to dist/hardware_dry_run.json")
    assert "Traceback" not in rehearsed.stderr


# Times, with a stop-watch that is none


def bench(times: list[float]) -> timing.Bench:
    return timing.bench_of((1, 33, 2, 128), device_under_test.torch_device(), lambda call: times)


def test_a_shape_gives_sdpa_with_its_backend_and_the_op(calls):
    rows, kernels = quick.time_shape(bench([1.0, 2.0, 3.0]), calls)
    sdpa, op = rows
    assert isinstance(sdpa, Timing) and sdpa.sdpa_backend == "FLASH_ATTENTION" and sdpa.chosen_by_torch
    assert isinstance(op, Timing) and op.sdpa_backend is None and op.relative_l2 <= timing.APART
    # No GPU, no kernels in the profile.
    assert kernels == []


def test_gpu_time_is_summed_by_kernel(calls, monkeypatch):
    on_gpu = (("fill", 0.0), *((name, 2.0) for name in KERNELS), (MAIN_KERNEL, 3.0))
    seen = timing.profile_call

    def with_kernels(call):
        profile = seen(call)
        return profile if profile.sdpa_backend else replace(profile, kernels=on_gpu)

    monkeypatch.setattr(timing, "profile_call", with_kernels)
    _, kernels = quick.time_shape(bench([1.0, 2.0, 3.0]), calls)
    (name,) = calls
    common = {"shape": (1, 33, 2, 128), "call": name}
    assert kernels == [
        *(KernelTime(kernel=kernel, launches=1, microseconds=2.0, **common) for kernel in KERNELS[:-1]),
        KernelTime(kernel=MAIN_KERNEL, launches=2, microseconds=5.0, **common),
    ]


def test_a_full_screen_is_one_screen(capsys, calls):
    shapes = [(*shape, 128) for shape in quick.TIMED.values()]
    rows, _ = quick.time_shape(bench([1e6, 2e6, 3e6]), calls)
    timings = tuple(replace(row, shape=shape) for shape in shapes for row in rows)
    kernels = tuple(KernelTime(shape=shapes[-1], call="op", kernel=k, launches=1, microseconds=1e6) for k in KERNELS)
    checks = tuple(quick.check_all(calls))
    capsys.readouterr()
    quick.print_record(made_up_record(timings=timings, kernels=kernels, checks=checks, clock_hertz=1e9))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 120
    assert "clock 1000 MHz, power not told" in "\n".join(lines)


def test_unfused_sdpa_is_pointed_out_where_the_setting_is_not_made(capsys, calls):
    rows, _ = quick.time_shape(bench([1.0, 2.0, 3.0]), calls)
    unfused = made_up_record(timings=(replace(rows[0], sdpa_backend="MATH"),))
    with_setting = replace(unfused, versions=replace(unfused.versions, settings={description.FUSED_SDPA: "1"}))
    for record, said in ((unfused, True), (with_setting, False), (made_up_record(timings=tuple(rows)), False)):
        quick.print_record(record)
        assert (f"{description.FUSED_SDPA}=1, and keep both files" in capsys.readouterr().out) is said


def test_two_kernels_are_checked_and_timed_side_by_side(calls, monkeypatch, tmp_path):
    (kernel,) = plain_delivery.KERNELS
    shutil.copytree(kernel.code_object, tmp_path / "second")
    kernels = (kernel, replace(kernel, name="second", code_object=tmp_path / "second"))
    monkeypatch.setattr(quick, "KERNELS", kernels)
    monkeypatch.setattr(quick, "CHECKED", quick.CHECKED[:1])
    assert run_main(monkeypatch, tmp_path) == 0
    record = hardware_record.load(tmp_path / "hardware_dry_run.json")
    both = [f"{name} (hub)" for name in (kernel.name, "second")]
    assert [check.call for check in record.checks] == both * (1 + len(quick.TIMED))
    assert [row.call for row in record.not_timed] == [timing.SDPA, *both] * len(quick.TIMED)


# Refusals


def run_main(monkeypatch, tmp_path) -> int:
    path = tmp_path / "hardware_dry_run.json"
    monkeypatch.setattr(hardware_record, "DRY_RUN", path)
    monkeypatch.setattr(sys, "argv", ["quick", "--dry-run"])
    return quick.main()


@pytest.mark.parametrize("wrong", [lambda out: 1.1 * out, lambda out: out * torch.nan])
def test_a_wrong_output_ends_the_run_before_the_stop_watch(calls, monkeypatch, tmp_path, capsys, wrong):
    (op,) = calls.values()
    fake = SimpleNamespace(gfx1201_sage_attention=lambda q, k, v: wrong(op(q, k, v)))
    monkeypatch.setattr(plain_delivery, "load", lambda kernel: fake)
    assert run_main(monkeypatch, tmp_path) == 1
    assert "Stopped early: an output is further from attention than the contract allows" in capsys.readouterr().out
    record = hardware_record.load(tmp_path / "hardware_dry_run.json")
    assert not record.passed and not record.micro and not record.not_timed
    assert record.stopped == "an output is further from attention than the contract allows"


def test_a_failing_launch_ends_the_run_with_its_reason_in_the_record(calls, rocm_torch, monkeypatch, tmp_path):
    rocm_torch.gpu.fail_next("hipModuleLaunchKernel", 719)
    assert run_main(monkeypatch, tmp_path) == 1
    record = hardware_record.load(tmp_path / "hardware_dry_run.json")
    assert not record.passed and not record.checks and record.stopped.startswith("hipModuleLaunchKernel failed")


def test_of_a_long_sequence_evenly_spaced_queries_are_compared(calls, monkeypatch):
    monkeypatch.setattr(quick, "ALL_COMPARED", 64)
    monkeypatch.setattr(quick, "COMPARED_QUERIES", 10)
    q, k, v = quick.inputs.normal(1, 65, 2)
    compared = []

    def attention(q, k, v, softmax_scale):
        compared.append(q)
        return attention_float64(q, k, v, softmax_scale)

    monkeypatch.setattr(quick, "attention_float64", attention)
    (found,) = quick.check(calls, "normal", q, k, v)
    assert found.passed and found.shape == (1, 65, 2, 128) and torch.equal(compared[0], q[:, ::7])


def test_without_compiler_and_code_objects_one_sentence_names_the_package(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(plain_delivery.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(micro_benchmarks, "is_current", lambda folder: False)
    with pytest.raises(SystemExit) as refusal:
        run_main(monkeypatch, tmp_path)
    assert str(refusal.value) == (
        "dist/micro_benchmarks holds no build of the present sources, and ziglang, their compiler, "
        f"is not installed: python -m pip install {requirement('ziglang')}"
    )
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_taken_and_anything_else_built_anew(tmp_path):
    folder = tmp_path / "code_object"
    build_code_object.build_code_object(folder)
    assert build_code_object.is_current(folder)
    (kernel,) = plain_delivery.KERNELS
    assert plain_delivery.take_or_build(folder, kernel.is_current, build=None) == "taken"
    manifest = json.loads((folder / "manifest.json").read_text())
    for part in ({"sources": {}}, {"sha256": "0" * 64}, {"arch": "gfx1200"}, {"compiler": {"flags": []}}):
        (folder / "manifest.json").write_text(json.dumps(manifest | part))
        assert not build_code_object.is_current(folder)
    assert not build_code_object.is_current(Path("no such folder"))
    built = []
    assert plain_delivery.take_or_build(folder, kernel.is_current, built.append) == "built" and built == [folder]


def test_every_kernel_is_loaded_round_its_own_code_object(calls, launched):
    (op,) = calls.values()
    q, k, v = (device_under_test.on_device(torch.randn(1, 33, 2, 128).bfloat16()) for _ in range(3))
    op(q, k, v)
    assert launched() == KERNELS
