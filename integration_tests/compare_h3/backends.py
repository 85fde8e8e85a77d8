# SPDX-License-Identifier: MIT
"""The attention backends that are compared, and what each needs before `import diffusers`.

Every other name is taken for a backend that the installed diffusers has by itself.
"""

import importlib.metadata
import os

from hub_kernel.build_hub_package import repo_id
from integration_tests import hub_delivery
from integration_tests.with_diffusers import patched

NATIVE = "native"
OPTIONS = ("aiter_sage_hub", "sage_hub", "aiter_sage")


class Unavailable(Exception):
    """This backend cannot run here; the message says why."""


def make_available(name: str, virtual: bool) -> None:
    """Lets diffusers find the kernel of this backend. Each backend needs a process of its own: diffusers is patched
    differently for each, or not at all, and asks for aiter once, at import."""
    if name == "aiter_sage_hub":
        patched.activate("hub_backend")
        os.environ["LOCAL_KERNELS"] = f"{repo_id()}={hub_delivery.built_variant()}"
        if virtual:
            hub_delivery.load_hub_kernel()
    elif name == "sage_hub":
        from integration_tests.sage_hub import loaded_variant

        os.environ["LOCAL_KERNELS"] = loaded_variant.local_kernels()
        if virtual:
            loaded_variant.load_variant()
    elif name == "aiter_sage":
        _need_aiter(virtual)
        patched.activate("aiter_backend")


def _need_aiter(virtual: bool) -> None:
    if "AITER_TREE" not in os.environ:
        try:
            importlib.metadata.distribution("amd-aiter")
        except importlib.metadata.PackageNotFoundError:
            raise Unavailable("amd-aiter is not installed") from None
    if virtual:
        from integration_tests import aiter_delivery

        aiter_delivery.load_aiter()
        return
    import aiter

    if not hasattr(aiter, "gfx1201_sage_attention"):
        raise Unavailable("the installed amd-aiter has no gfx1201_sage_attention: docs/aiter_path.md")
