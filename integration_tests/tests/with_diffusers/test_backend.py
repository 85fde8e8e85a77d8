# SPDX-License-Identifier: MIT
"""What either backend hands to its kernel, and what it refuses before it."""

import pytest
import torch
import torch.distributed as dist
from diffusers.models._modeling_parallel import ContextParallelConfig, ParallelConfig
from diffusers.models.attention_dispatch import (
    AttentionBackendName,
    _AttentionBackendRegistry,
    dispatch_attention_fn,
)
from torch.testing._internal.distributed.fake_pg import FakeStore

from diffusers_patch.recipes.hub_backend import hub_kernel
from integration_tests.paths import DOCS

SHAPE = (1, 8, 4, 128)


def tensors(*shapes, dtypes=(torch.bfloat16,) * 3, **options):
    shapes = shapes or (SHAPE,) * 3
    return [torch.ones(shape, dtype=dtype, **options) for shape, dtype in zip(shapes, dtypes, strict=True)]


UNSUPPORTED_ARGUMENTS = [
    ("attn_mask", {"attn_mask": torch.ones(1, 1, 8, 8, dtype=torch.bool)}),
    ("dropout_p", {"dropout_p": 0.1}),
    ("is_causal", {"is_causal": True}),
    ("enable_gqa", {"enable_gqa": True}),
    ("return_lse", {"attention_kwargs": {"return_lse": True}}),
]
UNSUPPORTED_INPUTS = [
    pytest.param(
        tensors((1, 8, 4, 64), (1, 8, 4, 64), (1, 8, 4, 64)),
        "The head dimension must be 128 for aiter sage attention, got 64.",
        id="head dim",
    ),
    pytest.param(
        tensors(SHAPE, (1, 9, 4, 128), (1, 9, 4, 128)),
        "Query, key, and value must have the same shape for aiter sage attention, "
        "got (1, 8, 4, 128), (1, 9, 4, 128) and (1, 9, 4, 128).",
        id="cross attention",
    ),
    pytest.param(
        tensors(SHAPE, (1, 8, 2, 128), (1, 8, 2, 128)),
        "Query, key, and value must have the same shape for aiter sage attention, "
        "got (1, 8, 4, 128), (1, 8, 2, 128) and (1, 8, 2, 128).",
        id="fewer key heads",
    ),
    pytest.param(
        tensors(dtypes=(torch.float32, torch.float32, torch.bfloat16)),
        "Query, key, and value must be bfloat16 for aiter sage attention, "
        "got torch.float32, torch.float32 and torch.bfloat16.",
        id="autocast mix",
    ),
    pytest.param(
        tensors(dtypes=(torch.float16,) * 3),
        "Query, key, and value must be bfloat16 for aiter sage attention, "
        "got torch.float16, torch.float16 and torch.float16.",
        id="float16",
    ),
]


@pytest.fixture
def two_ranks():
    """Rank 0 of two, with collectives that return at once and exchange nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def parallel(**degrees) -> ParallelConfig:
    config = ContextParallelConfig(**degrees)
    mesh = dist.device_mesh.init_device_mesh("cpu", config.mesh_shape, mesh_dim_names=config.mesh_dim_names)
    config.setup(0, 2, torch.device("cpu"), mesh)
    return ParallelConfig(context_parallel_config=config)


def test_backend_is_not_the_default():
    assert _AttentionBackendRegistry.get_active_backend()[0] == AttentionBackendName.NATIVE


@pytest.mark.parametrize("scale", [None, 0.05])
def test_kernel_receives_the_inputs_and_the_scale_as_given(backend, kernel_calls, scale):
    query, key, value = tensors()
    dispatch_attention_fn(query, key, value, scale=scale, backend=backend)
    (call,) = kernel_calls
    assert call["q"] is query and call["k"] is key and call["v"] is value
    assert call["softmax_scale"] == scale


@pytest.mark.parametrize("name, argument", UNSUPPORTED_ARGUMENTS)
def test_unsupported_argument_is_refused_without_checks_enabled(backend, kernel_calls, name, argument):
    assert not _AttentionBackendRegistry._checks_enabled
    with pytest.raises(ValueError) as error:
        dispatch_attention_fn(*tensors(), **argument, backend=backend)
    assert str(error.value) == f"`{name}` is not supported for aiter sage attention."
    assert kernel_calls == []


@pytest.mark.parametrize("inputs, message", UNSUPPORTED_INPUTS)
def test_unsupported_input_is_refused_without_checks_enabled(backend, kernel_calls, inputs, message):
    assert not _AttentionBackendRegistry._checks_enabled
    with pytest.raises(ValueError) as error:
        dispatch_attention_fn(*inputs, backend=backend)
    assert str(error.value) == message
    assert kernel_calls == []


@pytest.mark.parametrize("anything", [False, True])
def test_ring_attention_is_refused(backend, kernel_calls, two_ranks, anything, monkeypatch):
    from diffusers.models import attention_dispatch

    # Ring "anything" first asks the other ranks for their lengths, which the fake collectives cannot answer.
    monkeypatch.setattr(attention_dispatch, "gather_size_by_comm", lambda size, group: [size, size])
    with pytest.raises(ValueError, match="^Ring attention is not supported for aiter sage attention"):
        dispatch_attention_fn(
            *tensors(), backend=backend, parallel_config=parallel(ring_degree=2, ring_anything=anything)
        )
    assert kernel_calls == []


def test_ulysses_gives_the_kernel_all_rows_of_half_the_heads(backend, kernel_calls, two_ranks):
    out = dispatch_attention_fn(*tensors(), backend=backend, parallel_config=parallel(ulysses_degree=2))
    (call,) = kernel_calls
    assert [call[name].shape for name in "qkv"] == [(1, 16, 2, 128)] * 3
    assert call["softmax_scale"] is None
    assert out.shape == SHAPE


def test_ulysses_refuses_a_mask_before_any_exchange(backend, kernel_calls):
    # No process group exists here: a collective would raise something else.
    with pytest.raises(ValueError, match="^`attn_mask` is not supported"):
        dispatch_attention_fn(
            *tensors(),
            attn_mask=torch.ones(8, 8, dtype=torch.bool),
            backend=backend,
            parallel_config=object(),
        )
    assert kernel_calls == []


def test_backward_under_ulysses_is_refused(backend, kernel_calls, two_ranks):
    out = dispatch_attention_fn(
        *tensors(requires_grad=True), backend=backend, parallel_config=parallel(ulysses_degree=2)
    )
    with pytest.raises(NotImplementedError, match="Backward pass is not implemented for Sage attention."):
        out.sum().backward()


def test_registered_kernel_is_the_one_that_the_hub_kernel_names():
    from diffusers.models.attention_dispatch import _HUB_KERNELS_REGISTRY

    config = _HUB_KERNELS_REGISTRY[AttentionBackendName.AITER_SAGE_HUB]
    assert (config.repo_id, config.version) == hub_kernel()
    assert config.function_attr == "gfx1201_sage_attention"


def test_documentation_quotes_each_refusal():
    page = (DOCS / "using_with_diffusers.md").read_text()
    messages = [f"`{name}` is not supported for aiter sage attention." for name, _ in UNSUPPORTED_ARGUMENTS]
    messages += [parameters.values[1] for parameters in UNSUPPORTED_INPUTS]
    for message in messages:
        assert message.partition(", got")[0] in page
