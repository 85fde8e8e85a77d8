# SPDX-License-Identifier: MIT
"""The hand counts of pull request 6390 add up, and are read like the counts of executed kernels."""

import pytest

from integration_tests.speed import card as machine
from integration_tests.speed.peers.pull_request_6390 import PULL_REQUEST_6390 as COUNTED


def test_slots_are_those_of_every_class_beside_the_matrix_instructions():
    assert COUNTED.slots_per_matrix == (102.5 + 16 + 34 + 21 + 2) / 64


def test_both_products_take_as_many_matrix_instructions():
    # 32 queries x 32 keys x 128 channels in 16 x 16 x 16 steps.
    assert COUNTED.int8_matrix == COUNTED.fp8_matrix == 32 * 32 * 128 / 16**3


def test_the_estimate_is_that_of_the_counts():
    # 8 cycles for a matrix instruction, 1 for a VALU, a pair and a transcendental; its unit needs less than that.
    for reading in machine.READINGS:
        assert COUNTED.pipe_estimate(reading) == pytest.approx(512 / (512 + 102.5 + 16 + 34))


def test_its_registers_leave_room_for_the_waves_of_one_work_group():
    granule = int(machine.VGPR_GRANULE.value)
    by_registers = int(machine.VGPRS_PER_SIMD.value) // (-(-COUNTED.vgprs // granule) * granule)
    assert COUNTED.waves_per_simd == COUNTED.waves_per_workgroup // machine.SIMDS_PER_WGP
    assert COUNTED.waves_per_simd <= by_registers < 2 * COUNTED.waves_per_simd
