# SPDX-License-Identifier: MIT
"""Runs on a gfx1201 GPU; skips everywhere else. The thorough suite runs on the virtual device (integration_tests/)."""

import tomllib
from pathlib import Path

import pytest
import torch


def _has_gfx1201() -> bool:
    if torch.version.hip is None or not torch.cuda.is_available():
        return False
    return torch.cuda.get_device_properties(0).gcnArchName.split(":")[0] == "gfx1201"


pytestmark = pytest.mark.skipif(not _has_gfx1201(), reason="needs a gfx1201 GPU and a ROCm build of PyTorch")

BUILD_CONFIG = tomllib.loads((Path(__file__).parent.parent / "build.toml").read_text())["general"]

# The scheme's error against float64 is below 0.040 of the output's norm on N(0, 1) inputs at S = 1024 and smaller for
# shorter sequences, whose outputs are larger.
RELATIVE_L2_BOUND = 0.040


@pytest.fixture(scope="module")
def attention():
    from kernels import get_kernel

    repo_id = BUILD_CONFIG["hub"]["repo-id"]
    kernel = get_kernel(repo_id, version=BUILD_CONFIG["version"], trust_remote_code=[repo_id])
    return kernel.gfx1201_sage_attention


def random_inputs(batch: int, sequence: int, heads: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(sequence)
    shape = (batch, sequence, heads, 128)
    return [torch.randn(shape, generator=generator).to("cuda", torch.bfloat16) for _ in range(3)]


def relative_l2(out: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> float:
    """Distance to float64 attention over the norm of float64 attention."""
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    expected = (torch.softmax(q @ k.transpose(-1, -2) / 128**0.5, dim=-1) @ v).transpose(1, 2)
    return ((out.double() - expected).norm() / expected.norm()).item()


@pytest.mark.kernels_ci
@pytest.mark.parametrize("sequence", [1, 33, 226, 1024])
def test_agrees_with_float64_attention(attention, sequence):
    q, k, v = random_inputs(2, sequence, 3)
    assert relative_l2(attention(q, k, v), q, k, v) <= RELATIVE_L2_BOUND


@pytest.mark.kernels_ci
def test_packed_qkv_views_give_the_bits_of_contiguous_tensors(attention):
    q, k, v = random_inputs(1, 257, 2)
    packed = torch.stack((q, k, v), dim=2)
    assert torch.equal(attention(*packed.unbind(2)), attention(q, k, v))


@pytest.mark.kernels_ci
def test_compiled_call_gives_the_bits_of_the_eager_call(attention):
    q, k, v = random_inputs(1, 64, 2)
    assert torch.equal(torch.compile(attention, fullgraph=True)(q, k, v), attention(q, k, v))


def test_long_sequence_agrees_with_float64_attention(attention):
    q, k, v = random_inputs(1, 8192, 1)
    assert relative_l2(attention(q, k, v), q, k, v) <= RELATIVE_L2_BOUND
