# SPDX-License-Identifier: MIT
"""What the runner makes of pytest's reports, and that no machine without a gfx1201 passes."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from integration_tests.harness import gpu_finder
from integration_tests.harness.device_under_test import DRY_RUN, HARDWARE
from integration_tests.harness.pytest_run import read_report
from integration_tests.paths import REPOSITORY
from integration_tests.reports.hardware import suites

OUTCOMES = """
import pytest

def test_passes(record_property):
    record_property("relative_l2", 0.0375)

def test_fails():
    assert 1 == 2

def test_skips():
    pytest.skip("no such thing here")

@pytest.fixture
def untidy():
    yield
    raise RuntimeError("left something behind")

def test_passes_and_breaks_on_the_way_out(untidy):
    pass

@pytest.mark.xfail(reason="known")
def test_is_expected_to_fail():
    assert False
"""


def test_every_outcome_is_read_with_its_reason_and_figures(tmp_path):
    (tmp_path / "test_outcomes.py").write_text(OUTCOMES)
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", str(tmp_path)]
    subprocess.run(command, cwd=tmp_path, capture_output=True)
    tests = {test.name.split("::")[1]: test for test in read_report(report)}
    assert {name: (test.outcome, test.reason) for name, test in tests.items()} == {
        "test_passes": ("passed", None),
        "test_fails": ("failed", "assert 1 == 2"),
        "test_skips": ("skipped", "no such thing here"),
        "test_passes_and_breaks_on_the_way_out": (
            "error",
            'failed on teardown with "RuntimeError: left something behind"',
        ),
        "test_is_expected_to_fail": ("skipped", "known"),
    }
    assert tests["test_passes"].figures == {"relative_l2": 0.0375}


def test_a_process_that_writes_no_report_counts_as_an_error():
    plan = suites.Plan("typing error", "hub", ("--no-such-option",))
    suite = suites.run_suite(plan, DRY_RUN)
    assert not suite.passed and suite.count("error") == 1 and suite.seconds is None


def test_suites_of_other_deliveries_are_left_out():
    ran = suites.run_suites(("aiter",), DRY_RUN, run=lambda plan, mode: plan)
    assert [plan.delivery for plan in ran] == ["aiter", "aiter"]
    assert {plan.delivery for plan in suites.PLANS} == set(suites.DELIVERIES)


def test_aiter_on_hardware_asks_for_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setattr(suites.aiter_delivery, "base_tree", lambda: tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    assert "no hipcc" in suites.missing_for("aiter", HARDWARE)
    assert suites.missing_for("aiter", DRY_RUN) is None and suites.missing_for("hub", HARDWARE) is None
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "hipcc").touch()
    assert suites.missing_for("aiter", HARDWARE) is None


# No GPU


def rocm_torch_with(monkeypatch, *architectures: str) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.2.53211")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(architectures))
    properties = [SimpleNamespace(gcnArchName=name) for name in architectures]
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties[index])


def test_torch_without_rocm_is_no_gpu(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", None)
    with pytest.raises(gpu_finder.NoGpuError) as refusal:
        gpu_finder.find_gfx1201()
    assert str(refusal.value) == (
        f"No GPU to run on: looked for a ROCm build of PyTorch (found torch {torch.__version__} with torch.version.hip "
        "None) and in it for a device whose gcnArchName starts with gfx1201 (found none)."
    )


@pytest.mark.parametrize("architectures", [[], ["gfx1100", "gfx12010"]])
def test_other_gpus_are_named_in_the_refusal(monkeypatch, architectures):
    rocm_torch_with(monkeypatch, *architectures)
    with pytest.raises(gpu_finder.NoGpuError, match=f"found {', '.join(architectures) or 'none'}"):
        gpu_finder.find_gfx1201()


def test_the_first_gfx1201_is_taken_and_the_virtual_one_is_not(monkeypatch):
    rocm_torch_with(monkeypatch, "gfx1036", "gfx1201:sramecc-:xnack-", "gfx1201")
    monkeypatch.setattr(gpu_finder, "hip_runtime", lambda: None)
    assert gpu_finder.find_gfx1201() == 1
    monkeypatch.setattr(gpu_finder, "hip_runtime", lambda: SimpleNamespace(virtual_gpu_configure=None))
    with pytest.raises(gpu_finder.NoGpuError, match="the virtual device loaded in its place"):
        gpu_finder.find_gfx1201()


@pytest.mark.parametrize(
    "command",
    [
        ["integration_tests.reports.hardware"],
        ["integration_tests.reports.hardware.quick"],
        ["pytest", "--gpu", "hardware", "integration_tests/tests/op"],
        ["integration_tests.tests.with_diffusers.minimax_h3_on_aiter", "--gpu", "hardware"],
    ],
)
@pytest.mark.skipif(torch.version.hip is not None, reason="this torch may well see a gfx1201")
def test_every_way_in_ends_with_the_sentence_and_an_error(command):
    environment = {**os.environ, "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", *command]
    finished = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    assert finished.returncode != 0
    assert "No GPU to run on: looked for a ROCm build of PyTorch" in finished.stderr
