# SPDX-License-Identifier: MIT
"""What the recipes of both backends have in common: upstream's files, and the edit that either of them makes."""

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
