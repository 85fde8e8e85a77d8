# SPDX-License-Identifier: MIT
"""The tests of all deliveries on a real gfx1201, and how long the op takes there: see __main__."""
