# SPDX-License-Identifier: MIT
"""Every delivery in hostile surroundings: memory that runs out or is dirty, threads, a stream under capture."""

import functools
import itertools
import threading
from collections.abc import Callable

import pytest
import torch

from integration_tests.harness import inputs

SHAPE = (1, 65, 2)  # a key tile with one key

# What HIP refuses while a stream is captured, or what would not become part of the graph: waiting, allocating,
# copying, loading code.
NOT_DURING_CAPTURE = [
    *("hipDeviceSynchronize", "hipStreamSynchronize", "hipEventSynchronize", "hipStreamQuery", "hipStreamCreate"),
    *("hipMalloc", "hipMallocAsync", "hipFree", "hipFreeAsync", "hipMemcpy", "hipMemset", "hipModuleLoadData"),
]
HIP_ERROR = 900  # hipErrorStreamCaptureUnsupported


def replace_allocations(patch: pytest.MonkeyPatch, replacement: Callable[..., torch.Tensor]) -> None:
    """Calls `replacement(allocate, *arguments, **options)` for each buffer that the op asks torch for."""
    for name in ("empty", "empty_like"):
        patch.setattr(torch, name, functools.partial(replacement, getattr(torch, name)))


@pytest.mark.parametrize("failing", [0, 1], ids=["output", "workspace"])
def test_an_allocation_that_fails_is_raised_and_nothing_is_launched(sage_attention, launched, monkeypatch, failing):
    tensors = inputs.normal(*SHAPE)
    expected = sage_attention(*tensors)
    before = launched()
    numbers = itertools.count()

    def fail_one(allocate, *arguments, **options):
        if next(numbers) == failing:
            raise torch.OutOfMemoryError("HIP out of memory. Tried to allocate 20.00 GiB.")
        return allocate(*arguments, **options)

    with monkeypatch.context() as patch, pytest.raises(torch.OutOfMemoryError, match="^HIP out of memory"):
        replace_allocations(patch, fail_one)
        sage_attention(*tensors)
    assert launched() == before
    assert torch.equal(sage_attention(*tensors), expected)


def test_nothing_depends_on_what_the_workspace_held(sage_attention, monkeypatch):
    tensors = inputs.normal(*SHAPE)
    expected = sage_attention(*tensors)
    filled = []

    def fill(allocate, *arguments, **options):
        # All ones are NaN as float32, bfloat16 and e4m3.
        filled.append(allocate(*arguments, **options))
        filled[-1].view(torch.uint8).fill_(0xFF)
        return filled[-1]

    with monkeypatch.context() as patch:
        replace_allocations(patch, fill)
        output = sage_attention(*tensors)
    assert torch.equal(output, expected) and len(filled) == 2


def test_threads_that_call_at_once_get_their_own_results(sage_attention):
    # Two of one shape, which share what the launcher prepared, and two of others.
    calls = [inputs.normal(1, sequence, 2, seed) for seed, sequence in enumerate((33, 33, 40, 65))]
    expected = [sage_attention(*tensors) for tensors in calls]
    together = threading.Barrier(len(calls))
    equal = []

    def call(tensors, out):
        together.wait()
        equal.extend(torch.equal(sage_attention(*tensors), out) for _ in range(5))

    threads = [threading.Thread(target=call, args=pair) for pair in zip(calls, expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert equal == [True] * 5 * len(calls)


def test_a_call_does_nothing_that_a_captured_stream_forbids(virtual_gpu, rocm_torch, sage_attention):
    tensors = inputs.normal(*SHAPE)
    expected = sage_attention(*tensors)  # the first call loads the kernels
    rocm_torch.use_stream(virtual_gpu.create_stream())
    for name in NOT_DURING_CAPTURE:
        virtual_gpu.fail_next(name, HIP_ERROR)
    assert torch.equal(sage_attention(*tensors), expected)
    # All of the failures are still to come: nobody has called these functions.
    left = [name for name in NOT_DURING_CAPTURE if getattr(virtual_gpu.library, name)(*[None] * 4) == HIP_ERROR]
    assert left == NOT_DURING_CAPTURE
