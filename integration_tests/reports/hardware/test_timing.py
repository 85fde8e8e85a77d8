# SPDX-License-Identifier: MIT
"""The stop-watch times what it says: backends are told apart by what ran, and wrong results get no time."""

from dataclasses import replace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from integration_tests.harness.hardware_record import NotTimed
from integration_tests.harness.hub_delivery import load_hub_kernel
from integration_tests.harness.launches import KERNELS
from integration_tests.reports.hardware import timing

TIMES = [4.0, 1.0, 3.0, 2.0, 5.0, 7.0, 6.0]


@pytest.fixture
def bench():
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 33, 2, 128, generator=generator).bfloat16() for _ in range(3))

    def stop_watch(call):
        call()
        return TIMES

    return timing.Bench(q, k, v, stop_watch)


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_the_backend_is_read_from_what_ran(bench, backend):
    with sdpa_kernel(backend):
        row = bench.time_sdpa()
    assert (row.sdpa_backend, row.chosen_by_torch) == (backend.name, True)
    row = bench.time_sdpa(backend)
    assert (row.sdpa_backend, row.chosen_by_torch) == (backend.name, False)


def test_a_row_holds_median_and_quartiles(bench):
    row = bench.time_sdpa()
    assert (row.low_us, row.median_us, row.high_us, row.repeats) == (2.0, 4.0, 6.0, 7)
    assert row.shape == (1, 33, 2, 128)


def test_a_backend_that_refuses_gets_its_reason_and_no_time(bench):
    row = bench.time_sdpa(SDPBackend.CUDNN_ATTENTION)
    assert isinstance(row, NotTimed) and row.reason


def test_a_timed_call_of_the_op_holds_its_prologue(launched, bench):
    op, timed = load_hub_kernel().gfx1201_sage_attention, []

    def stop_watch(call):
        before = len(launched())
        call()
        timed.extend(launched()[before:])
        return TIMES

    replace(bench, stop_watch=stop_watch).time_op("aiter_sage_hub", op, None)
    assert timed == KERNELS


def test_another_backend_than_the_one_asked_for_is_an_error(bench, monkeypatch):
    def math_whatever_is_asked(q, k, v):
        with sdpa_kernel(SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    monkeypatch.setattr(timing, "sdpa", math_whatever_is_asked)
    with pytest.raises(timing.UntrustworthyError, match="ran MATH, not FLASH_ATTENTION"):
        bench.time_sdpa(SDPBackend.FLASH_ATTENTION)


def test_an_attention_without_a_known_backend_is_an_error(bench, monkeypatch):
    monkeypatch.setattr(timing, "sdpa", lambda q, k, v: v + 0)
    with pytest.raises(timing.UntrustworthyError, match="ran None, not a known backend"):
        bench.time_sdpa()


def test_an_op_that_falls_back_to_sdpa_is_an_error(bench):
    with pytest.raises(timing.UntrustworthyError, match="sageattn ran FLASH_ATTENTION instead of the op"):
        bench.time_op("sageattn", timing.sdpa, reference=None)


def float64_attention(q, k, v):
    q, k, v = (x.double().transpose(1, 2) for x in (q, k, v))
    weights = torch.softmax(q @ k.transpose(2, 3) / 128**0.5, dim=-1)
    return (weights @ v).transpose(1, 2)


def test_the_distance_from_sdpa_is_written_down(bench):
    reference = timing.sdpa(bench.q, bench.k, bench.v)
    row = bench.time_op("op", float64_attention, reference)
    # Two roundings to bfloat16, of the weights and of the output.
    assert 0 < row.relative_l2 <= 2 * 2**-8
    assert bench.time_op("op", float64_attention, reference=None).relative_l2 is None


@pytest.mark.parametrize("wrong", [lambda q, k, v: 1.1 * float64_attention(q, k, v), lambda q, k, v: v * torch.nan])
def test_a_wrong_or_nan_result_gets_no_time(bench, wrong):
    reference = timing.sdpa(bench.q, bench.k, bench.v)
    with pytest.raises(timing.UntrustworthyError, match="away from SDPA"):
        bench.time_op("op", wrong, reference)


# The stop-watch itself, on a GPU that is made up


class Gpu:
    """A stream on which a call takes a millisecond, the first one ten, and clearing the caches a hundred."""

    def __init__(self):
        self.now, self.calls = 0.0, 0

    def call(self):
        self.now += 10.0 if self.calls == 0 else 1.0
        self.calls += 1

    def zero_(self):
        self.now += 100.0

    def event(self, enable_timing):
        gpu = self

        class Event:
            def record(self):
                self.at = gpu.now

            def synchronize(self):
                pass

            def elapsed_time(self, end):
                return end.at - self.at

        return Event()


@pytest.mark.parametrize("measure_ms, calls", [(20.0, 20), (0.5, timing.FEWEST_CALLS)])
def test_only_the_call_is_timed_after_warm_up_and_often_enough(monkeypatch, measure_ms, calls):
    gpu = Gpu()
    monkeypatch.setattr(timing.torch, "empty", lambda *size, **options: gpu)
    monkeypatch.setattr(timing.torch.cuda, "Event", gpu.event)
    assert timing.time_call(gpu.call, measure_ms) == [1000.0] * calls
    assert gpu.calls == calls + 1 + (timing.WARM_UP_MS - 10)
