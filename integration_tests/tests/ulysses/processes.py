# SPDX-License-Identifier: MIT
"""Starts the ranks of one backend and collects their reports."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from diffusers_patch.recipes import RECIPES
from integration_tests.harness import hub_delivery
from integration_tests.harness import patched_diffusers as patched
from integration_tests.harness import variant_delivery as loaded_variant
from integration_tests.paths import REPOSITORY
from integration_tests.tests.ulysses.cases import ATTEMPTS, Case

RANKS = 4


@dataclass(frozen=True)
class Reports:
    """What each rank of one backend has saved (`rank.py`)."""

    backend: str
    of_ranks: list[dict]

    def of(self, case: Case) -> list[dict]:
        """The results of one case, in rank order."""
        return [report["cases"][str(case)] for report in self.of_ranks[: case.degree]]

    def attempts(self, name: str) -> list[dict]:
        """The outcomes of one attempt, in rank order."""
        return [report["attempts"][name] for report in self.of_ranks[: ATTEMPTS[name].degree]]

    @property
    def relative_l2(self) -> float:
        """How far the model may be from SDPA."""
        return self.of_ranks[0]["bounds"]["relative_l2"]

    @property
    def rounding(self) -> float:
        """How far two models with correct attentions may be apart."""
        return self.of_ranks[0]["bounds"]["rounding"]


def run_ranks(backend: str, folder: Path) -> Reports:
    """Runs all cases of `backend`. RuntimeError with the first failed rank's output; the others are then stopped."""
    variant = []
    # Built here once, so that the ranks only read it.
    if backend == "aiter_sage_hub":
        patched.patched_diffusers(*RECIPES)
        variant = [str(hub_delivery.built_variant())]
    elif backend == "aiter_sage":
        patched.patched_diffusers("aiter_backend")
    elif backend == "sage_hub":
        variant = [str(loaded_variant.built_variant())]
    command = [sys.executable, "-m", "integration_tests.tests.ulysses.rank", backend]
    # A patched diffusers that the tests' own process may have on its path is not for a backend of unmodified diffusers.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    processes, outputs = [], []
    try:
        for rank in range(RANKS):
            outputs.append((folder / f"{rank}.log").open("w+"))
            arguments = [*command, str(rank), str(folder), *variant]
            processes.append(
                subprocess.Popen(arguments, cwd=REPOSITORY, env=environment, stdout=outputs[-1], stderr=outputs[-1])
            )
        while None in (codes := [process.poll() for process in processes]) and not any(codes):
            time.sleep(0.1)
        for rank, process in enumerate(processes):
            if process.returncode:
                raise RuntimeError(f"rank {rank} of {backend}:\n{(folder / f'{rank}.log').read_text()[-6000:]}")
    finally:
        for process, output in zip(processes, outputs, strict=True):
            process.kill()
            process.wait()
            output.close()
    return Reports(backend, [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(RANKS)])
