# SPDX-License-Identifier: MIT
"""Unmodified diffusers with `sage_hub`: MiniMax-H3 runs on the virtual gfx1201, and its autoencoders still work."""

import diffusers
import pytest
import torch
import torch.distributed as dist
from diffusers.models import attention_dispatch
from diffusers.models._modeling_parallel import ContextParallelConfig, ParallelConfig
from diffusers.models.attention_dispatch import AttentionBackendName, dispatch_attention_fn
from torch.testing._internal.distributed.fake_pg import FakeStore

from diffusers_patch.__main__ import installed_diffusers
from integration_tests.harness.device_under_test import on_device
from integration_tests.harness.launches import MAIN_KERNEL
from integration_tests.harness.minimax_h3 import (
    COSINE,
    RELATIVE_L2,
    compare,
    compiled_and_eager,
    example_inputs,
    recorded_attention,
    run,
    small_audio_vae,
    small_minimax_h3,
    small_video_vae,
)
from integration_tests.reference import contract
from integration_tests.reference.agreement import compare as agreement
from integration_tests.reference.attention import attention_float64

BACKEND = "sage_hub"

RELATIVE_L2_OF_A_CALL = contract.RELATIVE_L2["normal"]


@pytest.fixture
def transformer():
    return small_minimax_h3(seed=0)


def normal(*shape: int, dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [on_device(torch.randn(shape, generator=generator).to(dtype)) for _ in range(3)]


def test_diffusers_is_the_installed_one():
    assert diffusers.__file__ == str(installed_diffusers() / "__init__.py")
    assert "AITER_SAGE_HUB" not in AttentionBackendName.__members__


# The dispatcher


def test_diffusers_loads_the_variant_by_itself(sage_hub):
    small_video_vae(seed=0).set_attention_backend(BACKEND)
    assert attention_dispatch._HUB_KERNELS_REGISTRY[AttentionBackendName.SAGE_HUB].kernel_fn is sage_hub.sageattn


@pytest.fixture
def backend(sage_hub):
    """The backend, loaded as set_attention_backend does."""
    small_video_vae(seed=0).set_attention_backend(BACKEND)
    return AttentionBackendName.SAGE_HUB


@pytest.mark.parametrize("scale", [None, 0.05])
def test_supported_attention_is_launched(launched, backend, scale):
    q, k, v = normal(1, 40, 4, 128)
    out = dispatch_attention_fn(q, k, v, scale=scale, backend=backend)
    assert launched().count(MAIN_KERNEL) == 1
    expected = attention_float64(q, k, v, scale or 128**-0.5)
    assert agreement(out, expected).relative_l2 <= RELATIVE_L2_OF_A_CALL


OTHER_ATTENTION = {
    "head dim 64": (lambda: normal(1, 40, 4, 64), {}),
    "causal": (lambda: normal(1, 40, 4, 128), {"is_causal": True}),
    "float16": (lambda: normal(1, 40, 4, 128, dtype=torch.float16), {}),
    "cross attention": (lambda: [normal(1, 9, 4, 128)[0], *normal(1, 40, 4, 128)[1:]], {}),
}


@pytest.mark.parametrize("name", OTHER_ATTENTION)
def test_other_attention_has_the_bits_of_the_native_backend(launched, backend, name):
    make, options = OTHER_ATTENTION[name]
    q, k, v = make()
    expected = dispatch_attention_fn(q, k, v, **options, backend=AttentionBackendName.NATIVE)
    assert torch.equal(dispatch_attention_fn(q, k, v, **options, backend=backend), expected)
    assert launched() == []


def test_lse_arrives_in_the_shape_that_diffusers_expects(backend):
    q, k, v = normal(1, 9, 2, 128)
    out, lse = dispatch_attention_fn(q, k, v, attention_kwargs={"return_lse": True}, backend=backend)
    assert torch.equal(out, dispatch_attention_fn(q, k, v, backend=AttentionBackendName.NATIVE))
    assert (lse.shape, lse.dtype) == ((1, 2, 9), torch.float32)


def test_masks_are_refused_by_diffusers(backend):
    q, k, v = normal(1, 9, 2, 128)
    with pytest.raises(ValueError, match="`attn_mask` is not supported for sage attention"):
        dispatch_attention_fn(q, k, v, attn_mask=torch.ones(1, 1, 9, 9, dtype=torch.bool), backend=backend)


# Several GPUs


@pytest.fixture
def two_ranks():
    """Rank 0 of two, with collectives that return at once and exchange nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    dist.destroy_process_group()


def parallel(**degrees: int) -> ParallelConfig:
    config = ContextParallelConfig(**degrees)
    mesh = dist.device_mesh.init_device_mesh("cpu", config.mesh_shape, mesh_dim_names=config.mesh_dim_names)
    config.setup(0, 2, torch.device("cpu"), mesh)
    return ParallelConfig(context_parallel_config=config)


def test_ulysses_launches_the_kernel_for_all_rows_of_half_the_heads(virtual_gpu, backend, two_ranks):
    out = dispatch_attention_fn(*normal(1, 256, 4, 128), backend=backend, parallel_config=parallel(ulysses_degree=2))
    assert out.shape == (1, 256, 4, 128)
    # 512 rows in work-groups of 256, and two heads.
    assert [record.grid for record in virtual_gpu.records() if record.kernel == MAIN_KERNEL] == [(2, 2, 1)]


def test_ring_attention_joins_the_ranks_keys_by_the_lse(launched, backend, two_ranks, monkeypatch):
    q, k, v = normal(1, 64, 2, 128)
    mine, other = (slice(0, 32), slice(32, 64))

    def gather(own, gather_dim, group):
        return torch.cat([own, k[:, other].flatten(), v[:, other].flatten()])

    monkeypatch.setattr(attention_dispatch.funcol, "all_gather_tensor", gather)
    shards = (x[:, mine] for x in (q, k, v))
    out = dispatch_attention_fn(*shards, backend=backend, parallel_config=parallel(ring_degree=2))
    expected = attention_float64(q, k, v, 128**-0.5)[:, mine]
    # Each rank's output and the joined one are rounded to bfloat16, by 2^-9 at most.
    assert agreement(out, expected).relative_l2 <= 2 * 2**-9
    assert launched() == []


# MiniMax-H3


@pytest.mark.parametrize("batch_size", [1, 2])
def test_minimax_h3_agrees_with_sdpa_and_every_call_is_launched(
    launched, sage_hub, transformer, record_agreement, batch_size
):
    result = compare(transformer, example_inputs(seed=1, batch_size=batch_size), BACKEND)
    record_agreement(result)
    assert result["attention_calls"] == 3
    assert launched().count(MAIN_KERNEL) == result["attention_calls"]
    assert result["relative_l2"] <= RELATIVE_L2
    assert result["cosine"] >= COSINE


def test_minimax_h3_on_another_gpu_has_the_bits_of_sdpa(virtual_gpu, sage_hub, transformer):
    virtual_gpu.configure(arch="gfx1100")
    inputs = example_inputs(seed=1)
    with recorded_attention() as shapes:
        assert torch.equal(run(transformer, inputs, BACKEND), run(transformer, inputs, "native"))
    assert len(shapes) == 6 and virtual_gpu.records() == []


def test_compiled_blocks_have_no_graph_break_and_give_the_same_output(launched, sage_hub, transformer):
    compiled, eager = compiled_and_eager(transformer, example_inputs(seed=1), BACKEND)
    assert launched().count(MAIN_KERNEL) == 6
    assert torch.equal(compiled, eager)


def test_training_gets_gradients(launched, sage_hub, transformer):
    transformer.set_attention_backend(BACKEND)
    inputs = example_inputs(seed=1)
    inputs["encoder_hidden_states"].requires_grad_(True)
    video, *_ = transformer(**inputs, return_dict=False)
    video.float().sum().backward()
    assert inputs["encoder_hidden_states"].grad.abs().max() > 0
    assert launched() == []


# Its autoencoders, on the backend that the transformer has set for the process


def decode_video(vae) -> torch.Tensor:
    latents = on_device(torch.randn(1, 4, 7, 4, 4, generator=torch.Generator().manual_seed(2)))
    with torch.no_grad():
        return vae.decode(latents).sample


def encode_audio(audio_vae) -> torch.Tensor:
    samples = on_device(torch.randn(1, 1, 64, generator=torch.Generator().manual_seed(3)))
    with torch.no_grad():
        return audio_vae.encode(samples).latent_dist.mode()


AUTOENCODERS = {"video": (small_video_vae, decode_video), "audio": (small_audio_vae, encode_audio)}


@pytest.mark.parametrize("name", AUTOENCODERS)
def test_unpinned_autoencoder_has_the_bits_of_the_native_backend(launched, sage_hub, transformer, monkeypatch, name):
    make, use = AUTOENCODERS[name]
    autoencoder = make(seed=0)
    expected = use(autoencoder)

    routed = []
    reason_for_sdpa = sage_hub.core.reason_for_sdpa

    def recording_reason(*arguments):
        routed.append(reason_for_sdpa(*arguments))
        return routed[-1]

    monkeypatch.setattr(sage_hub.core, "reason_for_sdpa", recording_reason)
    transformer.set_attention_backend(BACKEND)
    assert torch.equal(use(autoencoder), expected)
    assert set(routed) == {"video": {"head_dim is not 128"}, "audio": {"is_causal is set"}}[name]
    assert launched() == []


def test_generation_runs_from_denoising_to_decoding_without_pinning(launched, sage_hub, transformer):
    vae = small_video_vae(seed=0)
    transformer.set_attention_backend(BACKEND)
    with torch.no_grad():
        transformer(**example_inputs(seed=1))
    assert torch.isfinite(decode_video(vae)).all()
    assert launched().count(MAIN_KERNEL) == 3
