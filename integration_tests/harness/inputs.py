# SPDX-License-Identifier: MIT
"""Seeded inputs that public reports showed to be hard, as bfloat16 (q, k, v) of [batch, sequence, heads, 128]."""

import functools
import math

import torch

from integration_tests.harness.device_under_test import on_device

HEAD_DIM = 128
SOFTMAX_SCALE = HEAD_DIM**-0.5

# Around every tile edge: 16 rows of a matrix operand, 32 of a block, 256 of a work-group.
TAIL_LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 77, 127, 128, 129, 226, 255, 257)


def normal(batch, sequence, heads, seed=0):
    """N(0, 1) in all three."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, sequence, heads, HEAD_DIM)
    return tuple(on_device(torch.randn(shape, generator=generator).to(torch.bfloat16)) for _ in range(3))


def with_common_key_mean(batch, sequence, heads, seed=0, mean=10.0):
    """Every key shifted by the same vector: softmax does not change, INT8's range does."""
    q, k, v = normal(batch, sequence, heads, seed)
    return q, k + mean, v


def with_large_key_channels(batch, sequence, heads, seed=0, factor=20.0, channels=(3, 40, 77, 100)):
    """A few channels of K that are `factor` times larger."""
    q, k, v = normal(batch, sequence, heads, seed)
    k[..., list(channels)] *= factor
    return q, k, v


def heavy_tailed(batch, sequence, heads, seed=0):
    """Q and K from Student's t with three degrees of freedom: normal / sqrt(chi-square(3) / 3)."""
    generator = torch.Generator().manual_seed(seed)
    shape = (batch, sequence, heads, HEAD_DIM)

    def student():
        chi_square = sum(torch.randn(shape, generator=generator) ** 2 for _ in range(3))
        return (torch.randn(shape, generator=generator) / (chi_square / 3).sqrt()).to(torch.bfloat16)

    q, k, v = student(), student(), torch.randn(shape, generator=generator).to(torch.bfloat16)
    return on_device(q), on_device(k), on_device(v)


def with_sink(batch, sequence, heads, seed=0, nats=8.0):
    """One key `nats` above diffuse others (scores of about +-0.3), V with mean 1 and standard deviation 0.5."""
    q, k, v = (0.18 * x.float() for x in normal(batch, sequence, heads, seed))
    q[..., 0] = nats / 8.0 / SOFTMAX_SCALE
    k[..., 0] = 0.0
    k[:, sequence // 2] = 0.0
    k[:, sequence // 2, :, 0] = 8.0
    v = v / 0.18 * 0.5 + 1.0
    assert math.isclose(q[0, 0, 0, 0] * k[0, sequence // 2, 0, 0] * SOFTMAX_SCALE, nats, rel_tol=1e-6)
    return tuple(x.to(torch.bfloat16) for x in (q, k, v))


# The inputs that the contract names (reference/contract.py), each for (batch, sequence, heads).
OF_THE_CONTRACT = {
    "normal": normal,
    "common_key_mean_10": with_common_key_mean,
    "key_channels_20x": with_large_key_channels,
    "student_t_3": heavy_tailed,
    "key_channels_100x": functools.partial(with_large_key_channels, factor=100.0),
    "sink_8_nats": with_sink,
}
