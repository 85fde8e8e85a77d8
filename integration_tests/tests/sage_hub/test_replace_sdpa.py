# SPDX-License-Identifier: MIT
"""`replace_sdpa` on the virtual device: what it takes, what it leaves, what it counts, and how it goes away."""

import functools
import inspect
import itertools
import threading

import pytest
import torch
import torch.nn.functional as F

from integration_tests.harness.device_under_test import on_device
from integration_tests.harness.launches import MAIN_KERNEL
from integration_tests.harness.variant_delivery import load_variant
from integration_tests.reference.agreement import compare
from integration_tests.reference.attention import attention_float64
from integration_tests.reference.contract import RELATIVE_L2

ORIGINAL = F.scaled_dot_product_attention


@pytest.fixture
def replace_sdpa(even_barriers):
    yield load_variant().replace_sdpa
    left = F.scaled_dot_product_attention
    F.scaled_dot_product_attention = ORIGINAL
    assert left is ORIGINAL


def hnd(sequence: int = 40, head_dim: int = 128, dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [on_device(torch.randn(1, 2, sequence, head_dim, generator=generator).to(dtype)) for _ in range(3)]


# What it takes, and what it counts


def test_a_supported_call_runs_on_the_kernel_and_others_on_sdpa(launched, replace_sdpa):
    tensors, small = hnd(), hnd(head_dim=32)
    with replace_sdpa() as calls:
        out = F.scaled_dot_product_attention(*tensors)
        assert torch.equal(F.scaled_dot_product_attention(*small), ORIGINAL(*small))
        F.scaled_dot_product_attention(*tensors, is_causal=True)
    assert launched().count(MAIN_KERNEL) == calls.kernel == 1
    assert calls.sdpa == {"head_dim is not 128": 1, "is_causal is set": 1}
    assert repr(calls) == (
        "1 on the gfx1201 kernel, 2 on SDPA (1 because head_dim is not 128; 1 because is_causal is set)"
    )
    expected = attention_float64(*(x.transpose(1, 2) for x in tensors), 128**-0.5).transpose(1, 2)
    assert compare(out, expected).relative_l2 <= RELATIVE_L2["normal"]


def test_a_plain_call_lasts_until_restore(launched, replace_sdpa):
    calls = replace_sdpa()
    F.scaled_dot_product_attention(*hnd())
    calls.restore()
    calls.restore()
    F.scaled_dot_product_attention(*hnd())
    assert launched().count(MAIN_KERNEL) == calls.kernel == 1
    with pytest.raises(RuntimeError, match="is restored: call replace_sdpa"):
        calls.__enter__()


def test_it_has_the_name_and_the_arguments_of_sdpa(replace_sdpa):
    with replace_sdpa():
        function = F.scaled_dot_product_attention
    assert function.__name__ == ORIGINAL.__name__ and function.__doc__ == ORIGINAL.__doc__
    assert list(inspect.signature(function).parameters) == [
        "query",
        "key",
        "value",
        "attn_mask",
        "dropout_p",
        "is_causal",
        "scale",
        "enable_gqa",
    ]


def grouped(**keywords):
    q, k, v = hnd(head_dim=32)
    return (q, k[:, :1], v[:, :1]), keywords


UNTAKEN = {
    "causal by position": lambda: ((*hnd(), None, 0.0, True), {}),
    "scale": lambda: (hnd(head_dim=32), {"scale": 0.3}),
    "bool mask by position": lambda: ((*hnd(), torch.eye(40, dtype=torch.bool)), {}),
    "float mask by keyword": lambda: (hnd(), {"attn_mask": torch.eye(40, dtype=torch.bfloat16)}),
    "grouped": lambda: grouped(enable_gqa=True),
    "names": lambda: ((), dict(zip(("query", "key", "value"), hnd(head_dim=32), strict=True))),
    "three dimensions": lambda: ([x[0] for x in hnd()], {}),
}


@pytest.mark.parametrize("name", UNTAKEN)
def test_what_the_kernel_does_not_take_has_the_bits_of_sdpa(replace_sdpa, name):
    args, kwargs = UNTAKEN[name]()
    args = [on_device(x) if isinstance(x, torch.Tensor) else x for x in args]
    kwargs = {key: on_device(x) if isinstance(x, torch.Tensor) else x for key, x in kwargs.items()}
    expected = ORIGINAL(*args, **kwargs)
    with replace_sdpa():
        assert torch.equal(F.scaled_dot_product_attention(*args, **kwargs), expected)


WRONG = {
    "nothing": lambda: ((), {}),
    "a layout": lambda: (hnd(), {"tensor_layout": "NHD"}),
    "sageattn's names": lambda: ((), dict(zip("qkv", hnd(), strict=True))),
    "a scale by position": lambda: ((*hnd(), None, 0.0, False, 0.5), {}),
    "no tensor": lambda: ((*hnd()[:2], None), {}),
    "a word as scale": lambda: (hnd(), {"scale": "0.5"}),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_get_the_words_of_sdpa(launched, replace_sdpa, name):
    args, kwargs = WRONG[name]()
    with pytest.raises(TypeError) as expected:
        ORIGINAL(*args, **kwargs)
    with replace_sdpa() as calls, pytest.raises(TypeError) as found:
        F.scaled_dot_product_attention(*args, **kwargs)
    assert str(found.value) == str(expected.value)
    assert calls.sdpa == {"the arguments are not those of SDPA": 1} and launched() == []


def test_dropout_drops_what_sdpa_drops(replace_sdpa):
    torch.manual_seed(0)
    expected = ORIGINAL(*hnd(), dropout_p=0.5)
    torch.manual_seed(0)
    with replace_sdpa():
        assert torch.equal(F.scaled_dot_product_attention(*hnd(), dropout_p=0.5), expected)


def test_gradients_are_those_of_sdpa(launched, replace_sdpa):
    tensors = [x.requires_grad_() for x in hnd()]
    expected = torch.autograd.grad(ORIGINAL(*tensors).sum(), tensors)
    with replace_sdpa() as calls:
        found = torch.autograd.grad(F.scaled_dot_product_attention(*tensors).sum(), tensors)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert calls.sdpa == {"a gradient is required": 1} and launched() == []


def test_sageattn_under_it_does_not_call_it(replace_sdpa):
    package = load_variant()
    tensors = hnd(head_dim=32)
    with replace_sdpa() as calls:
        assert torch.equal(package.sageattn(*tensors), ORIGINAL(*tensors))
    assert calls.kernel == 0 and calls.sdpa == {}


def test_transforms_of_torch_func_give_what_they_give_without_it(replace_sdpa):
    q, k, v = hnd()
    batched = [x[None].expand(3, -1, -1, -1, -1) for x in (q, k, v)]

    def summed(q):
        return F.scaled_dot_product_attention(q, k, v).float().sum()

    expected = torch.vmap(F.scaled_dot_product_attention)(*batched), torch.func.grad(summed)(q)
    with replace_sdpa():
        found = torch.vmap(F.scaled_dot_product_attention)(*batched), torch.func.grad(summed)(q)
    assert compare(found[0], expected[0]).relative_l2 <= RELATIVE_L2["normal"]
    assert torch.equal(found[1], expected[1])


# How it goes away


def test_an_exception_restores_it(replace_sdpa):
    with pytest.raises(KeyError), replace_sdpa():
        raise KeyError


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_overlapping_replacements_are_restored_in_any_order(launched, replace_sdpa, order):
    replacements = [replace_sdpa() for _ in range(3)]
    for done, index in enumerate(order):
        F.scaled_dot_product_attention(*hnd())
        F.scaled_dot_product_attention(*hnd(head_dim=32))
        # One launch for each call, and each replacement that is still active has counted it.
        assert launched().count(MAIN_KERNEL) == done + 1
        assert [replacements[i].kernel for i in order[done:]] == [done + 1] * (3 - done)
        replacements[index].restore()
        assert (replacements[index].kernel, sum(replacements[index].sdpa.values())) == (done + 1, done + 1)
    assert F.scaled_dot_product_attention is ORIGINAL


def test_replacements_that_always_overlap_do_not_pile_up(replace_sdpa):
    tensors = hnd(sequence=4, head_dim=32)
    older = replace_sdpa()
    for _ in range(2000):  # more than Python's stack is deep
        newer = replace_sdpa()
        older.restore()
        older = newer
    F.scaled_dot_product_attention(*tensors)
    assert older.sdpa == {"head_dim is not 128": 1}
    older.restore()
    assert F.scaled_dot_product_attention is ORIGINAL


def counting(function):
    """Another package's patch over `function`, and its calls."""
    calls = []

    @functools.wraps(function)
    def patch(*args, **kwargs):
        calls.append(args)
        return function(*args, **kwargs)

    return patch, calls


def test_a_patch_put_on_top_stays_and_still_works(launched, replace_sdpa):
    calls = replace_sdpa()
    replaced = F.scaled_dot_product_attention
    patch, patched = counting(replaced)
    F.scaled_dot_product_attention = patch
    F.scaled_dot_product_attention(*hnd())
    calls.restore()
    assert F.scaled_dot_product_attention is patch
    assert torch.equal(F.scaled_dot_product_attention(*hnd()), ORIGINAL(*hnd()))
    assert (len(patched), calls.kernel, launched().count(MAIN_KERNEL)) == (2, 1, 1)

    with replace_sdpa() as above:
        F.scaled_dot_product_attention(*hnd())
        F.scaled_dot_product_attention(*hnd(head_dim=32))
    assert F.scaled_dot_product_attention is patch
    assert (len(patched), above.kernel, calls.kernel, launched().count(MAIN_KERNEL)) == (3, 1, 1, 2)
    # That package takes its patch back: what it puts there passes everything on, and goes with the next restore.
    F.scaled_dot_product_attention = replaced
    assert torch.equal(F.scaled_dot_product_attention(*hnd()), ORIGINAL(*hnd()))
    replace_sdpa().restore()
    assert F.scaled_dot_product_attention is ORIGINAL


def test_a_patch_that_was_there_gets_what_the_kernel_does_not_take(launched, replace_sdpa):
    patch, patched = counting(ORIGINAL)
    F.scaled_dot_product_attention = patch
    with replace_sdpa():
        F.scaled_dot_product_attention(*hnd())
        F.scaled_dot_product_attention(*hnd(head_dim=32))
    assert F.scaled_dot_product_attention is patch
    assert len(patched) == launched().count(MAIN_KERNEL) == 1
    F.scaled_dot_product_attention = ORIGINAL


def test_a_patch_that_throws_ours_away_is_left_alone(replace_sdpa):
    with replace_sdpa() as calls:
        F.scaled_dot_product_attention = ORIGINAL
        F.scaled_dot_product_attention(*hnd())
    assert calls.kernel == 0 and F.scaled_dot_product_attention is ORIGINAL


# Threads


def test_threads_that_replace_call_and_restore_lose_no_call_and_no_original(replace_sdpa):
    tensors = hnd(sequence=4, head_dim=32)
    expected = ORIGINAL(*tensors)
    start, wrong = threading.Barrier(8), []

    def work() -> None:
        start.wait()
        for _ in range(50):
            with replace_sdpa() as calls:
                for _ in range(3):
                    if not torch.equal(F.scaled_dot_product_attention(*tensors), expected):
                        wrong.append("result")
                if calls.kernel or sum(calls.sdpa.values()) < 3:
                    wrong.append(repr(calls))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [] and F.scaled_dot_product_attention is ORIGINAL


def test_calls_of_all_threads_are_counted(replace_sdpa):
    tensors = hnd(sequence=4, head_dim=32)
    with replace_sdpa() as calls:
        threads = [
            threading.Thread(target=lambda: [F.scaled_dot_product_attention(*tensors) for _ in range(200)])
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert calls.sdpa == {"head_dim is not 128": 1600}


# torch.compile


def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v) * 2


@pytest.mark.parametrize("head_dim", [128, 32])
def test_a_compiled_function_has_one_graph_and_the_eager_result(replace_sdpa, fresh_compiler, count_graphs, head_dim):
    tensors = hnd(head_dim=head_dim)
    with replace_sdpa() as calls:
        expected = attend(*tensors)
        compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
        assert torch.equal(compiled(*tensors), expected)
        compiled(*tensors)
    assert calls.kernel + sum(calls.sdpa.values()) == 2


def test_a_compiled_function_follows_replacement_and_restoration(launched, replace_sdpa, fresh_compiler):
    tensors = hnd()
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    expected = attend(*tensors)
    assert torch.equal(compiled(*tensors), expected) and launched() == []
    with replace_sdpa():
        compiled(*tensors)
        assert launched().count(MAIN_KERNEL) == 1
    assert torch.equal(compiled(*tensors), expected) and launched().count(MAIN_KERNEL) == 1


def test_training_a_compiled_function_falls_back(launched, replace_sdpa, fresh_compiler):
    tensors = [x.requires_grad_() for x in hnd()]
    expected = torch.autograd.grad(attend(*tensors).sum(), tensors)
    with replace_sdpa():
        compiled = torch.compile(attend, backend="aot_eager")
        found = torch.autograd.grad(compiled(*tensors).sum(), tensors)
    torch.testing.assert_close(found, expected)
    assert launched() == []
