# SPDX-License-Identifier: MIT
"""Diffusers releases beside the installed one, and the formatter its maintainers pin, for the tests of the recipes.

`python -m diffusers_patch.tests.releases` downloads source distributions, which carry diffusers' own ruff settings, and
unpacks them into dist/diffusers_releases/. The tests use what they find there.
"""

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

# What the recipes serve. Series for upstream are made on the last one when there is no checkout.
SERVED = ("0.41.0", "0.42.0", "0.42.1")
FOLDER = Path(__file__).parents[2] / "dist" / "diffusers_releases"
RUFF_FOLDER = FOLDER / "ruff"
RUFF = "ruff==0.9.10"  # diffusers' setup.py


def downloaded() -> list[Path]:
    """The unpacked releases."""
    return sorted(FOLDER.glob("diffusers-*"))


def download(version: str) -> None:
    """Unpack the source distribution of one release; what is already there stays."""
    if (FOLDER / f"diffusers-{version}").is_dir():
        return
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        _pip("download", "--no-deps", "--no-binary", "diffusers", "--dest", folder, f"diffusers=={version}")
        (archive,) = Path(folder).glob("*.tar.gz")
        with tarfile.open(archive) as content:
            content.extractall(folder, filter="data")
        (Path(folder) / f"diffusers-{version}").rename(FOLDER / f"diffusers-{version}")


def install_ruff() -> None:
    """Install diffusers' ruff beside the releases, away from the ruff that this project uses."""
    if not RUFF_FOLDER.is_dir():
        _pip("install", "--no-deps", "--target", str(RUFF_FOLDER), RUFF)


def _pip(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments], check=True)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    install_ruff()
    for served in SERVED:
        print(f"diffusers {served}: {FOLDER}", flush=True)
        download(served)
