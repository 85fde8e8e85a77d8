# SPDX-License-Identifier: MIT
"""Micro-benchmarks execute to their end on the virtual device, whose counter gives a step's instructions."""

import pytest

from integration_tests.harness.device_under_test import torch_device
from integration_tests.harness.hub_delivery import load_hub_kernel
from integration_tests.speed import micro_benchmarks

# Where a step is more than one instruction.
INSTRUCTIONS = {
    "exp_among_valu": 4,
    "exps_then_valu": 4,
    "wmma_then_valu": 2,
    "exp_and_wmma": 2,
    "exp_valu_and_wmma": 5,
    "lds_dependent": 3,
    "lds_among_valu": 17,
    "lds_among_wmma": 5,
}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("micro") / "built"
    micro_benchmarks.build(folder)
    return folder


def test_every_step_runs_with_one_wave_and_with_six(built, rocm_torch):
    hip_module = load_hub_kernel().hip_module
    rocm_torch.gpu.sanitize()
    steps = list(micro_benchmarks.measure(built, hip_module, torch_device(), rounds=2, launches=1))
    names = [name for name in micro_benchmarks.names(built) if name != micro_benchmarks.NOTHING]
    assert set(INSTRUCTIONS) < set(names)
    assert [(step.name, step.waves) for step in steps] == [(name, waves) for waves in (1, 6) for name in names]
    assert {step.name: step.ratio for step in steps} == {name: INSTRUCTIONS.get(name, 1) for name in names}
    rocm_torch.gpu.sanitize(False)
    assert rocm_torch.gpu.findings() == []
    launched = {record.kernel: record.block for record in rocm_torch.gpu.records()}
    assert launched == {name: (6 * 4 * 32, 1, 1) for name in micro_benchmarks.names(built)}


@pytest.mark.parametrize("name", [micro_benchmarks.CODE_OBJECT, micro_benchmarks.RECORD])
def test_a_build_is_taken_only_whole_and_of_the_present_source(built, tmp_path, monkeypatch, name):
    assert micro_benchmarks.is_current(built) and not micro_benchmarks.is_current(tmp_path)
    content = (built / name).read_bytes()
    try:
        (built / name).write_bytes(content[:-9])
        assert not micro_benchmarks.is_current(built)
    finally:
        (built / name).write_bytes(content)
    changed = tmp_path / "changed.hip"
    changed.write_text(micro_benchmarks.SOURCE.read_text() + "\n")
    monkeypatch.setattr(micro_benchmarks, "SOURCE", changed)
    assert not micro_benchmarks.is_current(built)
