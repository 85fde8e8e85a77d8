# SPDX-License-Identifier: MIT
"""What one comparison has measured so far, as files: the reason that a run can be interrupted and goes on later.

CASE/settings.json                what is compared; another setting is another folder
CASE/small_checkpoint/            the small random model, unless a checkpoint is given
CASE/prompt.safetensors           the text embeddings that every backend gets
CASE/BACKEND/backend.json         where it ran, or why it did not
CASE/BACKEND/step-00.json         one denoising step's figures, written when the step is complete
CASE/BACKEND/step-00.safetensors  the latents after it: what the next step starts from
CASE/BACKEND/frames.npy           the decoded video, 8 bits a channel
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

VIRTUAL, GPU = "virtual", "gpu"


@dataclass(frozen=True)
class Settings:
    """Everything that decides the result. `kernel` is the code object's sha256; no `checkpoint`: the small model."""

    device: str
    checkpoint: str | None
    gpus: int
    weights: str
    steps: int
    seed: int
    prompt: str
    height: int
    width: int
    frames: int
    kernel: str
    versions: dict[str, str]


@dataclass(frozen=True)
class Step:
    """One evaluation of the transformer and the scheduler's step.

    `peak_bytes` is the highest use of tensor memory above what was held when the step began, so weights are not in it;
    `total_peak_bytes` includes them and is known on a GPU only. `kernel_launches` is known on the virtual device only.
    With several GPUs the times are rank 0's and the memory is the largest of all ranks.
    """

    step: int
    seconds: float
    attention_seconds: float
    attention_calls: int
    peak_bytes: int
    total_peak_bytes: int | None
    kernel_launches: int | None


class Backend:
    """The results of one backend."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.name = folder.name

    def steps(self) -> list[Step]:
        """The steps that are complete, from the first on without a gap."""
        found = []
        while (record := self._step(len(found), "json")).exists():
            found.append(Step(**json.loads(record.read_text())))
        return found

    def save_step(self, step: Step, latents: dict[str, torch.Tensor]) -> None:
        """The record comes last: where there is one, its latents are complete."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in latents.items()}
        write_atomically(self._step(step.step, "safetensors"), lambda path: save_file(tensors, path))
        write_json(self._step(step.step, "json"), asdict(step))

    def latents(self, step: int) -> dict[str, torch.Tensor]:
        return load_file(self._step(step, "safetensors"))

    def save_frames(self, frames: np.ndarray) -> None:
        """`frames`: [frames, height, width, 3] of values from 0 to 1."""

        def save(path: Path) -> None:
            with path.open("wb") as file:
                np.save(file, np.round(frames * 255).astype(np.uint8))

        write_atomically(self.folder / "frames.npy", save)

    def frames(self) -> np.ndarray | None:
        path = self.folder / "frames.npy"
        return np.load(path, mmap_mode="r") if path.exists() else None

    def save_facts(self, facts: dict) -> None:
        """What machine and software this backend ran on, or `skipped`: why it did not run."""
        write_json(self.folder / "backend.json", facts)

    def facts(self) -> dict:
        path = self.folder / "backend.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def _step(self, step: int, kind: str) -> Path:
        return self.folder / f"step-{step:02}.{kind}"


class Case:
    """One comparison's folder."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.settings = Settings(**json.loads((folder / "settings.json").read_text()))

    @classmethod
    def open(cls, root: Path, settings: Settings, fresh: bool = False) -> "Case":
        """The folder of these settings under `root`: an earlier run's, unless `fresh`."""
        contents = json.dumps(asdict(settings), sort_keys=True)
        folder = root / f"{settings.device}-{hashlib.sha256(contents.encode()).hexdigest()[:12]}"
        if fresh:
            shutil.rmtree(folder, ignore_errors=True)
        write_json(folder / "settings.json", asdict(settings))
        return cls(folder)

    def is_complete(self, name: str) -> bool:
        """Whether nothing of this backend is left to run."""
        results = self.backend(name)
        return len(results.steps()) == self.settings.steps and results.frames() is not None

    def backend(self, name: str) -> Backend:
        if not re.fullmatch(r"\w+", name):
            raise ValueError(f"A backend's name is one word, got {name!r}.")
        return Backend(self.folder / name)

    @property
    def checkpoint(self) -> Path:
        """The given checkpoint, or the small one that this folder holds."""
        return Path(self.settings.checkpoint) if self.settings.checkpoint else self.folder / "small_checkpoint"

    @property
    def prompt_file(self) -> Path:
        return self.folder / "prompt.safetensors"

    def prompt_tensors(self) -> dict[str, torch.Tensor]:
        """The text encoder's outputs, under the names of the pipeline's inputs."""
        return load_file(self.prompt_file)


def write_json(path: Path, value: dict) -> None:
    write_atomically(path, lambda temporary: temporary.write_text(json.dumps(value, indent=1) + "\n"))


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Lets `write` fill a file beside `path`, which then takes its place: a reader sees all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
