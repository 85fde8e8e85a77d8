# SPDX-License-Identifier: MIT
"""Apply a recipe to a diffusers tree, check whether it fits, or write it as a git diff.

A tree is a git checkout, an unpacked source distribution, or an installed `site-packages/diffusers`.
"""

import argparse
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from diffusers_patch.edits import EditError, Plan, plan
from diffusers_patch.recipes import RECIPES

DIFFS = Path(__file__).parents[1] / "dist" / "diffusers_patch"


def installed_diffusers() -> Path:
    """The folder of the diffusers that is installed, whatever sys.path or PYTHONPATH puts ahead of it."""
    try:
        folder = Path(distribution("diffusers").locate_file("diffusers"))
    except PackageNotFoundError as error:
        raise EditError("diffusers is not installed; name a tree with --tree") from error
    if not folder.is_dir():
        raise EditError("diffusers is installed from a checkout; name that with --tree")
    return folder


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        tree = options.tree or installed_diffusers()
        planned = plan(RECIPES[options.recipe](), tree)
        options.command(options.recipe, tree, planned)
    except EditError as error:
        print(f"{error}\nNothing was changed.", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m diffusers_patch", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for command, summary in (
        (_apply, "edit the tree"),
        (_check, "say what applying would do"),
        (_diff, "write dist/diffusers_patch/RECIPE.diff, to be applied with `git apply`"),
    ):
        subparser = commands.add_parser(command.__name__.removeprefix("_"), help=summary)
        # Editing an installed package must be asked for by name; reading it may be the default.
        subparser.add_argument("--tree", type=Path, required=command is _apply, help="default: the installed one")
        subparser.add_argument("--recipe", choices=sorted(RECIPES), default="hub_backend")
        subparser.set_defaults(command=command)
    return parser


def _apply(_recipe: str, tree: Path, planned: Plan) -> None:
    planned.apply()
    _report(planned)
    for change in planned.changes:
        print(f"changed {change.path}")
    if not planned.changes:
        print(f"{tree}: nothing to change")


def _check(_recipe: str, _tree: Path, planned: Plan) -> None:
    _report(planned)


def _diff(recipe: str, _tree: Path, planned: Plan) -> None:
    DIFFS.mkdir(parents=True, exist_ok=True)
    path = DIFFS / f"{recipe}.diff"
    # Bytes, so that no platform changes the line endings of a patch.
    path.write_bytes(planned.diff().encode("utf-8"))
    print(f"wrote {path}")


def _report(planned: Plan) -> None:
    for edit, state in planned.states:
        print(f"{state:15} {edit.file}: {edit.reason}")


if __name__ == "__main__":
    sys.exit(main())
