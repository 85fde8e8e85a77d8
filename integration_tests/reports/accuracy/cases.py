# SPDX-License-Identifier: MIT
"""The inputs of the report: seeded bfloat16 (q, k, v) of [1, sequence, heads, 128], each a class of public reports."""

from collections.abc import Callable

import torch

from integration_tests.harness import inputs

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _normal(sequence: int, heads: int) -> Tensors:
    return inputs.normal(1, sequence, heads)


def with_value_channels(sequence: int, heads: int, factor: float = 100.0) -> Tensors:
    """Two channels of V that are `factor` times larger."""
    q, k, v = _normal(sequence, heads)
    v[..., [5, 90]] *= factor
    return q, k, v


def with_outlier_tokens(sequence: int, heads: int, factor: float = 50.0) -> Tensors:
    """Every 97th row of K and V is `factor` times larger."""
    q, k, v = _normal(sequence, heads)
    k[:, ::97] *= factor
    v[:, ::97] *= factor
    return q, k, v


def with_query_rows(sequence: int, heads: int, factor: float = 100.0) -> Tensors:
    """One row of Q in each 32 is `factor` times larger, with the keys' own scores among its neighbours."""
    q, k, v = _normal(sequence, heads)
    q[:, 5::32] *= factor
    return q, k, v


def with_query_mean(sequence: int, heads: int, mean: float = 10.0) -> Tensors:
    """Every row of Q shifted by the same vector."""
    q, k, v = _normal(sequence, heads)
    return q + mean, k, v


def with_query_channels(sequence: int, heads: int, factor: float = 50.0) -> Tensors:
    """Four channels of Q that are `factor` times larger, and of K as much smaller: scores stay."""
    q, k, v = _normal(sequence, heads)
    channels = [3, 40, 77, 100]
    q[..., channels] *= factor
    k[..., channels] /= factor
    return q, k, v


def with_key_rows(sequence: int, heads: int, factor: float = 10.0) -> Tensors:
    """Every 97th row of K alone is `factor` times larger."""
    q, k, v = _normal(sequence, heads)
    k[:, 5::97] *= factor
    return q, k, v


def scaled(exponent: int) -> Callable[[int, int], Tensors]:
    """V times 2^exponent, and Q and K by as much as keeps their product."""

    def make(sequence: int, heads: int) -> Tensors:
        q, k, v = _normal(sequence, heads)
        return q * 2.0**exponent, k * 2.0**-exponent, v * 2.0**exponent

    return make


def near_uniform(sequence: int, heads: int) -> Tensors:
    """Scores of about +-0.01: every key weighs nearly the same, so the output is V's mean and some noise."""
    q, k, v = _normal(sequence, heads)
    return q * 0.1, k * 0.1, v


def low_entropy(sequence: int, heads: int) -> Tensors:
    """Scores of about +-16: a few keys have all the weight."""
    q, k, v = _normal(sequence, heads)
    return q * 4.0, k * 4.0, v


CASES: dict[str, Callable[[int, int], Tensors]] = {
    "N(0,1)": _normal,
    "Student t, 3 degrees, in Q and K": lambda s, h: inputs.heavy_tailed(1, s, h),
    "K with common mean 10": lambda s, h: inputs.with_common_key_mean(1, s, h),
    "4 K channels x20": lambda s, h: inputs.with_large_key_channels(1, s, h, factor=20.0),
    "4 K channels x100": lambda s, h: inputs.with_large_key_channels(1, s, h, factor=100.0),
    "2 V channels x100": with_value_channels,
    "every 97th token x50 in K and V": with_outlier_tokens,
    "one row in 32 of Q x100": with_query_rows,
    "Q with common mean 10": with_query_mean,
    "4 Q channels x50, K's / 50": with_query_channels,
    "every 97th row of K x10": with_key_rows,
    "Q, V x 2^20, K x 2^-20": scaled(20),
    "Q, V x 2^-20, K x 2^20": scaled(-20),
    "near-uniform attention": near_uniform,
    "low-entropy attention": low_entropy,
    "sink 8 nats above, V with mean 1": lambda s, h: inputs.with_sink(1, s, h),
}
