# SPDX-License-Identifier: MIT
"""diffusers' own MiniMax-H3 pipeline with a denoising loop that measures each step and can go on after any.

Import this after `backends.make_available`.
"""

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist
from diffusers import ContextParallelConfig, MiniMaxH3ModularPipeline, MiniMaxH3Transformer3DModel
from diffusers.models.transformers import transformer_minimax_h3
from diffusers.modular_pipelines.minimax_h3 import MiniMaxH3Blocks
from diffusers.modular_pipelines.minimax_h3.decoders import MiniMaxH3AudioDecodeStep, MiniMaxH3VideoDecodeStep
from diffusers.modular_pipelines.minimax_h3.denoise import MiniMaxH3DenoiseStep
from torch.distributed.fsdp import fully_shard
from tqdm import tqdm

from integration_tests.reports.compare_h3.backends import NATIVE
from integration_tests.reports.compare_h3.case import Case, Step
from integration_tests.reports.compare_h3.device import Gpu, VirtualDevice

LATENTS = ("latents", "audio_latents")


def load_pipeline(case: Case, backend: str, device: VirtualDevice | Gpu) -> MiniMaxH3ModularPipeline:
    """The checkpoint's text-to-video-and-audio pipeline without the text encoder, on `device`, with `backend` set.

    The transformer is loaded only when steps are missing. Ranks other than the first decode nothing.
    """
    settings = case.settings
    blocks = MiniMaxH3Blocks().get_workflow("t2va")
    blocks.sub_blocks.pop("text_encoder")
    if device.rank:
        blocks.sub_blocks["decode.video"] = NoVideoDecode()
        blocks.sub_blocks["decode.audio"] = NoAudioDecode()
    blocks.sub_blocks["denoise.denoise"] = MeasuredDenoise(case, backend, device)
    pipe = MiniMaxH3ModularPipeline(blocks=blocks, pretrained_model_name_or_path=str(case.checkpoint))
    complete = len(case.backend(backend).steps()) == settings.steps
    names = [name for name in pipe.pretrained_component_names if not (complete and name == "transformer")]
    pipe.load_components(names=names, dtype=torch.bfloat16)

    # The order that docs/using_with_diffusers.md asks for: the autoencoders first, because setting the transformer's
    # backend sets the process's too, and they attend in ways that the kernel refuses.
    for name in ("vae", "audio_vae"):
        if model := getattr(pipe, name, None):
            model.set_attention_backend(NATIVE)
            model.to(device.torch_device)
    if not complete:
        pipe.transformer.set_attention_backend(backend)
        place(pipe.transformer, settings.weights, device.torch_device)
    return pipe


def place(transformer: MiniMaxH3Transformer3DModel, weights: str, device: torch.device) -> None:
    """Puts the weights where `weights` says: whole on each GPU, sharded over all of them, or kept in host memory."""
    if weights == "offloaded":
        transformer.enable_group_offload(
            onload_device=device, offload_type="block_level", num_blocks_per_group=1, use_stream=device.type == "cuda"
        )
        return
    if weights == "sharded":
        # Blocks only: what is left of the model mixes float32 and bfloat16, which one shard group cannot.
        mesh = dist.device_mesh.init_device_mesh(device.type, (dist.get_world_size(),))
        for block in [*transformer.token_refiner.refiner_blocks, *transformer.transformer_blocks]:
            fully_shard(block, mesh=mesh, reshard_after_forward=True)
    transformer.to(device)


class NoVideoDecode(MiniMaxH3VideoDecodeStep):
    """Decodes nothing, but has the pipeline load the autoencoder: the latents' geometry is read from it."""

    def __call__(self, components, state):
        return components, state


class NoAudioDecode(MiniMaxH3AudioDecodeStep):
    """The same of the soundtrack."""

    def __call__(self, components, state):
        return components, state


class MeasuredDenoise(MiniMaxH3DenoiseStep):
    """The pipeline's denoising loop, which saves latents and figures after each step and skips the steps it finds."""

    def __init__(self, case: Case, backend: str, device: VirtualDevice | Gpu):
        super().__init__()
        self._settings, self._results, self._device = case.settings, case.backend(backend), device

    @torch.no_grad()
    def __call__(self, components, state):
        block_state = self.get_block_state(state)
        total, done = len(block_state.timesteps), len(self._results.steps())
        if total != self._settings.steps:
            raise RuntimeError(f"The schedule has {total} steps, not the {self._settings.steps} that were asked for.")
        # The block has to leave these, also when there is no step left that would.
        block_state.noise_pred = block_state.audio_noise_pred = None
        if done:
            for name, tensor in self._results.latents(done - 1).items():
                setattr(block_state, name, tensor.to(self._device.torch_device))
            components.scheduler.set_begin_index(done)
            components.audio_scheduler.set_begin_index(done)
        if self._settings.gpus > 1 and done < total:
            shard_sequence(components.transformer, len(block_state.denoiser_input_fields["token_tags"]))
        hidden = self._device.rank != 0
        for i in tqdm(range(done, total), self._results.name, initial=done, total=total, unit="step", disable=hidden):
            components, block_state = self._measured_step(components, block_state, i)
        self.set_block_state(state, block_state)
        return components, state

    def _measured_step(self, components, block_state, i: int):
        device = self._device
        device.begin_step()
        with attention_spans(device) as spans:
            start = device.mark()
            components, block_state = self.loop_step(components, block_state, i=i, t=block_state.timesteps[i])
            end = device.mark()
        step = Step(
            step=i,
            seconds=device.seconds(start, end),
            attention_seconds=sum(device.seconds(*span) for span in spans),
            attention_calls=len(spans),
            **device.end_step(),
        )
        if device.rank == 0:
            self._results.save_step(step, {name: getattr(block_state, name) for name in LATENTS})
        return components, block_state


def shard_sequence(transformer: MiniMaxH3Transformer3DModel, length: int) -> None:
    """Ulysses over all ranks; in its "anything" mode only where rows or heads do not divide."""
    ranks = dist.get_world_size()
    uneven = bool(length % ranks or transformer.config.num_attention_heads % ranks)
    config = ContextParallelConfig(ulysses_degree=ranks, ulysses_anything=uneven)
    transformer.enable_parallelism(config=config)


@contextlib.contextmanager
def attention_spans(device: VirtualDevice | Gpu) -> Iterator[list[tuple]]:
    """The begin and end marks of each attention call of the transformer, Ulysses' all-to-alls included."""
    dispatch = transformer_minimax_h3.dispatch_attention_fn
    spans: list[tuple] = []

    def measured_dispatch(*arguments, **keywords) -> torch.Tensor:
        start = device.mark()
        out = dispatch(*arguments, **keywords)
        spans.append((start, device.mark()))
        return out

    transformer_minimax_h3.dispatch_attention_fn = measured_dispatch
    try:
        yield spans
    finally:
        transformer_minimax_h3.dispatch_attention_fn = dispatch
