# SPDX-License-Identifier: MIT
"""What the recipes of both backends share: upstream's files, and the edits that whichever comes first makes."""

from diffusers_patch.additions import definitions, prose
from diffusers_patch.edits import Edit

PACKAGE = "src/diffusers"
DISPATCHER = f"{PACKAGE}/models/attention_dispatch.py"
GUIDE = "docs/source/en/optimization/attention_backends.md"
MINIMAX_H3_PAGE = "docs/source/en/api/pipelines/minimax_h3.md"
TESTS = "tests/models/test_attention_dispatch.py"

CHECK = Edit(
    file=DISPATCHER,
    scope="_check_shape",
    anchor="def _check_shape(",
    place="before",
    text=definitions("aiter_sage_check") + "\n\n",
    reason="what the kernel refuses",
    shared=True,
)

UPSTREAM_TESTS = (
    Edit(
        file=TESTS,
        scope="",
        anchor="from diffusers.models._modeling_parallel import ContextParallelConfig, ParallelConfig",
        place="before",
        text="from diffusers.models import attention_dispatch\n",
        reason="import",
        optional=True,
        shared=True,
    ),
    Edit(
        file=TESTS,
        scope="TestContextParallelAttentionBackward",
        anchor="@is_attention",
        place="before",
        text=definitions("aiter_sage_upstream_tests") + "\n\n",
        reason="refusals, and parity on the hardware",
        optional=True,
        shared=True,
    ),
)


def minimax_h3_guide(backend: str, title: str, before: str) -> Edit:
    """How to use `backend` with MiniMax-H3, as a section of that pipeline's page ahead of the heading `before`."""
    return Edit(
        file=MINIMAX_H3_PAGE,
        scope=before,
        anchor=before,
        place="before",
        text=prose("minimax_h3_section").replace("{title}", title).replace("{backend}", backend),
        reason="which models to set it on, several GPUs, the way back",
        optional=True,
    )
