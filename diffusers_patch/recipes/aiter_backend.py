# SPDX-License-Identifier: MIT
"""`aiter_sage`: aiter's operator as a diffusers attention backend.

Applies beside `hub_backend`, in either order: no edit of one stands between an anchor and an edit of the other.
The refusals and the tests are one text for both. Backend and forward op are not: each names the kernel that it calls,
as all of upstream's do, and one that looked it up would be longer than the two.
"""

from diffusers_patch.additions import definitions, prose
from diffusers_patch.edits import Edit, Recipe
from diffusers_patch.recipes.shared import CHECK, DISPATCHER, GUIDE, PACKAGE, UPSTREAM_TESTS, minimax_h3_guide


def recipe() -> Recipe:
    """The recipe for any aiter that has the operator."""
    edits = (*_registration(), *_functions(), *_guide(), *UPSTREAM_TESTS)
    return Recipe(name="aiter_backend", package=PACKAGE, marker="aiter_sage", edits=edits)


def _registration() -> tuple[Edit, ...]:
    return (
        Edit(
            file=DISPATCHER,
            scope="",
            anchor="# Version guard for PyTorch compatibility - custom_op was added in PyTorch 2.4",
            place="before",
            text="# aiter's operator, imported by `_load_aiter_sage_attention`.\naiter_sage_attention = None\n\n\n",
            reason="the operator, once the backend is chosen",
        ),
        Edit(
            file=DISPATCHER,
            scope="AttentionBackendName",
            anchor="    # PyTorch native",
            place="before",
            text='    # SageAttention for gfx1201 (via `amd-aiter`)\n    AITER_SAGE = "aiter_sage"\n\n',
            reason="name of the backend",
        ),
        Edit(
            file=DISPATCHER,
            scope="_check_attention_backend_requirements",
            anchor="    elif backend in [AttentionBackendName._FLASH_3, AttentionBackendName._FLASH_VARLEN_3]:",
            place="before",
            text=(
                "    elif backend == AttentionBackendName.AITER_SAGE:\n"
                "        _check_aiter_sage_device(backend)\n"
                "        _load_aiter_sage_attention()\n\n"
            ),
            reason="what it needs",
        ),
    )


def _functions() -> tuple[Edit, ...]:
    return (
        CHECK,
        Edit(
            file=DISPATCHER,
            scope="_sage_attention_backward_op",
            anchor="def _sage_attention_backward_op(",
            place="before",
            text=definitions("aiter_sage_forward") + "\n\n",
            reason="forward op for context parallelism",
        ),
        Edit(
            file=DISPATCHER,
            scope="_aiter_flash_attention",
            anchor="@_AttentionBackendRegistry.register(",
            place="before",
            text=definitions("aiter_sage_backend") + "\n\n",
            reason="the backend",
        ),
    )


def _guide() -> tuple[Edit, ...]:
    return (
        Edit(
            file=GUIDE,
            scope="## Available backends",
            anchor="## Available backends",
            place="before",
            text=prose("aiter_sage_section"),
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
            place="before",
            text=(
                "| `aiter_sage` | [AI Tensor Engine for ROCm](https://github.com/ROCm/aiter) "
                "| SageAttention (INT8 QK, FP8 PV) for AMD gfx1201 |\n"
            ),
            reason="row in the table of backends",
            optional=True,
        ),
        # Another heading than the Hub kernel's, so that both recipes apply in either order.
        minimax_h3_guide("aiter_sage", "SageAttention on RDNA4 with aiter", before="## Omni-references"),
    )
