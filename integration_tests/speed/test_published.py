# SPDX-License-Identifier: MIT
"""Published figures: each says where it is from, and agrees with itself."""

import pytest

from integration_tests.speed.published import ROWS, WHOLE_WORKLOAD, Published

row = pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.who}, {row.shape}, {row.includes}")


@row
def test_every_figure_has_its_source_and_says_what_was_timed(row: Published):
    assert row.who and row.source and row.includes
    assert row.stated_tflops or row.milliseconds
    assert (row.tflops is None) == (row.shape is None) == (row.includes == WHOLE_WORKLOAD)


@row
def test_a_stated_speed_is_the_one_of_the_stated_time(row: Published):
    if row.stated_tflops and row.milliseconds:
        # Times have three digits at least.
        assert abs(row.tflops_of_time / row.stated_tflops - 1) <= 0.005


def test_a_causal_call_counts_half_the_products():
    whole = Published("", ROWS[0].card, (1, 1024, 1), "", "", milliseconds=1.0)
    half = Published("", ROWS[0].card, (1, 1024, 1), "", "", milliseconds=1.0, causal=True)
    assert half.tflops == whole.tflops / 2 == 2 * 1024**2 * 128 / 1e9
