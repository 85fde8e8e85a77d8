# SPDX-License-Identifier: MIT
"""A comparison's folder: what counts as done, and what an interruption can leave behind."""

import dataclasses
import json

import numpy as np
import pytest
import torch

from integration_tests.reports.compare_h3.case import Case, Step, write_atomically
from integration_tests.reports.compare_h3.tests.settings import SMALL

SETTINGS = dataclasses.replace(SMALL, versions={"torch": "1"})


def step(index: int) -> Step:
    return Step(index, 2.0, 1.0, 3, 1024, None, 3)


def latents(value: float) -> dict[str, torch.Tensor]:
    return {"latents": torch.full((4, 2), value), "audio_latents": torch.full((2, 2), -value)}


@pytest.fixture
def case(tmp_path):
    return Case.open(tmp_path, SETTINGS)


def test_same_settings_find_what_an_earlier_run_has_measured(case, tmp_path):
    case.backend("native").save_step(step(0), latents(1.0))
    again = Case.open(tmp_path, SETTINGS)
    assert again.backend("native").steps() == [step(0)]
    assert torch.equal(again.backend("native").latents(0)["audio_latents"], latents(1.0)["audio_latents"])
    assert Case(again.folder).settings == SETTINGS


@pytest.mark.parametrize("change", [{"seed": 1}, {"kernel": "1" * 64}, {"versions": {"torch": "2"}}, {"frames": 141}])
def test_other_settings_share_nothing(case, tmp_path, change):
    case.backend("native").save_step(step(0), latents(1.0))
    other = Case.open(tmp_path, dataclasses.replace(SETTINGS, **change))
    assert other.folder != case.folder and other.backend("native").steps() == []


def test_fresh_forgets_what_was_measured(case, tmp_path):
    case.backend("native").save_step(step(0), latents(1.0))
    assert Case.open(tmp_path, SETTINGS, fresh=True).backend("native").steps() == []


def test_steps_behind_a_gap_do_not_count(case):
    native = case.backend("native")
    native.save_step(step(0), latents(1.0))
    native.save_step(step(2), latents(3.0))
    assert native.steps() == [step(0)]


def test_interruption_between_latents_and_record_leaves_the_step_undone(case, monkeypatch):
    native = case.backend("native")
    native.save_step(step(0), latents(1.0))

    def interrupt(value):
        raise KeyboardInterrupt

    monkeypatch.setattr("integration_tests.reports.compare_h3.case.asdict", interrupt)
    with pytest.raises(KeyboardInterrupt):
        native.save_step(step(1), latents(2.0))
    assert native.steps() == [step(0)]


def test_interrupted_write_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "value.json"
    path.write_text("old")

    def half(temporary):
        temporary.write_text("ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, half)
    assert [file.name for file in tmp_path.iterdir()] == ["value.json"] and path.read_text() == "old"


def test_backend_is_complete_with_all_steps_and_its_frames(case):
    native = case.backend("native")
    for index in range(SETTINGS.steps):
        native.save_step(step(index), latents(index))
    assert not case.is_complete("native")
    native.save_frames(np.full((2, 16, 16, 3), 0.5))
    assert case.is_complete("native")
    assert native.frames().dtype == np.uint8 and set(np.unique(native.frames())) == {128}


def test_backend_name_that_leaves_the_folder_is_refused(case):
    with pytest.raises(ValueError, match="one word, got '../native'"):
        case.backend("../native")


def test_settings_file_says_what_was_compared(case):
    assert json.loads((case.folder / "settings.json").read_text())["prompt"] == "a prompt"
