# SPDX-License-Identifier: MIT
"""A small random MiniMax-H3 as a checkpoint on disk, which loads exactly as the released one does.

    python -m integration_tests.reports.compare_h3.small_checkpoint FOLDER SEED

Everything but the text encoder: the prompt is random embeddings.
"""

import sys
from pathlib import Path

import torch
from diffusers import AutoencoderKLMiniMaxH3, AutoencoderKLMiniMaxH3Audio, MiniMaxH3Scheduler
from diffusers.modular_pipelines.minimax_h3 import MiniMaxH3Blocks
from safetensors.torch import save_file

from integration_tests.harness.minimax_h3 import TEXT, TEXT_TOKENS, small_minimax_h3
from integration_tests.reports.compare_h3.case import write_atomically

# The released pipeline's: video and audio go down their own noise schedules.
VIDEO_SHIFT, AUDIO_SHIFT = 12.0, 3.0

# Of the random decoder's colours, in the ImageNet-normalised range of its output, so that few of them are clipped.
CONTRAST = 0.08


def save(folder: Path, seed: int) -> None:
    """Writes the checkpoint and `prompt.safetensors` beside its components."""
    transformer = small_minimax_h3(seed)
    blocks = MiniMaxH3Blocks().get_workflow("t2va")
    blocks.sub_blocks.pop("text_encoder")
    pipe = blocks.init_pipeline()
    pipe.update_components(
        transformer=transformer,
        vae=_video_vae(seed, transformer.config.in_channels),
        audio_vae=_audio_vae(seed, transformer.config.audio_in_channels),
        scheduler=MiniMaxH3Scheduler(shift=VIDEO_SHIFT),
        audio_scheduler=MiniMaxH3Scheduler(shift=AUDIO_SHIFT),
    )
    pipe.save_pretrained(str(folder), overwrite_modular_index=True)
    generator = torch.Generator().manual_seed(seed)
    prompt = {
        "prompt_embeds": torch.randn(1, TEXT_TOKENS, transformer.config.text_dim, generator=generator).bfloat16(),
        "text_token_tags": torch.full((TEXT_TOKENS,), TEXT),
    }
    write_atomically(folder / "prompt.safetensors", lambda path: save_file(prompt, path))


def _video_vae(seed: int, channels: int) -> AutoencoderKLMiniMaxH3:
    """Eight pixels a latent, and the released decoder's head dimension of 64, which the kernel refuses."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        vae = AutoencoderKLMiniMaxH3(
            latent_channels=channels,
            block_out_channels=(8, 8, 16),
            layers_per_block=1,
            spatial_downsample_factors=(2, 2, 2),
            temporal_downsample_factors=(2, 2, 1),
            norm_num_groups=8,
            decoder_num_layers=1,
            decoder_num_attention_heads=2,
            decoder_attention_head_dim=64,
            decoder_num_register_tokens=2,
            decoder_ffn_mult=2,
            latents_mean=(0.0,) * channels,
            latents_std=(1.0,) * channels,
        )
        colours = torch.randn(3, vae.decoder.proj_out.in_features)
    # One colour for all pixels of a latent: with a random weight for each pixel every video looks like noise.
    patch = vae.temporal_compression_ratio * vae.spatial_compression_ratio**2
    projection = vae.decoder.proj_out
    with torch.no_grad():
        projection.weight.copy_(CONTRAST * colours.repeat_interleave(patch, dim=0))
        projection.bias.zero_()
    return vae.eval()


def _audio_vae(seed: int, channels: int) -> AutoencoderKLMiniMaxH3Audio:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        audio_vae = AutoencoderKLMiniMaxH3Audio(
            encoder_dim=4,
            encoder_rates=(2, 2),
            latent_dim=channels * 4,
            latent_channels=channels,
            num_attention_heads=2,
            decoder_dim=16,
            decoder_rates=(2, 2),
            decoder_kernel_sizes=(4, 4),
            resblock_kernel_sizes=(3, 7),
            resblock_dilation_sizes=((1, 3), (1, 3)),
            latents_mean=[0.0] * channels,
            latents_std=[1.0] * channels,
        )
    return audio_vae.eval()


if __name__ == "__main__":
    save(Path(sys.argv[1]), int(sys.argv[2]))
