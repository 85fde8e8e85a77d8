# SPDX-License-Identifier: MIT
"""Every model family of diffusers whose attention is worth a kernel, with the sizes at which it is used."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

from integration_tests.reports.models.workload import REPLACE_SDPA, SAGE_HUB, Workload, grid_ids, normal, valid

TABLE: list[Workload] = []


def add(
    name: str,
    class_name: str,
    route: str,
    inputs: Callable,
    tiny: Mapping[str, Any],
    tiny_sizes: Mapping[str, Any],
    full: Mapping[str, Any],
    full_sizes: Mapping[str, Any],
    **options: Any,
) -> None:
    TABLE.append(Workload(name, class_name, route, inputs, tiny, tiny_sizes, full, full_sizes, **options))


HALFWAY = torch.tensor([0.5])


# Rows of an image beside rows of text, in one sequence


def flux(config, *, text, grid, columns=3, pooled=False, **more):
    inputs = {
        "hidden_states": normal(1, grid[0] * grid[1], config.in_channels),
        "encoder_hidden_states": normal(1, text, config.joint_attention_dim),
        "timestep": HALFWAY,
        "img_ids": grid_ids(*grid, columns=columns),
        "txt_ids": torch.zeros(text, columns),
    }
    if pooled:
        inputs["pooled_projections"] = normal(1, config.pooled_projection_dim)
    if config.get("guidance_embeds"):
        inputs["guidance"] = torch.tensor([3.5])
    return inputs | more


NARROW = {"in_channels": 16, "joint_attention_dim": 16}
ONE_OF_EACH = {"num_layers": 1, "num_single_layers": 1, "num_attention_heads": 2, "attention_head_dim": 128}
SMALL_IMAGE = {"text": 16, "grid": (8, 8)}
FLUX_1 = {"num_layers": 19, "num_single_layers": 38, "num_attention_heads": 24, "attention_head_dim": 128}

add(
    "FLUX.1-dev 1024",
    "FluxTransformer2DModel",
    SAGE_HUB,
    functools.partial(flux, pooled=True),
    {**ONE_OF_EACH, **NARROW, "pooled_projection_dim": 16, "guidance_embeds": True},
    SMALL_IMAGE,
    {**FLUX_1, "guidance_embeds": True},
    {"text": 512, "grid": (64, 64)},
)
add(
    "FLUX.2-dev 1024",
    "Flux2Transformer2DModel",
    SAGE_HUB,
    functools.partial(flux, columns=4),
    {**ONE_OF_EACH, **NARROW, "timestep_guidance_channels": 16},
    SMALL_IMAGE,
    {"num_layers": 8, "num_single_layers": 48, "num_attention_heads": 48, "attention_head_dim": 128},
    {"text": 512, "grid": (64, 64)},
)
add(
    "Bria 3.2 1024",
    "BriaTransformer2DModel",
    SAGE_HUB,
    flux,
    {**ONE_OF_EACH, **NARROW},
    SMALL_IMAGE,
    FLUX_1,
    {"text": 128, "grid": (64, 64)},
)
add(
    "LongCat-Image 1024",
    "LongCatImageTransformer2DModel",
    SAGE_HUB,
    flux,
    {**ONE_OF_EACH, **NARROW, "pooled_projection_dim": 16},
    SMALL_IMAGE,
    FLUX_1,
    {"text": 512, "grid": (64, 64)},
)
add(
    "Ovis-Image 1024",
    "OvisImageTransformer2DModel",
    SAGE_HUB,
    flux,
    {**ONE_OF_EACH, **NARROW},
    SMALL_IMAGE,
    {"num_layers": 6, "num_single_layers": 27, "num_attention_heads": 24, "attention_head_dim": 128},
    {"text": 256, "grid": (64, 64)},
)


def chroma(config, *, text, valid_text, grid):
    mask = torch.cat([valid(1, text, valid_text), torch.ones(1, grid[0] * grid[1], dtype=torch.bool)], dim=1)
    return flux(config, text=text, grid=grid, attention_mask=mask)


add(
    "Chroma 1024",
    "ChromaTransformer2DModel",
    REPLACE_SDPA,
    chroma,
    {
        **ONE_OF_EACH,
        **NARROW,
        "approximator_num_channels": 64,
        "approximator_hidden_dim": 32,
        "approximator_layers": 1,
    },
    {**SMALL_IMAGE, "valid_text": 9},
    FLUX_1,
    {"text": 512, "valid_text": 40, "grid": (64, 64)},
)


def bria_fibo(config, *, text, valid_text, grid):
    inputs = flux(config, text=text, grid=grid)
    blocks = config.num_layers + config.num_single_layers
    inputs["text_encoder_layers"] = [normal(1, text, config.text_encoder_dim) for _ in range(blocks)]
    mask = torch.cat([valid(1, text, valid_text), torch.ones(1, grid[0] * grid[1], dtype=torch.bool)], dim=1)
    return inputs | {"joint_attention_kwargs": {"attention_mask": mask[:, None, None, :]}}


add(
    "Bria FIBO 1024",
    "BriaFiboTransformer2DModel",
    REPLACE_SDPA,
    bria_fibo,
    {**ONE_OF_EACH, **NARROW, "text_encoder_dim": 16},
    {**SMALL_IMAGE, "valid_text": 9},
    FLUX_1,
    {"text": 1024, "valid_text": 700, "grid": (64, 64)},
)


def qwen_image(config, *, text, grid, batch=1, valid_text=None):
    return {
        "hidden_states": normal(batch, grid[0] * grid[1], config.in_channels),
        "encoder_hidden_states": normal(batch, text, config.joint_attention_dim),
        "encoder_hidden_states_mask": None if valid_text is None else valid(batch, text, valid_text),
        "timestep": HALFWAY.expand(batch),
        "img_shapes": [[(1, *grid)]] * batch,
    }


TINY_QWEN = {"num_layers": 1, "num_attention_heads": 2, "attention_head_dim": 128, **NARROW, "out_channels": 4}
QWEN = {"num_layers": 60, "num_attention_heads": 24, "attention_head_dim": 128}
add(
    "Qwen-Image 1328, one prompt",
    "QwenImageTransformer2DModel",
    SAGE_HUB,
    qwen_image,
    TINY_QWEN,
    SMALL_IMAGE,
    QWEN,
    {"text": 60, "grid": (83, 83)},
)
add(
    "Qwen-Image 1328, two prompts of unequal length",
    "QwenImageTransformer2DModel",
    REPLACE_SDPA,
    qwen_image,
    TINY_QWEN,
    {**SMALL_IMAGE, "batch": 2, "valid_text": 9},
    QWEN,
    {"text": 60, "grid": (83, 83), "batch": 2, "valid_text": 33},
)


def qwen_image_21(config, *, text, grid, mode=None, state=None):
    """`mode`: the first step fills a cache of the prompt's keys and values, later ones read it."""
    inputs = {
        "hidden_states": normal(1, grid[0] * grid[1], config.in_channels),
        "encoder_hidden_states": normal(1, text, config.context_in_dim),
        "timestep": HALFWAY,
        "img_shapes": [[(1, *grid)]],
        "img_mask": torch.arange(text + grid[0] * grid[1] // 4)[None] >= text,
    }
    if mode:
        from diffusers.models.transformers.transformer_qwenimage21 import QwenImage21KVCache

        inputs["kv_cache"] = state.setdefault("cache", QwenImage21KVCache(config.num_layers))
        inputs["kv_cache_mode"] = mode
    return inputs


add(
    "Qwen-Image-2.1 1024, 30 steps",
    "QwenImage21Transformer2DModel",
    REPLACE_SDPA,
    qwen_image_21,
    {
        "num_layers": 1,
        "num_attention_heads": 2,
        "attention_head_dim": 128,
        "in_channels": 16,
        "out_channels": 4,
        "context_in_dim": 16,
    },
    SMALL_IMAGE,
    {"num_layers": 32, "num_attention_heads": 32, "attention_head_dim": 128},
    {"text": 100, "grid": (64, 64)},
    steps=((1, {"mode": "extract"}), (29, {"mode": "cached"})),
)


def z_image(config, *, text, grid):
    return {
        "x": [normal(config.in_channels, 1, *grid)],
        "t": HALFWAY,
        "cap_feats": [normal(text, config.cap_feat_dim)],
    }


add(
    "Z-Image-Turbo 1024",
    "ZImageTransformer2DModel",
    SAGE_HUB,
    z_image,
    {
        "dim": 256,
        "n_heads": 2,
        "n_kv_heads": 2,
        "n_layers": 1,
        "n_refiner_layers": 1,
        "cap_feat_dim": 16,
        "in_channels": 4,
    },
    {"text": 32, "grid": (16, 16)},
    {"dim": 3840, "n_heads": 30, "n_kv_heads": 30, "n_layers": 30, "n_refiner_layers": 2},
    {"text": 128, "grid": (128, 128)},
)


def krea_2(config, *, text, valid_text, grid):
    ids = torch.cat([torch.zeros(text, 3), grid_ids(*grid, columns=3)])
    return {
        "hidden_states": normal(1, grid[0] * grid[1], config.in_channels),
        "encoder_hidden_states": normal(1, text, config.num_text_layers, config.text_hidden_dim),
        "encoder_attention_mask": valid(1, text, valid_text),
        "timestep": HALFWAY,
        "position_ids": ids,
    }


add(
    "Krea 2 1024",
    "Krea2Transformer2DModel",
    REPLACE_SDPA,
    krea_2,
    {
        "num_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "attention_head_dim": 128,
        "in_channels": 16,
        "intermediate_size": 32,
        "timestep_embed_dim": 16,
        "text_hidden_dim": 256,
        "num_text_layers": 2,
        "text_num_attention_heads": 2,
        "text_num_key_value_heads": 2,
        "text_intermediate_size": 32,
        "num_layerwise_text_blocks": 1,
        "num_refiner_text_blocks": 1,
    },
    {**SMALL_IMAGE, "valid_text": 9},
    {"num_layers": 28, "num_attention_heads": 48, "num_key_value_heads": 12, "text_num_attention_heads": 20},
    {"text": 512, "valid_text": 60, "grid": (64, 64)},
)


def ernie_image(config, *, text, grid):
    return {
        "hidden_states": normal(1, config.in_channels, *grid),
        "timestep": HALFWAY,
        "text_bth": normal(1, text, config.text_in_dim),
        "text_lens": torch.tensor([text]),
    }


add(
    "Ernie-Image 1024",
    "ErnieImageTransformer2DModel",
    REPLACE_SDPA,
    ernie_image,
    {
        "hidden_size": 256,
        "num_attention_heads": 2,
        "num_layers": 1,
        "ffn_hidden_size": 32,
        "in_channels": 16,
        "out_channels": 16,
        "text_in_dim": 16,
    },
    SMALL_IMAGE,
    {"hidden_size": 3072, "num_attention_heads": 24, "num_layers": 24},
    {"text": 100, "grid": (64, 64)},
)


def glm_image(config, *, text, grid):
    rows = grid[0] * grid[1] // config.patch_size**2
    return {
        "hidden_states": normal(1, config.in_channels, *grid),
        "encoder_hidden_states": normal(1, text, config.text_embed_dim),
        "prior_token_id": torch.zeros(1, rows, dtype=torch.long),
        "prior_token_drop": torch.zeros(1, rows, dtype=torch.bool),
        "timestep": torch.tensor([500]),
        "target_size": torch.tensor([[1024.0, 1024.0]]),
        "crop_coords": torch.tensor([[0.0, 0.0]]),
    }


add(
    "GLM-Image 1024",
    "GlmImageTransformer2DModel",
    SAGE_HUB,
    glm_image,
    {
        "num_layers": 1,
        "num_attention_heads": 2,
        "attention_head_dim": 128,
        "in_channels": 4,
        "out_channels": 4,
        "text_embed_dim": 16,
        "time_embed_dim": 16,
        "condition_dim": 16,
        "prior_vq_quantizer_codebook_size": 4,
    },
    {"text": 16, "grid": (16, 16)},
    {"num_layers": 30, "num_attention_heads": 32, "attention_head_dim": 128},
    {"text": 64, "grid": (128, 128)},
)


def cogview_4(config, *, text, grid):
    size = torch.tensor([[1024.0, 1024.0]])
    return {
        "hidden_states": normal(1, config.in_channels, *grid),
        "encoder_hidden_states": normal(1, text, config.text_embed_dim),
        "timestep": torch.tensor([500]),
        "original_size": size,
        "target_size": size,
        "crop_coords": torch.zeros(1, 2),
    }


add(
    "CogView4 1024",
    "CogView4Transformer2DModel",
    REPLACE_SDPA,
    cogview_4,
    {
        "num_layers": 1,
        "num_attention_heads": 2,
        "attention_head_dim": 128,
        "in_channels": 4,
        "out_channels": 4,
        "text_embed_dim": 16,
        "time_embed_dim": 16,
        "condition_dim": 16,
    },
    {"text": 16, "grid": (16, 16)},
    {"num_layers": 28, "num_attention_heads": 32, "attention_head_dim": 128},
    {"text": 224, "grid": (128, 128)},
)


def hunyuan_image(config, *, text, valid_text, glyphs, grid):
    return {
        "hidden_states": normal(1, config.in_channels, *grid),
        "timestep": torch.tensor([500.0], dtype=torch.bfloat16),
        "encoder_hidden_states": normal(1, text, config.text_embed_dim),
        "encoder_attention_mask": valid(1, text, valid_text),
        "encoder_hidden_states_2": normal(1, glyphs, config.text_embed_2_dim),
        "encoder_attention_mask_2": valid(1, glyphs, glyphs // 2),
    }


add(
    "HunyuanImage-2.1 2048",
    "HunyuanImageTransformer2DModel",
    REPLACE_SDPA,
    hunyuan_image,
    {
        **ONE_OF_EACH,
        "num_refiner_layers": 1,
        "in_channels": 4,
        "out_channels": 4,
        "text_embed_dim": 16,
        "text_embed_2_dim": 16,
    },
    {**SMALL_IMAGE, "valid_text": 9, "glyphs": 8},
    {
        "num_layers": 20,
        "num_single_layers": 40,
        "num_refiner_layers": 2,
        "num_attention_heads": 28,
        "attention_head_dim": 128,
        "text_embed_2_dim": 1472,
    },
    {"text": 1000, "valid_text": 60, "glyphs": 128, "grid": (64, 64)},
)


def hidream(config, *, text, grid, batch=1):
    width, llama = config.caption_channels
    return {
        "hidden_states": normal(batch, config.in_channels, *grid),
        "timesteps": torch.tensor([500]).expand(batch),
        "encoder_hidden_states_t5": normal(batch, text, width),
        "encoder_hidden_states_llama3": [normal(batch, text, llama) for _ in range(max(config.llama_layers) + 1)],
        "pooled_embeds": normal(batch, config.text_emb_dim),
    }


# Without the experts of its feed-forward, whose numbers of rows are not known before they are computed: no attention.
HIDREAM = {"patch_size": 2, "axes_dims_rope": (64, 32, 32), "num_routed_experts": 0}
add(
    "HiDream-I1 1024",
    "HiDreamImageTransformer2DModel",
    REPLACE_SDPA,
    hidream,
    {
        **ONE_OF_EACH,
        **HIDREAM,
        "in_channels": 4,
        "caption_channels": [16, 16],
        "llama_layers": [0, 1],
        "text_emb_dim": 16,
        "max_resolution": (16, 16),
    },
    {"text": 8, "grid": (16, 16)},
    {
        **HIDREAM,
        "num_layers": 16,
        "num_single_layers": 32,
        "num_attention_heads": 20,
        "attention_head_dim": 128,
        "in_channels": 16,
        "caption_channels": [4096, 4096],
        "llama_layers": [*range(32), *[31] * 16],
        "max_resolution": (128, 128),
    },
    {"text": 128, "grid": (128, 128)},
)


def stable_diffusion_3(config, *, text, grid, batch=2):
    return {
        "hidden_states": normal(batch, config.in_channels, *grid),
        "encoder_hidden_states": normal(batch, text, config.joint_attention_dim),
        "pooled_projections": normal(batch, config.pooled_projection_dim),
        "timestep": torch.tensor([500]).expand(batch),
    }


add(
    "SD3.5-large 1024, with guidance",
    "SD3Transformer2DModel",
    REPLACE_SDPA,
    stable_diffusion_3,
    {
        "num_layers": 2,
        "num_attention_heads": 2,
        "attention_head_dim": 64,
        "in_channels": 4,
        "out_channels": 4,
        "joint_attention_dim": 16,
        "caption_projection_dim": 128,
        "pooled_projection_dim": 16,
        "qk_norm": "rms_norm",
        "sample_size": 16,
        "pos_embed_max_size": 16,
    },
    {"text": 16, "grid": (16, 16)},
    {
        "num_layers": 38,
        "num_attention_heads": 38,
        "attention_head_dim": 64,
        "caption_projection_dim": 2432,
        "qk_norm": "rms_norm",
        "pos_embed_max_size": 192,
    },
    {"text": 333, "grid": (128, 128)},
)


def aura_flow(config, *, text, grid):
    return {
        "hidden_states": normal(1, config.in_channels, *grid),
        "encoder_hidden_states": normal(1, text, config.joint_attention_dim),
        "timestep": HALFWAY,
    }


add(
    "AuraFlow 1024",
    "AuraFlowTransformer2DModel",
    REPLACE_SDPA,
    aura_flow,
    {
        "num_mmdit_layers": 1,
        "num_single_dit_layers": 1,
        "num_attention_heads": 1,
        "attention_head_dim": 256,
        "joint_attention_dim": 16,
        "caption_projection_dim": 256,
        "sample_size": 16,
        "pos_embed_max_size": 64,
    },
    {"text": 16, "grid": (16, 16)},
    {
        "num_mmdit_layers": 4,
        "num_single_dit_layers": 32,
        "num_attention_heads": 12,
        "attention_head_dim": 256,
        "sample_size": 128,
        "pos_embed_max_size": 9216,
    },
    {"text": 256, "grid": (128, 128)},
)


def lumina_2(config, *, text, valid_text, grid):
    return {
        "hidden_states": normal(1, config.in_channels, *grid),
        "timestep": HALFWAY,
        "encoder_hidden_states": normal(1, text, config.cap_feat_dim),
        "encoder_attention_mask": valid(1, text, valid_text),
    }


add(
    "Lumina-2 1024",
    "Lumina2Transformer2DModel",
    REPLACE_SDPA,
    lumina_2,
    {
        "hidden_size": 192,
        "num_layers": 1,
        "num_refiner_layers": 1,
        "num_attention_heads": 2,
        "num_kv_heads": 1,
        "in_channels": 4,
        "multiple_of": 16,
        "cap_feat_dim": 16,
        "sample_size": 16,
    },
    {"text": 16, "valid_text": 9, "grid": (16, 16)},
    {
        "hidden_size": 2304,
        "num_layers": 26,
        "num_refiner_layers": 2,
        "num_attention_heads": 24,
        "num_kv_heads": 8,
        "cap_feat_dim": 2304,
    },
    {"text": 256, "valid_text": 60, "grid": (128, 128)},
)


# Images that attend to text in calls of their own


def pixart(config, *, text, valid_text, grid, batch=2):
    return {
        "hidden_states": normal(batch, config.in_channels, *grid),
        "encoder_hidden_states": normal(batch, text, config.caption_channels),
        "encoder_attention_mask": valid(batch, text, valid_text),
        "timestep": torch.tensor([500]).expand(batch),
        "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
    }


add(
    "PixArt-Sigma 1024, with guidance",
    "PixArtTransformer2DModel",
    REPLACE_SDPA,
    pixart,
    {
        "num_layers": 1,
        "num_attention_heads": 2,
        "attention_head_dim": 72,
        "cross_attention_dim": 144,
        "caption_channels": 16,
        "sample_size": 16,
        "use_additional_conditions": False,
    },
    {"text": 16, "valid_text": 9, "grid": (16, 16)},
    {
        "num_layers": 28,
        "num_attention_heads": 16,
        "attention_head_dim": 72,
        "cross_attention_dim": 1152,
        "caption_channels": 4096,
        "sample_size": 128,
        "use_additional_conditions": False,
    },
    {"text": 300, "valid_text": 60, "grid": (128, 128)},
)


def sana(config, *, text, valid_text, grid, batch=2):
    return {
        "hidden_states": normal(batch, config.in_channels, *grid),
        "encoder_hidden_states": normal(batch, text, config.caption_channels),
        "encoder_attention_mask": valid(batch, text, valid_text),
        "timestep": torch.tensor([500]).expand(batch),
    }


add(
    "Sana 1.6B 1024, with guidance",
    "SanaTransformer2DModel",
    REPLACE_SDPA,
    sana,
    {
        "num_layers": 1,
        "num_attention_heads": 7,
        "attention_head_dim": 32,
        "num_cross_attention_heads": 2,
        "cross_attention_head_dim": 112,
        "cross_attention_dim": 224,
        "caption_channels": 16,
        "in_channels": 4,
        "out_channels": 4,
        "sample_size": 8,
    },
    {"text": 16, "valid_text": 9, "grid": (8, 8)},
    {"num_layers": 20, "num_cross_attention_heads": 20, "cross_attention_head_dim": 112},
    {"text": 300, "valid_text": 60, "grid": (32, 32)},
)


def unet(config, *, text, grid, batch=2):
    inputs = {
        "sample": normal(batch, config.in_channels, *grid),
        "timestep": torch.tensor(500),
        "encoder_hidden_states": normal(batch, text, config.cross_attention_dim),
    }
    if config.addition_embed_type == "text_time":
        pooled = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
        inputs["added_cond_kwargs"] = {"text_embeds": normal(batch, pooled), "time_ids": normal(batch, 6)}
    return inputs


SDXL = {
    "addition_embed_type": "text_time",
    "use_linear_projection": True,
    "attention_head_dim": (5, 10, 20),
    "block_out_channels": (320, 640, 1280),
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
}
add(
    "SDXL 1024, with guidance",
    "UNet2DConditionModel",
    REPLACE_SDPA,
    unet,
    {
        **SDXL,
        "block_out_channels": (64, 64, 128),
        "attention_head_dim": (1, 1, 2),
        "layers_per_block": 1,
        "cross_attention_dim": 16,
        "addition_time_embed_dim": 4,
        "projection_class_embeddings_input_dim": 40,
    },
    {"text": 16, "grid": (16, 16)},
    {
        **SDXL,
        "transformer_layers_per_block": (1, 2, 10),
        "cross_attention_dim": 2048,
        "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816,
    },
    {"text": 77, "grid": (128, 128)},
    component="unet",
)
add(
    "SD1.5 512, with guidance",
    "UNet2DConditionModel",
    REPLACE_SDPA,
    unet,
    {
        "block_out_channels": (80, 160, 320),
        "down_block_types": ("CrossAttnDownBlock2D",) * 3,
        "up_block_types": ("CrossAttnUpBlock2D",) * 3,
        "attention_head_dim": 2,
        "layers_per_block": 1,
        "cross_attention_dim": 16,
        "norm_num_groups": 16,
    },
    {"text": 16, "grid": (16, 16)},
    {"block_out_channels": (320, 640, 1280, 1280), "attention_head_dim": 8, "cross_attention_dim": 768},
    {"text": 77, "grid": (64, 64)},
    component="unet",
)


# Video


def minimax_h3(config, *, video, audio):
    from integration_tests.harness.minimax_h3 import example_inputs

    return example_inputs(1, audio_tokens=audio, video_grid=video, config=config)


TINY_H3 = {
    "num_attention_heads": 2,
    "attention_head_dim": 128,
    "hidden_size": 64,
    "num_layers": 1,
    "num_refiner_layers": 1,
    "ffn_dim": 32,
    "in_channels": 4,
    "audio_in_channels": 6,
    "text_dim": 8,
    "freq_dim": 8,
    "time_embed_hidden_dim": 24,
    "time_embed_dim": 16,
}
H3 = {"num_attention_heads": 56, "attention_head_dim": 128, "num_layers": 50, "num_refiner_layers": 2}
add(
    "MiniMax-H3 1344x768 243f, 73,923 rows",
    "MiniMaxH3Transformer3DModel",
    SAGE_HUB,
    minimax_h3,
    TINY_H3,
    {"video": (2, 4, 6), "audio": 20},
    H3,
    {"video": (73, 24, 42), "audio": 325},
)
add(
    "MiniMax-H3, 17,000 rows",
    "MiniMaxH3Transformer3DModel",
    SAGE_HUB,
    minimax_h3,
    TINY_H3,
    {"video": (2, 4, 6), "audio": 20},
    H3,
    {"video": (38, 17, 26), "audio": 190},
)


def wan(config, *, text, grid, image=0):
    inputs = {
        "hidden_states": normal(1, config.in_channels, *grid),
        "timestep": torch.tensor([500]),
        "encoder_hidden_states": normal(1, text, config.text_dim),
    }
    if image:
        inputs["encoder_hidden_states_image"] = normal(1, image, config.image_dim)
    if "vace_in_channels" in config:
        inputs["control_hidden_states"] = normal(1, config.vace_in_channels, *grid)
    return inputs


TINY_WAN = {
    "num_attention_heads": 2,
    "attention_head_dim": 128,
    "num_layers": 1,
    "in_channels": 4,
    "out_channels": 4,
    "text_dim": 16,
    "freq_dim": 16,
    "ffn_dim": 32,
}
SMALL_VIDEO = {"text": 16, "grid": (2, 8, 16)}
WAN_14B = {"num_attention_heads": 40, "attention_head_dim": 128, "num_layers": 40}
WAN_480P = {"text": 512, "grid": (21, 60, 104)}

add("Wan2.1/2.2-14B T2V 480p 81f", "WanTransformer3DModel", SAGE_HUB, wan, TINY_WAN, SMALL_VIDEO, WAN_14B, WAN_480P)
add(
    "Wan2.1-14B I2V 480p 81f",
    "WanTransformer3DModel",
    SAGE_HUB,
    wan,
    {**TINY_WAN, "image_dim": 16, "added_kv_proj_dim": 256},
    {**SMALL_VIDEO, "image": 257},
    {**WAN_14B, "in_channels": 36, "image_dim": 1280, "added_kv_proj_dim": 5120},
    {**WAN_480P, "image": 257},
)
add(
    "Wan2.2-TI2V-5B 704p 121f",
    "WanTransformer3DModel",
    SAGE_HUB,
    wan,
    TINY_WAN,
    SMALL_VIDEO,
    {
        "num_attention_heads": 24,
        "attention_head_dim": 128,
        "num_layers": 30,
        "in_channels": 48,
        "out_channels": 48,
        "ffn_dim": 14336,
    },
    {"text": 512, "grid": (31, 44, 80)},
)
add(
    "Wan-VACE 14B 480p 81f",
    "WanVACETransformer3DModel",
    SAGE_HUB,
    wan,
    {**TINY_WAN, "vace_layers": [0], "vace_in_channels": 8},
    SMALL_VIDEO,
    WAN_14B,
    WAN_480P,
)
add(
    "SkyReels-V2 14B 540p 97f",
    "SkyReelsV2Transformer3DModel",
    SAGE_HUB,
    wan,
    TINY_WAN,
    SMALL_VIDEO,
    {**WAN_14B, "ffn_dim": 13824},
    {"text": 512, "grid": (25, 68, 120)},
)


# Without the channel of the padding mask, which asks for torchvision.
def cosmos(config, *, text, grid):
    return {
        "hidden_states": normal(1, config.in_channels, *grid),
        "timestep": HALFWAY,
        "encoder_hidden_states": normal(1, text, config.text_embed_dim),
    }


add(
    "Cosmos-Predict2 2B 1024",
    "CosmosTransformer3DModel",
    SAGE_HUB,
    cosmos,
    {
        "num_attention_heads": 2,
        "attention_head_dim": 128,
        "num_layers": 1,
        "in_channels": 4,
        "out_channels": 4,
        "text_embed_dim": 16,
        "adaln_lora_dim": 16,
        "mlp_ratio": 0.25,
        "extra_pos_embed_type": None,
        "concat_padding_mask": False,
    },
    {"text": 16, "grid": (1, 16, 16)},
    {
        "num_attention_heads": 16,
        "attention_head_dim": 128,
        "num_layers": 28,
        "rope_scale": (1.0, 4.0, 4.0),
        "extra_pos_embed_type": None,
        "concat_padding_mask": False,
    },
    {"text": 512, "grid": (1, 128, 128)},
)


def ltx(config, *, text, valid_text, grid):
    return {
        "hidden_states": normal(1, grid[0] * grid[1] * grid[2], config.in_channels),
        "encoder_hidden_states": normal(1, text, config.caption_channels),
        "timestep": torch.tensor([500]),
        "encoder_attention_mask": valid(1, text, valid_text),
        "num_frames": grid[0],
        "height": grid[1],
        "width": grid[2],
    }


add(
    "LTX-Video 0.9 704x480 161f",
    "LTXVideoTransformer3DModel",
    REPLACE_SDPA,
    ltx,
    {
        "num_attention_heads": 2,
        "attention_head_dim": 64,
        "cross_attention_dim": 128,
        "num_layers": 1,
        "in_channels": 8,
        "out_channels": 8,
        "caption_channels": 16,
    },
    {"text": 16, "valid_text": 9, "grid": (2, 4, 8)},
    {"num_attention_heads": 32, "attention_head_dim": 64, "num_layers": 28},
    {"text": 128, "valid_text": 60, "grid": (21, 15, 22)},
)


def ltx_2(config, *, text, valid_text, grid, audio):
    return ltx(config, text=text, valid_text=valid_text, grid=grid) | {
        "audio_hidden_states": normal(1, audio, config.audio_in_channels),
        "audio_encoder_hidden_states": normal(1, text, config.caption_channels),
        "audio_encoder_attention_mask": valid(1, text, valid_text),
        "audio_num_frames": audio,
    }


add(
    "LTX-2 768x512 121f",
    "LTX2VideoTransformer3DModel",
    REPLACE_SDPA,
    ltx_2,
    {
        "num_attention_heads": 2,
        "attention_head_dim": 128,
        "cross_attention_dim": 256,
        "audio_num_attention_heads": 2,
        "audio_attention_head_dim": 64,
        "audio_cross_attention_dim": 128,
        "num_layers": 1,
        "in_channels": 8,
        "out_channels": 8,
        "audio_in_channels": 8,
        "audio_out_channels": 8,
        "caption_channels": 16,
        "rope_double_precision": False,
    },
    {"text": 16, "valid_text": 9, "grid": (2, 4, 8), "audio": 20},
    {
        "num_attention_heads": 32,
        "attention_head_dim": 128,
        "audio_num_attention_heads": 32,
        "audio_attention_head_dim": 64,
        "num_layers": 48,
    },
    {"text": 1024, "valid_text": 60, "grid": (16, 16, 24), "audio": 126},
)


def hunyuan_video(config, *, text, valid_text, grid):
    return {
        "hidden_states": normal(1, config.in_channels, *grid),
        "timestep": torch.tensor([500]),
        "encoder_hidden_states": normal(1, text, config.text_embed_dim),
        "encoder_attention_mask": valid(1, text, valid_text),
        "pooled_projections": normal(1, config.pooled_projection_dim),
        "guidance": torch.tensor([6000.0]),
    }


add(
    "HunyuanVideo 544p 129f",
    "HunyuanVideoTransformer3DModel",
    REPLACE_SDPA,
    hunyuan_video,
    {
        **ONE_OF_EACH,
        "num_refiner_layers": 1,
        "in_channels": 4,
        "out_channels": 4,
        "text_embed_dim": 16,
        "pooled_projection_dim": 16,
    },
    {**SMALL_VIDEO, "valid_text": 9},
    {
        "num_layers": 20,
        "num_single_layers": 40,
        "num_refiner_layers": 2,
        "num_attention_heads": 24,
        "attention_head_dim": 128,
    },
    {"text": 256, "valid_text": 60, "grid": (33, 68, 120)},
)


def hunyuan_video_15(config, *, text, valid_text, glyphs, image, grid):
    return {
        "hidden_states": normal(1, config.in_channels, *grid),
        "timestep": torch.tensor([500.0], dtype=torch.bfloat16),
        "encoder_hidden_states": normal(1, text, config.text_embed_dim),
        "encoder_attention_mask": valid(1, text, valid_text),
        "encoder_hidden_states_2": normal(1, glyphs, config.text_embed_2_dim),
        "encoder_attention_mask_2": valid(1, glyphs, glyphs // 2),
        "image_embeds": normal(1, image, config.image_embed_dim),
    }


add(
    "HunyuanVideo-1.5 480p 121f",
    "HunyuanVideo15Transformer3DModel",
    REPLACE_SDPA,
    hunyuan_video_15,
    {
        "num_layers": 1,
        "num_refiner_layers": 1,
        "num_attention_heads": 2,
        "attention_head_dim": 128,
        "in_channels": 9,
        "out_channels": 4,
        "text_embed_dim": 16,
        "text_embed_2_dim": 16,
        "image_embed_dim": 16,
    },
    {"text": 16, "valid_text": 9, "glyphs": 8, "image": 9, "grid": (2, 4, 8)},
    {"num_layers": 54, "num_refiner_layers": 2, "num_attention_heads": 16, "attention_head_dim": 128},
    {"text": 1000, "valid_text": 60, "glyphs": 256, "image": 729, "grid": (31, 30, 53)},
)


def motif_video(config, *, text, valid_text, grid):
    return {
        "hidden_states": normal(1, config.in_channels, *grid),
        "timestep": torch.tensor([500]),
        "encoder_hidden_states": normal(1, text, config.text_embed_dim),
        "encoder_attention_mask": valid(1, text, valid_text),
    }


add(
    "Motif-Video 640x480 81f",
    "MotifVideoTransformer3DModel",
    REPLACE_SDPA,
    motif_video,
    {**ONE_OF_EACH, "in_channels": 9, "out_channels": 4, "text_embed_dim": 16},
    {**SMALL_VIDEO, "valid_text": 9},
    {"num_layers": 20, "num_single_layers": 40, "num_attention_heads": 24, "attention_head_dim": 128},
    {"text": 256, "valid_text": 60, "grid": (21, 60, 80)},
)


def kandinsky_5(config, *, text, grid):
    frames, height, width = grid
    return {
        "hidden_states": normal(1, *grid, 2 * config.in_visual_dim + 1),
        "encoder_hidden_states": normal(1, text, config.in_text_dim),
        "pooled_projections": normal(1, config.in_text_dim2),
        "timestep": torch.tensor([500.0]),
        "visual_rope_pos": [torch.arange(frames), torch.arange(height // 2), torch.arange(width // 2)],
        "text_rope_pos": torch.arange(text),
    }


add(
    "Kandinsky-5 lite 768x512 121f",
    "Kandinsky5Transformer3DModel",
    SAGE_HUB,
    kandinsky_5,
    {
        "model_dim": 128,
        "ff_dim": 32,
        "num_text_blocks": 1,
        "num_visual_blocks": 1,
        "in_visual_dim": 4,
        "out_visual_dim": 4,
        "in_text_dim": 16,
        "in_text_dim2": 16,
        "time_dim": 16,
        "visual_cond": True,
    },
    {"text": 16, "grid": (2, 8, 8)},
    {
        "model_dim": 1792,
        "ff_dim": 7168,
        "num_text_blocks": 2,
        "num_visual_blocks": 32,
        "in_visual_dim": 16,
        "out_visual_dim": 16,
        "visual_cond": True,
    },
    {"text": 200, "grid": (31, 64, 96)},
)


def mochi(config, *, text, valid_text, grid):
    return {
        "hidden_states": normal(1, config.in_channels, *grid),
        "encoder_hidden_states": normal(1, text, config.text_embed_dim),
        "encoder_attention_mask": valid(1, text, valid_text),
        "timestep": torch.tensor([500]),
    }


add(
    "Mochi 848x480 163f",
    "MochiTransformer3DModel",
    REPLACE_SDPA,
    mochi,
    {
        "num_layers": 2,
        "num_attention_heads": 2,
        "attention_head_dim": 128,
        "in_channels": 4,
        "pooled_projection_dim": 32,
        "text_embed_dim": 16,
        "time_embed_dim": 16,
    },
    {"text": 16, "valid_text": 9, "grid": (2, 8, 16)},
    {"num_layers": 48, "num_attention_heads": 24, "attention_head_dim": 128},
    {"text": 256, "valid_text": 40, "grid": (28, 60, 106)},
)


def cogvideox(config, *, text, grid, batch=2):
    frames, *area = grid
    return {
        "hidden_states": normal(batch, frames, config.in_channels, *area),
        "encoder_hidden_states": normal(batch, text, config.text_embed_dim),
        "timestep": torch.tensor([500]).expand(batch),
    }


add(
    "CogVideoX-5B 720x480 49f, with guidance",
    "CogVideoXTransformer3DModel",
    REPLACE_SDPA,
    cogvideox,
    {
        "num_layers": 1,
        "num_attention_heads": 2,
        "attention_head_dim": 64,
        "in_channels": 4,
        "out_channels": 4,
        "time_embed_dim": 16,
        "text_embed_dim": 16,
        "sample_width": 8,
        "sample_height": 8,
        "sample_frames": 5,
        "max_text_seq_length": 16,
    },
    {"text": 16, "grid": (2, 8, 8)},
    {
        "num_layers": 42,
        "num_attention_heads": 48,
        "attention_head_dim": 64,
        "use_rotary_positional_embeddings": True,
    },
    {"text": 226, "grid": (13, 60, 90)},
)


def allegro(config, *, text, valid_text, grid, batch=2):
    return {
        "hidden_states": normal(batch, config.in_channels, *grid),
        "encoder_hidden_states": normal(batch, text, config.caption_channels),
        "attention_mask": torch.ones(batch, *grid, dtype=torch.bfloat16),
        "encoder_attention_mask": valid(batch, text, valid_text).long(),
        "timestep": torch.tensor([500]).expand(batch),
    }


add(
    "Allegro 1280x720 88f, with guidance",
    "AllegroTransformer3DModel",
    REPLACE_SDPA,
    allegro,
    {
        "num_layers": 1,
        "num_attention_heads": 2,
        "attention_head_dim": 96,
        "cross_attention_dim": 192,
        "caption_channels": 16,
        "sample_height": 8,
        "sample_width": 8,
        "sample_frames": 2,
    },
    {"text": 16, "valid_text": 9, "grid": (2, 8, 8)},
    {"num_layers": 32, "num_attention_heads": 24, "attention_head_dim": 96},
    {"text": 512, "valid_text": 60, "grid": (22, 90, 160)},
)


# Sound


def ace_step(config, *, text, length):
    acoustic = config.audio_acoustic_hidden_dim
    return {
        "hidden_states": normal(1, length, acoustic),
        "context_latents": normal(1, length, config.in_channels - acoustic),
        "encoder_hidden_states": normal(1, text, config.encoder_hidden_size or config.hidden_size),
        "timestep": HALFWAY.bfloat16(),
        "timestep_r": HALFWAY.bfloat16(),
    }


add(
    "ACE-Step 1.5, 120 s",
    "AceStepTransformer1DModel",
    REPLACE_SDPA,
    ace_step,
    {
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 128,
        "hidden_size": 64,
        "intermediate_size": 32,
        "in_channels": 12,
        "audio_acoustic_hidden_dim": 4,
        "sliding_window": 16,
    },
    {"text": 16, "length": 128},
    {
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "hidden_size": 2048,
    },
    {"text": 512, "length": 3000},
)
