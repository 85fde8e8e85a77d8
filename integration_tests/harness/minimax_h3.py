# SPDX-License-Identifier: MIT
"""A MiniMax-H3 small enough for a CPU, whose output depends on its attention, and its comparison with SDPA.

Import this after `patched.activate()`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import torch
from diffusers import AutoencoderKLMiniMaxH3, AutoencoderKLMiniMaxH3Audio, MiniMaxH3Transformer3DModel
from diffusers.models.transformers import transformer_minimax_h3

from integration_tests.harness.device_under_test import on_device
from integration_tests.reference import agreement as accuracy

# Three calls feed the output, at most in full (without attention the output changes by less than its norm), each with
# the error of the kernel's contract, independent of the others: the square root of three times that, 0.0693, in two
# digits. The cosine of two vectors of about equal norm that far apart is 1 - 0.07^2 / 2.
RELATIVE_L2 = 0.07
COSINE = 1 - RELATIVE_L2**2 / 2

# Two correct attentions that round to bfloat16 differently: SDPA and float64 attention are 0.006 to 0.007 apart here.
ROUNDING = 0.014

VIDEO_GRID = (3, 8, 12)  # latent frames, rows and columns after patching
AUDIO_TOKENS = 37
TEXT_TOKENS = 14
SEQUENCE_LENGTH = TEXT_TOKENS + AUDIO_TOKENS + VIDEO_GRID[0] * VIDEO_GRID[1] * VIDEO_GRID[2]

VIDEO, TEXT, AUDIO = 0, 1, 2  # the model's modality tags

_ATTENTION_GATE = 2  # of the six AdaLN modulations of a block: shift, scale, gate; the same for its feed-forward

SMALL = {
    "num_attention_heads": 4,
    "attention_head_dim": 128,
    "hidden_size": 96,
    "num_layers": 2,
    "num_refiner_layers": 1,
    "ffn_dim": 64,
    "in_channels": 4,
    "audio_in_channels": 6,
    "patch_size": (1, 2, 2),
    "text_dim": 8,
    "freq_dim": 8,
    "time_embed_hidden_dim": 24,
    "time_embed_dim": 16,
    "rope_freq_dim": 16,
}


def small_minimax_h3(seed: int, **changes: Any) -> MiniMaxH3Transformer3DModel:
    """The transformer with 4 heads of 128 channels, in bfloat16 but for what the checkpoint keeps in float32.

    `changes` to its configuration give other sizes, up to the released ones.

    A freshly initialised model attends almost uniformly and adds little of the result to its residual stream:
    a broken kernel would hardly show. The weights of the query norm, the value and output projections and the
    attention gate are therefore raised, so that attention is peaked and the output depends on it.
    """
    config = SMALL | changes
    attention_width = config["num_attention_heads"] * config["attention_head_dim"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        transformer = MiniMaxH3Transformer3DModel(**config)
        for block in [*transformer.transformer_blocks, *transformer.token_refiner.refiner_blocks]:
            torch.nn.init.constant_(block.attn.norm_q.weight, 3.0)
            torch.nn.init.normal_(block.attn.to_v.weight, std=config["hidden_size"] ** -0.5)
            torch.nn.init.normal_(block.attn.to_out[0].weight, std=attention_width**-0.5)
        for block in transformer.transformer_blocks:
            modulations = block.adaln_proj.linear.bias.view(3, 6, -1)  # modality, which of the six, channel
            torch.nn.init.constant_(modulations[:, _ATTENTION_GATE], 1.0)
    # What from_pretrained does with a torch_dtype; Module.to would cast every module.
    for name, tensor in [*transformer.named_parameters(), *transformer.named_buffers()]:
        if not any(module in name for module in transformer._keep_in_fp32_modules):
            tensor.data = tensor.data.bfloat16()
    return on_device(transformer.eval().requires_grad_(False))


def example_inputs(
    seed: int,
    batch_size: int = 1,
    *,
    audio_tokens: int = AUDIO_TOKENS,
    video_grid: tuple[int, int, int] = VIDEO_GRID,
    config: Mapping[str, Any] = SMALL,
) -> dict[str, torch.Tensor]:
    """The arguments of one forward: text rows, then audio rows, then video rows, at two noise levels."""
    generator = torch.Generator().manual_seed(seed)
    frames, height, width = video_grid
    audio_start, video_start = TEXT_TOKENS, TEXT_TOKENS + audio_tokens
    sequence_length = video_start + frames * height * width
    video_rows = slice(video_start, sequence_length)

    tags = torch.full((sequence_length,), TEXT)
    tags[audio_start:video_start] = AUDIO
    tags[video_rows] = VIDEO
    positions = torch.arange(sequence_length, dtype=torch.float32)[:, None].repeat(1, 3)
    grid = torch.meshgrid(torch.arange(frames), torch.arange(height), torch.arange(width), indexing="ij")
    positions[video_rows] = torch.stack(grid, dim=-1).reshape(-1, 3).float() + video_start

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(batch_size, *shape, generator=generator)

    tensors = {
        "hidden_states": normal(frames * height * width, config["in_channels"] * math.prod(config["patch_size"])),
        "audio_hidden_states": normal(audio_tokens, config["audio_in_channels"]),
        "encoder_hidden_states": normal(TEXT_TOKENS, config["text_dim"]),
        "timestep": torch.tensor([0.7, 0.3]),
        "timestep_indices": (tags == AUDIO).long(),
        "token_tags": tags,
        "position_ids": positions,
        "video_indices": torch.arange(video_start, sequence_length),
        "audio_indices": torch.arange(audio_start, video_start),
        "text_indices": torch.arange(TEXT_TOKENS),
    }
    return {name: on_device(tensor) for name, tensor in tensors.items()}


def small_video_vae(seed: int) -> AutoencoderKLMiniMaxH3:
    """MiniMax-H3's video autoencoder in bfloat16, with the head dimension of 64 that the released one has."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        vae = AutoencoderKLMiniMaxH3(
            latent_channels=4,
            block_out_channels=(8, 16),
            layers_per_block=1,
            spatial_downsample_factors=(2, 2),
            temporal_downsample_factors=(2, 2),
            norm_num_groups=8,
            decoder_num_layers=1,
            decoder_num_attention_heads=2,
            decoder_attention_head_dim=64,
            decoder_num_register_tokens=2,
            decoder_ffn_mult=2,
        )
    return on_device(vae.to(torch.bfloat16).eval())


def small_audio_vae(seed: int) -> AutoencoderKLMiniMaxH3Audio:
    """MiniMax-H3's audio autoencoder, whose encoder attends causally."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        audio_vae = AutoencoderKLMiniMaxH3Audio(
            encoder_dim=4,
            encoder_rates=(2, 2),
            latent_dim=32,
            latent_channels=8,
            num_attention_heads=2,
            decoder_dim=16,
            decoder_rates=(2, 2),
            decoder_kernel_sizes=(4, 4),
            resblock_kernel_sizes=(3, 7),
            resblock_dilation_sizes=((1, 3), (1, 3)),
        )
    return on_device(audio_vae.eval())


@contextlib.contextmanager
def recorded_attention() -> Iterator[list[torch.Size]]:
    """The query shape of each attention call that the transformer makes meanwhile."""
    dispatch = transformer_minimax_h3.dispatch_attention_fn
    shapes: list[torch.Size] = []

    def recording_dispatch(query: torch.Tensor, *arguments, **keywords) -> torch.Tensor:
        shapes.append(query.shape)
        return dispatch(query, *arguments, **keywords)

    transformer_minimax_h3.dispatch_attention_fn = recording_dispatch
    try:
        yield shapes
    finally:
        transformer_minimax_h3.dispatch_attention_fn = dispatch


def forward(transformer: MiniMaxH3Transformer3DModel, inputs: dict) -> torch.Tensor:
    """One forward on the backend that is set; the video and audio velocities as one float64 vector."""
    outputs = transformer(**inputs, return_dict=False)
    return torch.cat([output.double().flatten() for output in outputs])


def run(transformer: MiniMaxH3Transformer3DModel, inputs: dict, backend: str) -> torch.Tensor:
    """`forward` on `backend`, without gradients."""
    transformer.set_attention_backend(backend)
    try:
        with torch.no_grad():
            return forward(transformer, inputs)
    finally:
        # Also takes the process-wide backend back, which reset_attention_backend would leave set.
        transformer.set_attention_backend("native")


def compare(transformer: MiniMaxH3Transformer3DModel, inputs: dict, backend: str) -> dict[str, float | int]:
    """How far the model on `backend` is from the same model on PyTorch's SDPA.

    Returns `cosine`, `relative_l2` and `max_error` (absolute) over both outputs, and `attention_calls`, the
    number of attention calls of the forward on `backend`. An output that is not finite meets no bound on them.
    """
    expected = run(transformer, inputs, "native")
    with recorded_attention() as shapes:
        actual = run(transformer, inputs, backend)
    return asdict(accuracy.compare(actual, expected)) | {"attention_calls": len(shapes)}


def compiled_and_eager(transformer, inputs, backend):
    """The outputs with all blocks compiled, without a graph break, and before."""
    torch.compiler.reset()
    eager = run(transformer, inputs, backend)
    # Without inductor: it would need a C++ compiler, and the graph is what is tested.
    transformer.compile_repeated_blocks(fullgraph=True, backend="aot_eager")
    return run(transformer, inputs, backend), eager
