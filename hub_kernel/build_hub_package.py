# SPDX-License-Identifier: MIT
"""Writes the Hub repository of the kernel: `python -m hub_kernel.build_hub_package [--out DIR]`.

Builds the code object first. The result (table in hub_kernel/README.md) is the same byte for byte on one compiler.
"""

import argparse
import json
import shutil
import tomllib
from pathlib import Path

from kernels._rust import Build, Digest, DigestAlgorithm, KernelName, Metadata

from hub_kernel.build_code_object import (
    MANIFEST_PROGRAM,
    REPOSITORY,
    build_code_object,
    kernel_sources,
    staged,
)
from hub_kernel.package_files import (
    HUB_KERNEL,
    content_id,
    copy_package,
    ignore_bytecode,
    write_build_module,
    write_ops_module,
)

DEFAULT_OUT = REPOSITORY / "dist" / "hub_kernel"

VARIANT = "torch-rocm"
SOURCE_REPOSITORY_FILES = ["build.toml", "flake.nix", "LICENSE", "tests", "benchmarks"]


def read_build_config(folder: Path = HUB_KERNEL) -> dict:
    """The folder's build.toml, after the `kernels` package has validated it (ValueError if it is invalid)."""
    Build.open(folder)
    return tomllib.loads((folder / "build.toml").read_text("utf-8"))


def repo_id() -> str:
    """The kernel's id on the Hub, "organisation/name"."""
    return read_build_config()["general"]["hub"]["repo-id"]


def build_hub_package(out: Path = DEFAULT_OUT, cache: Path | None = None) -> Path:
    """Builds the code object and the Hub repository around it; replaces `out`. Returns the variant's folder.

    `cache` as in `build_code_object`.

    Raises BuildGateError when a kernel leaves its budget, ValueError when build.toml or the metadata is invalid.
    """
    config = read_build_config()
    with staged(out) as repository:
        package = repository / "torch-ext" / KernelName(config["general"]["name"]).python_name
        copy_package(package)
        build_code_object(package, cache=cache)

        variant = repository / "build" / VARIANT
        shutil.copytree(package, variant)
        finish_variant(variant, config)
        stage_source_repository(repository, config)
    return out / "build" / VARIANT


def finish_variant(variant: Path, config: dict) -> None:
    """Adds _build.py, which holds the digest of the manifest, and _ops.py and metadata.json, which name the build.

    The build's id ends in the id of all other files in the folder.
    """
    general = config["general"]
    kernel_name = KernelName(general["name"])
    write_build_module(variant)
    build_id = f"_{kernel_name.python_name}_rocm_{content_id(variant)}"
    write_ops_module(variant, build_id)
    digest = Digest.hash_variant(DigestAlgorithm.SHA256, variant)
    metadata = {
        "name": general["name"],
        "id": build_id,
        "version": general["version"],
        "license": general["license"],
        "python-depends": [],
        # Without architectures: see the build.toml of each package.
        "backend": {"type": "rocm"},
        "digest": {"algorithm": "sha256", "files": dict(sorted(digest.files.items()))},
    }
    (variant / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n", "utf-8")
    Metadata.read_from_file(variant / "metadata.json")


def stage_source_repository(repository: Path, config: dict) -> None:
    """Adds what kernel-builder and a reader want beside the build: card, licence, tests, and the kernel's sources."""
    for name in SOURCE_REPOSITORY_FILES:
        source = HUB_KERNEL / name
        if source.is_dir():
            shutil.copytree(source, repository / name, ignore=ignore_bytecode)
        else:
            shutil.copy(source, repository / name)
    card = (HUB_KERNEL / "CARD.md").read_text("utf-8")
    (repository / "CARD.md").write_text(card, "utf-8")
    (repository / "README.md").write_text(card.replace("{{ repo_id }}", config["general"]["hub"]["repo-id"]), "utf-8")
    stage_kernel_sources(repository)


def stage_kernel_sources(repository: Path) -> None:
    """Adds source/: what `python source/hub_kernel/build_code_object.py` compiles to the code object of the build."""
    for path in [*kernel_sources(), MANIFEST_PROGRAM, HUB_KERNEL / "build_code_object.py"]:
        staged = repository / "source" / path.relative_to(REPOSITORY)
        staged.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, staged)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    variant = build_hub_package(parser.parse_args().out)
    metadata = Metadata.read_from_file(variant / "metadata.json")
    size = sum(path.stat().st_size for path in variant.rglob("*") if path.is_file())
    print(f"{repo_id()} version {metadata.version}: {VARIANT}, {size} bytes, id {metadata.id}")


if __name__ == "__main__":
    main()
