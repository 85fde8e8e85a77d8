# SPDX-License-Identifier: MIT
"""The machine code costs no more than recorded: issue slots, registers, spills, LDS and the prologue's bytes."""

import importlib.metadata
import re

import pytest

from integration_tests.speed import guard

TARGET_SLOTS_PER_WMMA = 2.6  # VALU, exp2 and LDS, and here vector memory too
MAX_VGPRS = 240  # six waves a SIMD


@pytest.fixture(scope="module", params=guard.TOOLCHAINS)
def toolchain(request):
    return guard.TOOLCHAINS[request.param]


@pytest.fixture(scope="module")
def figures(toolchain, loaded_gpu):
    compiler = toolchain.find()
    if compiler is None:
        pytest.skip(f"no {toolchain.compiler} on this machine")
    loaded_gpu.configure()
    return guard.measure(loaded_gpu, toolchain, compiler)


def test_no_figure_is_worse_than_recorded(toolchain, figures):
    assert guard.worse(figures, guard.read_record()[toolchain.name]) == []


def test_the_main_loop_meets_its_targets(figures):
    assert figures["slots_per_wmma"] <= TARGET_SLOTS_PER_WMMA
    for kernel in guard.KERNELS:
        assert figures[f"{kernel}.vgpr"] <= MAX_VGPRS
        assert figures[f"{kernel}.spills"] == 0 and figures[f"{kernel}.scratch"] == 0


@pytest.mark.parametrize("figure", guard.read_record()["ziglang"])
@pytest.mark.parametrize("change", [1, float("nan")])
def test_a_figure_that_gets_worse_is_named(figure, change):
    record = guard.read_record()["ziglang"]
    assert guard.worse(record, record) == []
    (sentence,) = guard.worse({**record, figure: record[figure] + change}, record)
    assert sentence.startswith(figure)


def test_the_loss_of_dual_issue_is_caught(loaded_gpu):
    loaded_gpu.configure()
    slow = guard.Toolchain("no dual issue", "ziglang", ("-mllvm", "-amdgpu-enable-vopd=0"))
    figures = guard.measure(loaded_gpu, slow, slow.find())
    assert any(line.startswith("slots_per_wmma") for line in guard.worse(figures, guard.read_record()["ziglang"]))


@pytest.mark.aiter
def test_the_flags_are_those_of_the_installed_aiter():
    text = importlib.metadata.distribution("amd-aiter").locate_file("aiter/jit/core.py").read_text()
    code_flags = re.findall(r'"(?:-mllvm )?(-[^"]*(?:amdgpu|lsr|misched|flush|offload-uniform)[^"]*)"', text)
    # For HIP before 6.3, and for AMD's own clang only: aiter drops flags that the compiler does not know.
    others = {"--amdgpu-enable-max-ilp-scheduling-strategy=1", "-amdgpu-coerce-illegal-types=1"}
    assert set(code_flags) - others == set(guard.AITER_FLAGS) - {"-mllvm"}
