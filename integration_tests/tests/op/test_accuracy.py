# SPDX-License-Identifier: MIT
"""The op against attention in float64: how much 8-bit operands cost, for the inputs that break others.

The bounds are those of the project's contract; docs/algorithm.md has what the reference model gives on these inputs.
"""

from dataclasses import asdict

import pytest

from integration_tests.harness import inputs
from integration_tests.reference.agreement import compare
from integration_tests.reference.attention import attention_float64

CASES = {
    "normal": (lambda: inputs.normal(1, 1024, 2), 0.040),
    "common_key_mean_10": (lambda: inputs.with_common_key_mean(1, 1024, 2), 0.042),
    "key_channels_20x": (lambda: inputs.with_large_key_channels(1, 1024, 2, factor=20.0), 0.042),
    "student_t_3": (lambda: inputs.heavy_tailed(1, 1024, 2), 0.042),
    "key_channels_100x": (lambda: inputs.with_large_key_channels(1, 1024, 2, factor=100.0), 0.065),
    "sink_8_nats": (lambda: inputs.with_sink(1, 4096, 1), 0.016),
}


@pytest.mark.parametrize("case", CASES)
def test_error_against_float64_is_within_the_contract(sage_attention, record_agreement, case):
    make_inputs, bound = CASES[case]
    q, k, v = make_inputs()
    agreement = compare(sage_attention(q, k, v, inputs.SOFTMAX_SCALE), attention_float64(q, k, v, inputs.SOFTMAX_SCALE))
    print(f"{case}: {agreement}")
    record_agreement(asdict(agreement))
    assert agreement.relative_l2 <= bound
    if case == "normal":
        assert agreement.cosine >= 0.999
