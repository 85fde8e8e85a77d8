# SPDX-License-Identifier: MIT
"""The small MiniMax-H3: is it a fair probe of attention, and do its autoencoders stay off the backend."""

import pytest
import torch

from integration_tests.harness.minimax_h3 import (
    SEQUENCE_LENGTH,
    TEXT_TOKENS,
    compare,
    example_inputs,
    recorded_attention,
    run,
    small_audio_vae,
    small_minimax_h3,
    small_video_vae,
)
from integration_tests.reference import agreement as accuracy


@pytest.fixture(scope="module")
def transformer():
    return small_minimax_h3(seed=0)


@pytest.fixture(scope="module")
def inputs():
    return example_inputs(seed=1)


def test_same_seed_gives_the_same_model_and_output(transformer, inputs):
    again = run(small_minimax_h3(seed=0), example_inputs(seed=1), "native")
    assert torch.equal(run(transformer, inputs, "native"), again)


def test_attention_is_called_for_the_text_and_then_for_the_packed_sequence(transformer, inputs):
    with recorded_attention() as shapes:
        run(transformer, inputs, "native")
    packed = (1, SEQUENCE_LENGTH, 4, 128)
    assert shapes == [(1, TEXT_TOKENS, 4, 128), packed, packed]


def test_model_without_attention_gives_a_different_output(transformer, inputs, backend, kernel_calls):
    # Half of the output's norm, so that an error of a few per cent in the attention cannot hide in the rest.
    result = compare(transformer, inputs, backend)
    assert result["relative_l2"] >= 0.5
    assert len(kernel_calls) == result["attention_calls"] == 3


def test_attention_of_the_model_is_peaked(transformer, inputs, backend, replace_kernel):
    # If all weights were equal, a kernel that ignored the scores would pass.
    replace_kernel(lambda q, k, v, softmax_scale: v.mean(1, keepdim=True).expand_as(v))
    assert compare(transformer, inputs, backend)["relative_l2"] >= 0.5


def test_difference_of_vectors_that_are_not_finite_is_nan():
    result = accuracy.compare(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0]))
    assert not result.cosine >= 0.999 and not result.relative_l2 <= 1.0


def decode_video(vae):
    latents = torch.randn(1, 4, 7, 4, 4, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        return vae.decode(latents).sample


def encode_audio(audio_vae):
    samples = torch.randn(1, 1, 64, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        return audio_vae.encode(samples).latent_dist.mode()


@pytest.mark.parametrize("pinned", ["before", "after"])
def test_pinned_autoencoders_are_unaffected_by_the_transformer_backend(
    transformer, inputs, backend, kernel_calls, pinned
):
    vae, audio_vae = small_video_vae(seed=0), small_audio_vae(seed=0)
    video, audio = decode_video(vae), encode_audio(audio_vae)

    if pinned == "after":
        transformer.set_attention_backend(backend)
    vae.set_attention_backend("native")
    audio_vae.set_attention_backend("native")
    if pinned == "before":
        transformer.set_attention_backend(backend)

    with torch.no_grad():
        transformer(**inputs)
    assert len(kernel_calls) == 3
    assert torch.equal(decode_video(vae), video) and torch.equal(encode_audio(audio_vae), audio)
    assert len(kernel_calls) == 3


def test_unpinned_video_autoencoder_is_refused_for_its_head_dim(transformer, backend, kernel_calls):
    transformer.set_attention_backend(backend)
    with pytest.raises(ValueError, match="^The head dimension must be 128 .* got 64.$"):
        decode_video(small_video_vae(seed=0))
    assert kernel_calls == []


def test_unpinned_audio_autoencoder_is_refused_for_its_causal_attention(transformer, backend, kernel_calls):
    transformer.set_attention_backend(backend)
    with pytest.raises(ValueError, match="^`is_causal` is not supported for aiter sage attention.$"):
        encode_audio(small_audio_vae(seed=0))
    assert kernel_calls == []


def test_setting_the_transformer_to_native_frees_the_other_models_too(transformer, backend, kernel_calls):
    transformer.set_attention_backend(backend)
    transformer.set_attention_backend("native")
    decode_video(small_video_vae(seed=0))
    encode_audio(small_audio_vae(seed=0))
    assert kernel_calls == []


def test_resetting_the_transformer_leaves_the_other_models_on_the_backend(transformer, backend, kernel_calls):
    transformer.set_attention_backend(backend)
    transformer.reset_attention_backend()
    with pytest.raises(ValueError, match="for aiter sage attention"):
        decode_video(small_video_vae(seed=0))


def test_audio_autoencoder_does_not_attend_when_it_decodes(transformer, backend, kernel_calls):
    transformer.set_attention_backend(backend)
    with torch.no_grad():
        small_audio_vae(seed=0).decode(torch.zeros(1, 8, 4))
    assert kernel_calls == []
