# SPDX-License-Identifier: MIT
"""What kernels issue and wait for on the virtual gfx1201, and what that says about time, which is always modelled."""
