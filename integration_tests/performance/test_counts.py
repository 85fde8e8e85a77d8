# SPDX-License-Identifier: MIT
"""The main kernel's instructions are a constant per wave plus a constant per key tile."""

import pytest

from integration_tests.performance import counts

SIZES = (256, 512, 1024)


@pytest.fixture(scope="module")
def main_kernel(loaded_gpu):
    loaded_gpu.configure()
    return counts.main_kernel_counts(loaded_gpu, SIZES)


def test_counts_of_two_sizes_give_those_of_a_third_exactly(main_kernel):
    tiles = {size: size // counts.KEYS_PER_TILE for size in SIZES}
    per_tile, once = counts.split(*(main_kernel[size] for size in SIZES[:2]), *(tiles[size] for size in SIZES[:2]))
    assert {name: once[name] + per_tile[name] * tiles[SIZES[2]] for name in once} == main_kernel[SIZES[2]]


def test_a_tile_is_as_many_matrix_instructions_as_its_arithmetic_needs(main_kernel):
    # 32 queries x 32 keys x 128 channels, twice, in 16 x 16 x 16 steps.
    per_tile, once = counts.split(main_kernel[256], main_kernel[512], 8, 16)
    assert per_tile["matrix"] == 2 * 32 * 32 * 128 // 16**3 and once["matrix"] == 0
    assert per_tile["transcendental"] == 32 * 32 / 32  # one exp2 per weight, 32 lanes at a time
