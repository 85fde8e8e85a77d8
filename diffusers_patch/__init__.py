# SPDX-License-Identifier: MIT
"""The diffusers attention backends, kept as recipes that edit a diffusers tree."""
