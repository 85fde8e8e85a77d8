# SPDX-License-Identifier: MIT
"""The op against attention in float64: how much 8-bit operands cost, for the inputs that break others.

docs/algorithm.md has what the reference model gives on these inputs.
"""

import functools
from dataclasses import asdict

import pytest

from integration_tests.harness import inputs
from integration_tests.reference.agreement import compare
from integration_tests.reference.attention import attention_float64
from integration_tests.reference.contract import COSINE_OF_NORMAL, RELATIVE_L2

# The sink stands out only among many keys.
SHAPES = dict.fromkeys(RELATIVE_L2, (1, 1024, 2)) | {"sink_8_nats": (1, 4096, 1)}
CASES = {
    name: (functools.partial(make, *SHAPES[name]), RELATIVE_L2[name]) for name, make in inputs.OF_THE_CONTRACT.items()
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
        assert agreement.cosine >= COSINE_OF_NORMAL
