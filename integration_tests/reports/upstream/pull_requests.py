# SPDX-License-Identifier: MIT
"""The three pull requests to code: where each goes, its commits, the edits it makes, and where its text is."""

import datetime
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from aiter_op import recipe as aiter_recipe
from diffusers_patch.edits import plan
from diffusers_patch.recipes import RECIPES
from integration_tests.reports.upstream.git_series import Commit


@dataclass(frozen=True)
class PullRequest:
    """One pull request.

    `folder` is its place in dist/upstream, `template` its text (from the root of this repository). `edit(tree, author)`
    edits a checkout of upstream.
    """

    folder: str
    upstream: str
    title: str
    branch: str
    template: str
    commits: tuple[Commit, ...]
    edit: Callable[[Path, str], None]


def _diffusers(recipe: str) -> Callable[[Path, str], None]:
    return lambda tree, _author: plan(RECIPES[recipe](), tree).apply()


def _diffusers_commits(backend: str, kernel: str) -> tuple[Commit, ...]:
    return (
        Commit(
            f"Add the {backend} attention backend",
            f"It runs {kernel} on AMD gfx1201:\ninference only, self-attention in bfloat16 with a head "
            "dimension of 128.\nOpt-in; everything else is refused.",
            lambda file: file.startswith("src/"),
        ),
        Commit(
            f"Document the {backend} attention backend",
            "How to choose it, what it refuses, and the order in which to set MiniMax-H3's components.",
            lambda file: file.startswith("docs/"),
        ),
        Commit(
            f"Test the {backend} attention backend",
            "Refusals run anywhere; parity with SDPA runs on gfx1201 only.",
            lambda file: file.startswith("tests/"),
        ),
    )


def add_copyright_lines(tree: Path, author: str) -> None:
    """Gives each file that is new to aiter the copyright line that aiter asks for, after the SPDX line."""
    for new_file in aiter_recipe.main_recipe().new_files:
        path = tree / new_file.file
        first, rest = path.read_text("utf-8").split("\n", 1)
        comment = first.split(" SPDX-", 1)[0]
        path.write_text(f"{first}\n{comment} Copyright (C) {datetime.date.today().year}, {author}.\n{rest}", "utf-8")


def _edit_aiter(tree: Path, author: str) -> None:
    aiter_recipe.plan_for(tree).apply()
    add_copyright_lines(tree, author)
    format_headers(tree, [tree / new_file.file for new_file in aiter_recipe.main_recipe().new_files])


def format_headers(tree: Path, files: list[Path]) -> None:
    """clang-format of the headers among `files` with the tree's own settings, as aiter's pre-commit hook does."""
    headers = [str(path) for path in files if path.suffix == ".h"]
    subprocess.run(["clang-format", "-i", "--style=file", *headers], cwd=tree, check=True)


PREBUILD_FILE = "aiter/jit/core.py"

PULL_REQUESTS = (
    PullRequest(
        folder="aiter",
        upstream="ROCm/aiter",
        # The tags that aiter's own workflow derives from the changed paths: csrc/ and aiter/jit/.
        title="[HIP] [JIT] Add SageAttention for gfx1201 (INT8 QK, FP8 PV)",
        branch="gfx1201-sage-attention",
        template="aiter_op/pull_request.md.j2",
        commits=(
            Commit(
                "[JIT] Prebuild modules of one architecture only for it",
                'A module may name its "archs" in optCompilerConfig.json; wheels for others leave it out.',
                lambda file: file == PREBUILD_FILE,
            ),
            Commit(
                "[HIP] [JIT] Add SageAttention for gfx1201 (INT8 QK, FP8 PV)",
                "aiter.gfx1201_sage_attention(q, k, v, softmax_scale): bfloat16 [batch, sequence, heads, 128], equal\n"
                "shapes, no mask, not causal, forward only. Quantisation happens inside the operator.",
                lambda file: file != PREBUILD_FILE,
            ),
        ),
        edit=_edit_aiter,
    ),
    PullRequest(
        folder="diffusers-option1",
        upstream="huggingface/diffusers",
        title="[attention] Add `aiter_sage`: SageAttention on AMD gfx1201 through aiter",
        branch="aiter-sage-backend",
        template="diffusers_patch/pull_requests/option1.md.j2",
        commits=_diffusers_commits("aiter_sage", "aiter's gfx1201_sage_attention"),
        edit=_diffusers("aiter_backend"),
    ),
    PullRequest(
        folder="diffusers-option2",
        upstream="huggingface/diffusers",
        title="[attention] Add `aiter_sage_hub`: SageAttention on AMD gfx1201 from a Hub kernel",
        branch="aiter-sage-hub-backend",
        template="diffusers_patch/pull_requests/option2.md.j2",
        commits=_diffusers_commits("aiter_sage_hub", "the gfx1201-sage-attention Hub kernel"),
        edit=_diffusers("hub_backend"),
    ),
)
