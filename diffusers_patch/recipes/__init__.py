# SPDX-License-Identifier: MIT
"""The recipes by name, made on demand: a recipe reads the metadata of the delivery that it is for."""

from collections.abc import Callable

from diffusers_patch.edits import Recipe
from diffusers_patch.recipes import aiter_backend, hub_backend

RECIPES: dict[str, Callable[[], Recipe]] = {
    "aiter_backend": aiter_backend.recipe,
    "hub_backend": hub_backend.recipe,
}
