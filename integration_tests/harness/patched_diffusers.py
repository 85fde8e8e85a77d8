# SPDX-License-Identifier: MIT
"""The installed diffusers with our backends: a patched copy in dist/, put ahead of the original on sys.path.

`python -m integration_tests.harness.patched_diffusers [RECIPE ...]` prints the folder, for use as PYTHONPATH.
"""

import shutil
import sys
from importlib.metadata import version
from pathlib import Path

from diffusers_patch.__main__ import installed_diffusers
from diffusers_patch.edits import APPLIED, READY, EditError, Recipe, plan
from diffusers_patch.recipes import RECIPES
from hub_kernel.build_code_object import staged
from integration_tests.paths import DIST

COPIES = DIST / "with_diffusers"


def patched_diffusers(*recipe_names: str) -> Path:
    """The folder that holds the package with these recipes; made when it is missing or a recipe has changed.

    The environment's own diffusers stays as it is, so that other tests see what users have.
    """
    recipes = [RECIPES[name]() for name in recipe_names]
    folder = COPIES / f"{'+'.join(recipe_names)}-{version('diffusers')}"
    if all(_is_current(recipe, folder) for recipe in recipes):
        return folder
    with staged(folder) as copy:
        shutil.copytree(installed_diffusers(), copy / "diffusers", ignore=shutil.ignore_patterns("__pycache__"))
        for recipe in recipes:
            plan(recipe, copy).apply()
    return folder


def activate(*recipe_names: str) -> None:
    """Make `import diffusers` find the copy with these recipes in this process; `hub_backend` when none is named."""
    folder = patched_diffusers(*(recipe_names or ["hub_backend"]))
    loaded = sys.modules.get("diffusers")
    if loaded is not None and not Path(loaded.__file__).is_relative_to(folder):
        raise RuntimeError(f"diffusers was already imported from {loaded.__file__}")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _is_current(recipe: Recipe, folder: Path) -> bool:
    if not (folder / "diffusers").is_dir():
        return False
    try:
        states = {state for _, state in plan(recipe, folder).states}
    except EditError:
        return False
    return APPLIED in states and READY not in states


if __name__ == "__main__":
    print(patched_diffusers(*(sys.argv[1:] or ["hub_backend"])))
