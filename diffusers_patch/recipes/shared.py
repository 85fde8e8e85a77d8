# SPDX-License-Identifier: MIT
"""What the recipes of both backends share: upstream's files, and the edits that whichever comes first makes."""

from diffusers_patch.additions import definitions
from diffusers_patch.edits import Edit

PACKAGE = "src/diffusers"
DISPATCHER = f"{PACKAGE}/models/attention_dispatch.py"
GUIDE = "docs/source/en/optimization/attention_backends.md"
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
