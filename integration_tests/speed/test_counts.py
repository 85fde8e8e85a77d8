# SPDX-License-Identifier: MIT
"""The main kernel's instructions are a constant per wave plus a constant per key tile."""

import math

import pytest

from integration_tests.harness import inputs
from integration_tests.reference.attention import QUERIES_PER_RESCALE, ROWS_PER_BLOCK
from integration_tests.speed import counts
from integration_tests.speed.instruction_classes import matrix_instructions
from integration_tests.speed.model import expected_growths, growths

SIZES = (256, 512, 1024)


@pytest.fixture(scope="module")
def main_kernel(loaded_gpu):
    loaded_gpu.configure()
    launches = counts.main_kernel_launches(loaded_gpu, SIZES)
    return {size // counts.KEYS_PER_TILE: counts.per_wave(launch) for size, launch in launches.items()}


def test_counts_of_two_sizes_give_those_of_a_third_exactly(main_kernel):
    (small, counted), (large, more), (third, expected) = main_kernel.items()
    assert counts.at(*counts.split(counted, more, small, large), third) == expected


def test_a_tile_is_as_many_matrix_instructions_as_its_arithmetic_needs(main_kernel):
    # 32 queries x 32 keys x 128 channels, twice, in 16 x 16 x 16 steps.
    (small, counted), (large, more), _ = main_kernel.items()
    per_tile, once = counts.split(counted, more, small, large)
    assert per_tile["int8_matrix"] == per_tile["fp8_matrix"] == 32 * 32 * 128 / 16**3
    assert matrix_instructions(once) == 0 and matrix_instructions(per_tile) == 64
    assert per_tile["transcendental"] == 32 * 32 / 32  # one exp2 per weight, 32 lanes at a time


def best_scores(q, k):
    """Of one head, what `growths` takes."""
    scores = q[0, :, 0].double() @ k[0, :, 0].double().T * inputs.SOFTMAX_SCALE * math.log2(math.e)
    tiles = scores.shape[1] // counts.KEYS_PER_TILE
    return scores.reshape(-1, QUERIES_PER_RESCALE, tiles, counts.KEYS_PER_TILE).amax(dim=-1)


def test_random_keys_rescale_as_often_as_the_scheme_says(loaded_gpu, main_kernel):
    size = SIZES[-1]
    tiles, groups_per_wave = size // counts.KEYS_PER_TILE, ROWS_PER_BLOCK // QUERIES_PER_RESCALE
    (launch,) = counts.main_kernel_launches(loaded_gpu, [size], inputs.normal).values()
    # A rescale is one exp2 more. The first tile's is in both counts.
    rescales = counts.per_wave(launch)["transcendental"] - main_kernel[tiles]["transcendental"]
    q, k, _ = inputs.normal(1, size, 1)
    # INT8 moves scores by some hundredths: where one is that near to a limit, the kernel may see it otherwise.
    assert abs(rescales / groups_per_wave / growths(best_scores(q, k)) - 1) <= 0.03


def test_scores_of_normal_inputs_grow_as_often_as_the_model_expects():
    q, k, _ = inputs.normal(1, 1024, 1)
    # 7.94 and 7.93 when written; the groups of one head see the same keys, which costs more spread than 64 groups have.
    assert growths(best_scores(q, k)) == pytest.approx(expected_growths(1024 // counts.KEYS_PER_TILE), rel=0.1)
