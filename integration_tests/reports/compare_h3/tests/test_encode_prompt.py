# SPDX-License-Identifier: MIT
"""The prompt's embeddings come from diffusers' own text step and a Qwen3-VL, here a random one of 51 thin layers."""

from types import SimpleNamespace

import torch

from integration_tests.reports.compare_h3.case import GPU, Case, Settings

SETTINGS = Settings(GPU, "nowhere", 1, "whole", 8, 0, "five words of a prompt", 768, 1344, 124, "0" * 64, {})
HIDDEN = 16


def thin_text_encoder():
    """MiniMax-H3 reads the hidden state after 50 layers and asks for one layer more."""
    from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

    text = {
        "vocab_size": 32,
        "hidden_size": HIDDEN,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": 51,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "rope_scaling": {"rope_type": "default", "mrope_section": [2, 1, 1]},
    }
    vision = {
        "depth": 1,
        "hidden_size": HIDDEN,
        "intermediate_size": HIDDEN,
        "num_heads": 2,
        "out_hidden_size": HIDDEN,
        "deepstack_visual_indexes": [0],
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Qwen3VLForConditionalGeneration(Qwen3VLConfig(text_config=text, vision_config=vision)).bfloat16().eval()


def test_prompt_is_encoded_into_the_file_that_every_backend_reads(tmp_path, monkeypatch):
    from diffusers import MiniMaxH3ModularPipeline

    from integration_tests.reports.compare_h3.encode_prompt import encode

    def load_components(self, **options):
        # The tokenizer and its processor are the released ones' files, which a test has not.
        self.text_encoder = thin_text_encoder()
        self.tokenizer = lambda text, **_: {"input_ids": [len(word) for word in text.split()]}
        self.processor = SimpleNamespace(create_mm_token_type_ids=lambda rows: [[0] * len(row) for row in rows])

    def init(self, blocks, pretrained_model_name_or_path):
        assert pretrained_model_name_or_path == "nowhere"
        original_init(self, blocks=blocks)

    original_init = MiniMaxH3ModularPipeline.__init__
    monkeypatch.setattr(MiniMaxH3ModularPipeline, "__init__", init)
    monkeypatch.setattr(MiniMaxH3ModularPipeline, "load_components", load_components)
    case = Case.open(tmp_path, SETTINGS)
    encode(case, "cpu")
    tensors = case.prompt_tensors()
    assert tensors["prompt_embeds"].shape == (1, 5, HIDDEN) and tensors["prompt_embeds"].dtype == torch.bfloat16
    assert torch.isfinite(tensors["prompt_embeds"]).all()
    assert tensors["text_token_tags"].tolist() == [1] * 5
