# SPDX-License-Identifier: MIT
"""The command's own logic: what it refuses, and that an interruption or a failure leaves a report."""

import importlib
import subprocess

import pytest

from integration_tests.reports.compare_h3.case import Settings

# Its name keeps `import` from finding it.
command = importlib.import_module("integration_tests.reports.compare_h3.__main__")


@pytest.fixture
def small_run(monkeypatch, tmp_path):
    """`small_run(run_backend)`: the command with that function for each backend, on no device. Its status."""

    def settings_of(options, device) -> Settings:
        return Settings(device, None, 1, "whole", options.steps, 0, "", 16, 16, 124, "0" * 64, {})

    monkeypatch.setattr(command, "settings_of", settings_of)
    monkeypatch.setattr(command, "prepare", lambda *arguments: None)

    def run(run_backend) -> int:
        monkeypatch.setattr(command, "run_backend", run_backend)
        return command.main(["--device", "virtual", "--output", str(tmp_path)])

    return run


def test_native_runs_first_and_then_each_option(small_run):
    names = []
    assert small_run(lambda case, name: names.append(name) or True) == 0
    assert names == ["native", "aiter_sage_hub", "sage_hub", "aiter_sage"]


def test_interruption_writes_the_report_and_says_how_to_go_on(small_run, tmp_path, capsys):
    def interrupt(case, name):
        raise KeyboardInterrupt

    assert small_run(interrupt) == 130
    assert "goes on after the last complete step" in capsys.readouterr().err
    assert (tmp_path / "compare_h3.json").exists() and (tmp_path / "compare_h3.md").exists()


def test_one_failure_is_told_and_does_not_stop_the_others(small_run, capsys):
    names = []
    assert small_run(lambda case, name: names.append(name) or name != "sage_hub") == 1
    assert names[-1] == "aiter_sage"
    assert "Failed: sage_hub." in capsys.readouterr().err


def test_interrupted_command_ends_its_process(monkeypatch, tmp_path):
    """Also when the signal reached this process alone."""
    started = []

    class Waiting(subprocess.Popen):
        def __init__(self, arguments, **options):
            super().__init__(["sleep", "60"])
            started.append(self)

        def wait(self, timeout=None):
            if self.poll() is None and not getattr(self, "interrupted", False):
                self.interrupted = True
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Waiting)
    monkeypatch.setattr(command, "environment", lambda case: None)
    with pytest.raises(KeyboardInterrupt):
        command._python(None, "generate")
    assert started[0].poll() is not None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--checkpoint", "somewhere"], "No GPU to run on: looked for a ROCm build of PyTorch"),
        (["--device", "gpu"], "No GPU to run on"),
        (["--weights", "sharded"], "needs --gpus of at least 2"),
    ],
)
def test_what_cannot_run_here_is_refused_in_one_sentence(arguments, message, capsys):
    assert command.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
