# SPDX-License-Identifier: MIT
"""The report of complete and of interrupted comparisons, and that it never calls emulated figures hardware's."""

import dataclasses
import json
import math

import numpy as np
import pytest
import torch

from integration_tests.reports.compare_h3 import report
from integration_tests.reports.compare_h3.case import GPU, VIRTUAL, Case, Step
from integration_tests.reports.compare_h3.quality import frame_error, latent_error, psnr
from integration_tests.reports.compare_h3.tests.settings import SMALL

STEPS = 2
SETTINGS = dataclasses.replace(SMALL, steps=STEPS, width=24)
FACTS = {
    VIRTUAL: {"measured_on": "virtual gfx1201", "emulated_by": "a CPU", "torch": "1"},
    GPU: {"measured_on": "hardware", "gpu": "A GPU", "rocm": "7.2", "torch": "1"},
}
NAMES = ["native", "sage_hub", "aiter_sage"]


def fill(case: Case, name: str, seconds: float, error: float, steps: int = STEPS, frames: bool = True) -> None:
    """Latents that are `error` of their norm away from those of error 0, and frames `error` of their range."""
    backend = case.backend(name)
    backend.save_facts(FACTS[case.settings.device])
    base = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    virtual = case.settings.device == VIRTUAL
    for index in range(steps):
        record = Step(index, seconds, seconds / 2, 3, 2**20, None if virtual else 2**30, 3 if virtual else None)
        tensors = {"latents": base * (1 + error), "audio_latents": base * (1 - error)}
        backend.save_step(record, tensors)
    if frames:
        backend.save_frames(np.linspace(0, 1 - error, 5 * 16 * 24 * 3).reshape(5, 16, 24, 3))


@pytest.fixture
def case(tmp_path):
    return Case.open(tmp_path / "cases", SETTINGS)


def table_rows(text: str) -> dict[str, list[str]]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:3] == "| `"]
    return {cells[0].strip("`"): cells[1:] for cells in rows}


def test_complete_comparison_has_every_figure(case, tmp_path):
    fill(case, "native", 2.0, 0.0)
    fill(case, "sage_hub", 1.0, 0.01)
    case.backend("aiter_sage").save_facts({"skipped": "amd-aiter is not installed"})
    paths = report.write(case, NAMES, tmp_path)
    summary = json.loads(paths["json"].read_text())["backends"]
    assert summary["sage_hub"]["latents"]["relative_l2"] == pytest.approx(0.01, rel=1e-5)
    assert len(summary["sage_hub"]["latents_after_step"]) == STEPS
    assert summary["sage_hub"]["kernel_launches"] == summary["sage_hub"]["attention_calls"] == 3 * STEPS
    rows = table_rows(paths["table"].read_text())
    assert list(rows) == ["native", "sage_hub"]
    assert rows["sage_hub"][:4] == ["2 of 2", "1 s", "0.5 s", "1.0 MiB"] and "-" not in rows["sage_hub"]
    assert "`aiter_sage` did not run: amd-aiter is not installed." in paths["table"].read_text()
    for kind in ("error", "frames"):
        assert paths[kind].read_bytes().startswith(b"\x89PNG")


def test_interrupted_comparison_reports_what_there_is(case, tmp_path):
    fill(case, "native", 2.0, 0.0)
    fill(case, "sage_hub", 1.0, 0.01, steps=1, frames=False)
    paths = report.write(case, NAMES, tmp_path)
    rows = table_rows(paths["table"].read_text())
    assert rows["sage_hub"][0] == "1 of 2" and rows["sage_hub"][-4:] == ["-"] * 4
    summary = json.loads(paths["json"].read_text())["backends"]
    assert summary["sage_hub"]["latents"] is None and len(summary["sage_hub"]["latents_after_step"]) == 1
    assert summary["aiter_sage"]["steps_measured"] == 0


def test_nothing_measured_is_said(case, tmp_path):
    paths = report.write(case, NAMES, tmp_path)
    assert set(paths) == {"json", "table"} and "Nothing was measured." in paths["table"].read_text()


def test_emulated_times_are_called_so_and_get_no_ratio(case):
    fill(case, "native", 2.0, 0.0)
    fill(case, "sage_hub", 1.0, 0.01)
    text = report.markdown(report.summarise(case, NAMES))
    assert "emulator time" in text and "virtual gfx1201" in text
    assert "hardware" not in text and "2.00x" not in text


def test_times_of_hardware_get_a_ratio_and_the_gpu_s_name(tmp_path):
    case = Case.open(tmp_path, dataclasses.replace(SETTINGS, device=GPU, gpus=4))
    fill(case, "native", 2.0, 0.0)
    fill(case, "sage_hub", 1.0, 0.01)
    text = report.markdown(report.summarise(case, NAMES))
    assert table_rows(text)["sage_hub"][3] == "2.00x"
    assert "measured on: hardware, gpu: A GPU, rocm: 7.2" in text and "Ulysses over 4 GPUs" in text
    assert "emula" not in text and "virtual" not in text


def test_old_pictures_go_when_there_is_nothing_to_draw(case, tmp_path):
    (tmp_path / "compare_h3_error.png").write_text("another comparison's")
    report.write(case, NAMES, tmp_path)
    assert not (tmp_path / "compare_h3_error.png").exists()


def test_psnr_of_a_known_error():
    # An error of 1 % of the range everywhere: 20 log10(100) = 40 dB.
    assert psnr(np.full(10, 0.51), np.full(10, 0.5), 1.0) == pytest.approx(40.0)
    assert psnr(np.ones(3), np.ones(3), 1.0) == math.inf


def test_latents_that_are_not_finite_meet_no_bound():
    error = latent_error(torch.tensor([1.0, math.nan]), torch.tensor([1.0, 2.0]))
    assert not error["relative_l2"] <= 1e9 and not error["psnr"] >= 0


def test_frame_error_finds_the_worst_frame():
    frames = np.random.default_rng(0).integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)
    broken = frames.copy()
    broken[1] = 255 - broken[1]
    error = frame_error(broken, frames)
    assert error["worst_ssim"] < 0
    assert error["ssim"] == pytest.approx((1 + error["worst_ssim"] + 1) / 3)


def test_json_is_strict_even_where_figures_are_not_finite(case, tmp_path):
    fill(case, "native", 2.0, 0.0)
    fill(case, "sage_hub", 1.0, 0.0)
    fill(case, "aiter_sage", 1.0, math.nan, frames=False)
    paths = report.write(case, NAMES, tmp_path)

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    summary = json.loads(paths["json"].read_text(), parse_constant=refuse)["backends"]
    assert summary["sage_hub"]["latents"]["psnr"] == "inf" and summary["aiter_sage"]["latents"]["psnr"] == "nan"
    rows = table_rows(paths["table"].read_text())
    assert rows["sage_hub"][-2] == "identical" and "nan" in rows["aiter_sage"][-4]
