# SPDX-License-Identifier: MIT
"""Encodes the prompt once, in a process that then gives the text encoder's memory back.

    python -m integration_tests.reports.compare_h3.encode_prompt CASE DEVICE

The released text encoder is larger than one of these GPUs, so DEVICE is `cpu` unless something else is asked for.
"""

import sys
from pathlib import Path

import torch
from diffusers import MiniMaxH3ModularPipeline
from diffusers.modular_pipelines.minimax_h3 import MiniMaxH3Blocks
from safetensors.torch import save_file

from integration_tests.reports.compare_h3.case import Case, write_atomically

OUTPUTS = ["prompt_embeds", "text_token_tags"]


def encode(case: Case, device: str) -> None:
    blocks = MiniMaxH3Blocks().get_workflow("t2va").sub_blocks["text_encoder"]
    pipe = MiniMaxH3ModularPipeline(blocks=blocks, pretrained_model_name_or_path=str(case.checkpoint))
    pipe.load_components(dtype=torch.bfloat16)
    pipe.text_encoder.to(device)
    outputs = pipe(prompt=case.settings.prompt, output=OUTPUTS)
    tensors = {name: outputs[name].cpu().contiguous() for name in OUTPUTS}
    write_atomically(case.prompt_file, lambda path: save_file(tensors, path))


if __name__ == "__main__":
    encode(Case(Path(sys.argv[1])), sys.argv[2])
