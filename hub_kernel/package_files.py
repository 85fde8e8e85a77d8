# SPDX-License-Identifier: MIT
"""The Python files of the Hub kernel's package, of which it can be loaded from a folder; needs nothing but Python.

`build_hub_package` adds what the `kernels` package wants beside them.
"""

import hashlib
import shutil
from pathlib import Path

from hub_kernel.build_code_object import REPOSITORY, digest_of

HUB_KERNEL = REPOSITORY / "hub_kernel"
CONTRACT = REPOSITORY / "aiter_op" / "ops" / "sage_attention_contract.py"
PACKAGE = HUB_KERNEL / "torch-ext" / "gfx1201_sage_attention"

BUILD = """\
MANIFEST_SHA256 = "{manifest_sha256}"
"""

OPS = '''\
import torch

ops = torch.ops.{op_namespace}


def add_op_namespace_prefix(op_name: str) -> str:
    """Qualifies the name of an op with this build's namespace."""
    return f"{op_namespace}::{{op_name}}"
'''

ignore_bytecode = shutil.ignore_patterns("__pycache__")


def copy_package(folder: Path) -> None:
    """Copies the package's modules into a new folder. Code object and manifest go beside them."""
    shutil.copytree(PACKAGE, folder, ignore=ignore_bytecode)
    shutil.copy(CONTRACT, folder)


def write_build_module(folder: Path) -> None:
    """Adds _build.py, which holds the digest of the manifest beside it."""
    manifest_sha256 = digest_of(folder / "manifest.json")
    (folder / "_build.py").write_text(BUILD.format(manifest_sha256=manifest_sha256), "utf-8")


def content_id(folder: Path) -> str:
    """Seven hex digits of a hash over names and contents of all files in the folder.

    kernel-builder takes them from the git tree instead; equal contents give equal ids here, whatever the checkout.
    """
    content = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content.update(f"{path.relative_to(folder).as_posix()} {digest_of(path)}\n".encode())
    return content.hexdigest()[:7]


def write_ops_module(folder: Path, op_namespace: str) -> None:
    """Adds _ops.py, which names the build for torch."""
    (folder / "_ops.py").write_text(OPS.format(op_namespace=op_namespace), "utf-8")
