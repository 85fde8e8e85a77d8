# SPDX-License-Identifier: MIT
"""The kernels that one call of the op launches, in stream order, as the tests expect them in launch records."""

MAIN_KERNEL = "gfx1201_sage_attention_main"
KERNELS = ["gfx1201_sage_statistics", "gfx1201_sage_quantise", MAIN_KERNEL]
