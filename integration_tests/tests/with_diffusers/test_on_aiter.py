# SPDX-License-Identifier: MIT
"""A small MiniMax-H3 in diffusers with `aiter_sage`, on aiter's own build of the operator."""

import json
import subprocess
import sys

import pytest

from integration_tests.paths import REPOSITORY

pytestmark = pytest.mark.aiter


def test_minimax_h3_agrees_with_sdpa_and_no_call_falls_back(gpu_arguments, record_agreement):
    command = [sys.executable, "-m", "integration_tests.tests.with_diffusers.minimax_h3_on_aiter", *gpu_arguments]
    finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    result = json.loads(next(line for line in reversed(finished.stdout.splitlines()) if line.startswith("{")))
    print(result)
    record_agreement(result)
    assert result["launches"] == result["attention_calls"] == 3
    # minimax_h3's bounds; its module can be imported only in the other process.
    assert result["relative_l2"] <= result["relative_l2_bound"] and result["cosine"] >= result["cosine_bound"]
    assert result["compiled_relative_l2"] == pytest.approx(result["relative_l2"], rel=1e-3)
    assert result["refusal"] == "The head dimension must be 128 for aiter sage attention, got 64."
