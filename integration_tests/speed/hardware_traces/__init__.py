# SPDX-License-Identifier: MIT
"""Thread traces of a real gfx1201, decoded and compared with the timing model; the traces stay where they are."""
