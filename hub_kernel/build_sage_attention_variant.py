# SPDX-License-Identifier: MIT
"""Writes the ROCm variant of sage-attention: `python -m hub_kernel.build_sage_attention_variant [--out DIR]`.

The variant is the gfx1201 kernel's Hub package under another public function, so its files are staged here from where
they live and not kept twice.
"""

import argparse
import shutil
from pathlib import Path

from kernels._rust import Metadata

from hub_kernel.build_code_object import REPOSITORY, build_code_object, staged
from hub_kernel.build_hub_package import VARIANT, finish_variant, read_build_config, stage_kernel_sources
from hub_kernel.package_files import CONTRACT, HUB_KERNEL, PACKAGE, ignore_bytecode

SAGE_ATTENTION_VARIANT = HUB_KERNEL / "sage_attention_variant"
DEFAULT_OUT = REPOSITORY / "dist" / "sage_attention_variant"

# Name in the variant -> where the file lives.
SHARED_MODULES = {
    "gfx1201_sage_attention.py": PACKAGE / "__init__.py",
    "hip_module.py": PACKAGE / "hip_module.py",
    CONTRACT.name: CONTRACT,
}


def build_sage_attention_variant(out: Path = DEFAULT_OUT, cache: Path | None = None) -> Path:
    """Builds the code object and the variant around it, with their sources; replaces `out`.

    `cache` as in `build_code_object`.
    Returns the variant's folder, which belongs beside the CUDA variants in the Hub repository that build.toml names.

    Raises BuildGateError when a kernel leaves its budget, ValueError when build.toml or the metadata is invalid.
    """
    config = read_build_config(SAGE_ATTENTION_VARIANT)
    with staged(out) as repository:
        package = repository / "torch-ext" / "sage_attention"
        shutil.copytree(SAGE_ATTENTION_VARIANT / "torch-ext" / package.name, package, ignore=ignore_bytecode)
        for path in (
            SAGE_ATTENTION_VARIANT / "build.toml",
            SAGE_ATTENTION_VARIANT / "flake.nix",
            HUB_KERNEL / "LICENSE",
        ):
            shutil.copy(path, repository)
        for name, path in SHARED_MODULES.items():
            shutil.copy(path, package / name)
        build_code_object(package, cache=cache)

        variant = repository / "build" / VARIANT
        shutil.copytree(package, variant)
        finish_variant(variant, config)
        stage_kernel_sources(repository)
    return out / "build" / VARIANT


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    variant = build_sage_attention_variant(parser.parse_args().out)
    metadata = Metadata.read_from_file(variant / "metadata.json")
    size = sum(path.stat().st_size for path in variant.rglob("*") if path.is_file())
    print(f"{metadata.name} version {metadata.version}: {VARIANT}, {size} bytes, id {metadata.id}")


if __name__ == "__main__":
    main()
