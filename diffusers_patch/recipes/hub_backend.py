# SPDX-License-Identifier: MIT
"""`aiter_sage_hub`: the Hub kernel as a diffusers attention backend."""

import tomllib
from pathlib import Path

from diffusers_patch.additions import definitions, prose
from diffusers_patch.edits import Edit, Recipe
from diffusers_patch.recipes.shared import CHECK, DISPATCHER, GUIDE, PACKAGE, UPSTREAM_TESTS, minimax_h3_guide

_BUILD_TOML = Path(__file__).parents[2] / "hub_kernel" / "build.toml"


def hub_kernel() -> tuple[str, int]:
    """The Hub repository of the kernel and its version, from the kernel's own metadata."""
    general = tomllib.loads(_BUILD_TOML.read_text("utf-8"))["general"]
    return general["hub"]["repo-id"], general["version"]


def recipe() -> Recipe:
    """The recipe against the Hub repository and version that `hub_kernel/build.toml` names."""
    repo_id, version = hub_kernel()
    return Recipe(
        name="hub_backend",
        package=PACKAGE,
        marker="aiter_sage_hub",
        edits=(*_registration(repo_id, version), *_functions(), *_guide(repo_id), *UPSTREAM_TESTS),
    )


def _registration(repo_id: str, version: int) -> tuple[Edit, ...]:
    return (
        Edit(
            file=DISPATCHER,
            scope="AttentionBackendName",
            anchor='    AITER_FA2_HUB = "aiter_fa2_hub"',
            place="after",
            text=(
                f"    # SageAttention for gfx1201 (via the `{repo_id}` Hub kernel)\n"
                '    AITER_SAGE_HUB = "aiter_sage_hub"\n'
            ),
            reason="name of the backend",
        ),
        Edit(
            file=DISPATCHER,
            scope="_HUB_KERNELS_REGISTRY",
            # Before its neighbour, because no line that closes an entry is unique.
            anchor="    AttentionBackendName.AITER_FA2_HUB: _HubKernelConfig(",
            place="before",
            text=(
                "    AttentionBackendName.AITER_SAGE_HUB: _HubKernelConfig(\n"
                f'        repo_id="{repo_id}",\n'
                '        function_attr="gfx1201_sage_attention",\n'
                f"        version={version},\n"
                "    ),\n"
            ),
            reason="where the kernel is on the Hub",
        ),
        Edit(
            file=DISPATCHER,
            scope="_check_attention_backend_requirements",
            anchor="        AttentionBackendName.AITER_FA2_HUB,",
            place="after",
            text="        AttentionBackendName.AITER_SAGE_HUB,\n",
            reason="needs the `kernels` package",
        ),
        Edit(
            file=DISPATCHER,
            scope="_check_attention_backend_requirements",
            anchor='        if backend == AttentionBackendName.FLASH_4_HUB and not is_kernels_version(">=", "0.12.3"):',
            place="before",
            text=(
                "        if backend == AttentionBackendName.AITER_SAGE_HUB:\n"
                "            _check_aiter_sage_device(backend)\n\n"
            ),
            reason="needs the GPU",
        ),
    )


def _functions() -> tuple[Edit, ...]:
    return (
        CHECK,
        Edit(
            file=DISPATCHER,
            scope="_sage_attention_backward_op",
            anchor='    raise NotImplementedError("Backward pass is not implemented for Sage attention.")',
            place="after",
            text="\n\n" + definitions("aiter_sage_hub_forward"),
            reason="forward op for context parallelism",
        ),
        Edit(
            file=DISPATCHER,
            scope="_aiter_flash_attention",
            anchor="    return out",
            place="after",
            text="\n\n" + definitions("aiter_sage_hub_backend"),
            reason="the backend",
        ),
    )


def _guide(repo_id: str) -> tuple[Edit, ...]:
    return (
        Edit(
            file=GUIDE,
            scope="## Checks",
            anchor="## Checks",
            place="before",
            text=prose("aiter_sage_hub_section").replace("{repo_id}", repo_id),
            reason="how to use the backend, and the order in which to set it",
            optional=True,
        ),
        Edit(
            file=GUIDE,
            scope="## Available backends",
            anchor=(
                "| `aiter_fa2_hub` | [AI Tensor Engine for ROCm](https://github.com/ROCm/aiter) "
                "| FlashAttention-2 for AMD ROCm from kernels |"
            ),
            place="after",
            text=(
                f"| `aiter_sage_hub` | [{repo_id}](https://huggingface.co/{repo_id}) "
                "| SageAttention (INT8 QK, FP8 PV) for AMD gfx1201 from kernels |\n"
            ),
            reason="row in the table of backends",
            optional=True,
        ),
        minimax_h3_guide("aiter_sage_hub", "SageAttention on RDNA4", before="## Text and keyframes"),
    )
