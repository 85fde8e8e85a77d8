# SPDX-License-Identifier: MIT
"""One backend's generation, in a process of its own (one per GPU): denoises step by step, then decodes.

    python -m integration_tests.reports.compare_h3.generate CASE BACKEND

Goes on after the last complete step of an earlier run.
"""

import argparse
import sys
from importlib.metadata import version
from pathlib import Path

import torch
import torch.distributed as dist

from integration_tests.reports.compare_h3 import backends
from integration_tests.reports.compare_h3.case import Case
from integration_tests.reports.compare_h3.device import Gpu, VirtualDevice, open_device


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", type=Path)
    parser.add_argument("backend")
    arguments = parser.parse_args()
    case = Case(arguments.case)
    device = open_device(case.settings.device)
    with device.active():
        if reason := make_available_in_turn(arguments.backend, device):
            if device.rank == 0:
                case.backend(arguments.backend).save_facts({"skipped": reason})
            return 0
        with device.context_parallel():
            generate(case, arguments.backend, device)
    return 0


def make_available_in_turn(backend: str, device: VirtualDevice | Gpu) -> str | None:
    """The first rank builds and copies what is missing, the others then find it. Why the backend cannot run, if so."""
    reason = None
    for turn in (True, False):
        if (device.rank == 0) == turn:
            try:
                backends.make_available(backend, device)
            except backends.Unavailable as error:
                reason = str(error)
        if dist.is_initialized():
            dist.barrier()
    return reason


def generate(case: Case, name: str, device: VirtualDevice | Gpu) -> None:
    """Measures what `case` still lacks of this backend."""
    # diffusers is the patched copy or the installed one from here on.
    from integration_tests.reports.compare_h3.pipeline import load_pipeline

    settings, results = case.settings, case.backend(name)
    first = device.rank == 0
    if first:
        facts = device.facts() | {"gpus": settings.gpus, "torch": torch.__version__, "diffusers": version("diffusers")}
        results.save_facts(facts)
    pipe = load_pipeline(case, name, device)
    prompt = case.prompt_tensors()
    state = pipe(
        # As the text encoder's step leaves them: the embeddings on the device, the tags not.
        prompt_embeds=prompt["prompt_embeds"].to(device.torch_device),
        text_token_tags=prompt["text_token_tags"],
        height=settings.height,
        width=settings.width,
        num_frames=settings.frames,
        # The scheduler counts the end of the schedule as a step, at which nothing is evaluated.
        num_inference_steps=settings.steps + 1,
        # The same noise on every device and every rank.
        generator=torch.Generator().manual_seed(settings.seed),
        output_type="np",
    )
    if first:
        results.save_frames(state.get("videos")[0])


if __name__ == "__main__":
    sys.exit(main())
