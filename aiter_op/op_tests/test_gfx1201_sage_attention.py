# SPDX-License-Identifier: MIT
"""gfx1201_sage_attention against attention in float64. Skipped on other GPUs.

`python3 op_tests/test_gfx1201_sage_attention.py` also prints times, quantisation included,
beside those of PyTorch's SDPA in bfloat16.
"""

import math

import pytest
import torch
import torch.nn.functional as F

from aiter import gfx1201_sage_attention

DEVICE = "cuda"
HEAD_DIM = 128
SEQUENCES = [1, 2, 15, 16, 17, 31, 32, 33, 63, 255, 256, 257, 1025]
# MiniMax-H3's heads and the lengths of some of its clips.
TIMED_SHAPES = [(1, 1536, 24), (1, 4096, 24), (1, 16384, 56)]

# P keeps three mantissa bits: each weight is off by up to 2^-4 of itself, 0.027 in the
# root mean square; INT8 Q K^T and FP8 V add to 0.038 where rows are long and diffuse, and
# a few large weights make it a little more.
MAX_RELATIVE_L2 = 0.05
MIN_COSINE = 0.998


def is_gfx1201() -> bool:
    if not torch.cuda.is_available():
        return False
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return getattr(properties, "gcnArchName", "").split(":")[0] == "gfx1201"


pytestmark = pytest.mark.skipif(not is_gfx1201(), reason="needs a gfx1201 GPU")


def normal(batch: int, sequence: int, heads: int, seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, sequence, heads, HEAD_DIM)
    tensors = [torch.randn(shape, generator=generator) for _ in range(3)]
    return [tensor.to(torch.bfloat16).to(DEVICE) for tensor in tensors]


def attention_float64(q, k, v, softmax_scale: float) -> torch.Tensor:
    q, k, v = (tensor.cpu().double().transpose(1, 2) for tensor in (q, k, v))
    weights = torch.softmax(softmax_scale * q @ k.transpose(2, 3), dim=3)
    return (weights @ v).transpose(1, 2)


def assert_accurate(output: torch.Tensor, expected: torch.Tensor) -> None:
    output = output.cpu().double()
    relative_l2 = (output - expected).norm() / expected.norm()
    cosine = F.cosine_similarity(output.flatten(), expected.flatten(), dim=0)
    assert relative_l2 <= MAX_RELATIVE_L2
    assert cosine >= MIN_COSINE


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_sequence_lengths(sequence: int) -> None:
    q, k, v = normal(1, sequence, 2, seed=sequence)
    output = gfx1201_sage_attention(q, k, v)
    assert output.shape == q.shape
    assert output.dtype == torch.bfloat16
    assert output.is_contiguous()
    assert_accurate(output, attention_float64(q, k, v, 1 / math.sqrt(HEAD_DIM)))


@pytest.mark.parametrize("batch, heads", [(1, 1), (2, 3), (3, 5)])
def test_batches_and_heads(batch: int, heads: int) -> None:
    q, k, v = normal(batch, 100, heads)
    expected = attention_float64(q, k, v, 0.1)
    assert_accurate(gfx1201_sage_attention(q, k, v, 0.1), expected)


def test_packed_qkv_is_read_in_place() -> None:
    q, k, v = normal(2, 77, 3)
    packed = torch.stack((q, k, v), dim=2).unbind(dim=2)
    expected = gfx1201_sage_attention(q, k, v)
    assert torch.equal(gfx1201_sage_attention(*packed), expected)


def test_common_mean_of_keys_costs_nothing() -> None:
    q, k, v = normal(1, 512, 2)
    k = k + 10
    expected = attention_float64(q, k, v, 1 / math.sqrt(HEAD_DIM))
    assert_accurate(gfx1201_sage_attention(q, k, v), expected)


def test_constant_values_come_back_exactly() -> None:
    q, k, _ = normal(1, 100, 2)
    v = torch.full_like(q, 3.0)
    assert torch.equal(gfx1201_sage_attention(q, k, v), v)


@pytest.mark.parametrize(
    "change, error",
    [
        (lambda q, k, v: (q.half(), k, v), TypeError),
        (lambda q, k, v: (q[..., :64], k[..., :64], v[..., :64]), ValueError),
        (lambda q, k, v: (q, k[:, :7], v[:, :7]), ValueError),
        (lambda q, k, v: (q[0], k[0], v[0]), ValueError),
    ],
)
def test_other_inputs_are_refused(change, error) -> None:
    with pytest.raises(error, match="gfx1201_sage_attention needs"):
        gfx1201_sage_attention(*change(*normal(1, 40, 2)))


def print_times() -> None:
    from aiter.test_common import run_perftest

    print("| batch, sequence, heads | gfx1201_sage_attention (us) | SDPA (us) |")
    print("|---|---|---|")
    for shape in TIMED_SHAPES:
        q, k, v = normal(*shape)
        heads_first = [tensor.transpose(1, 2) for tensor in (q, k, v)]
        _, sage = run_perftest(gfx1201_sage_attention, q, k, v)
        _, sdpa = run_perftest(F.scaled_dot_product_attention, *heads_first)
        print(f"| {shape} | {sage:.1f} | {sdpa:.1f} |")


if __name__ == "__main__":
    status = pytest.main([__file__, "-v"])
    if status == 0 and is_gfx1201():
        print_times()
    raise SystemExit(status)
