# SPDX-License-Identifier: MIT
"""What a call asks of the host besides launching."""

import pytest

from integration_tests.harness import inputs
from integration_tests.harness.hub_delivery import load_hub_kernel
from integration_tests.harness.launches import KERNELS
from integration_tests.speed import host

# One byte instead of two for K and V, none for Q, is a third; scales and sums may add what is left.
WORKSPACE_BOUND = 0.36


@pytest.mark.parametrize("batch, sequence, heads", [(1, 1024, 24), (1, 4096, 24), (2, 4096, 16), (1, 73923, 56)])
def test_workspace_is_a_third_of_the_inputs(rocm_torch, batch, sequence, heads):
    assert host.workspace_share(batch, sequence, heads) <= WORKSPACE_BOUND


def test_accepted_launches_are_checked_but_neither_run_nor_recorded(rocm_torch):
    op = load_hub_kernel().gfx1201_sage_attention
    q, k, v = inputs.normal(1, 64, 1)
    op(q, k, v)  # loads the code object
    rocm_torch.gpu.reset()
    with rocm_torch.gpu.accept_only():
        op(q, k, v)
    assert rocm_torch.gpu.records() == []
    op(q, k, v)
    assert [record.kernel for record in rocm_torch.gpu.records()] == KERNELS
