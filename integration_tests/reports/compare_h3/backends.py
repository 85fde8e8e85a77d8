# SPDX-License-Identifier: MIT
"""The attention backends that are compared, and what each needs before `import diffusers`.

Every other name is taken for a backend that the installed diffusers has by itself.
"""

import os

from hub_kernel.build_hub_package import repo_id
from integration_tests.harness import aiter_delivery, hub_delivery
from integration_tests.harness import patched_diffusers as patched
from integration_tests.harness import variant_delivery as loaded_variant
from integration_tests.harness.gpu_finder import NoGpuError
from integration_tests.reports.compare_h3.device import Gpu, VirtualDevice

NATIVE = "native"
OPTIONS = ("aiter_sage_hub", "sage_hub", "aiter_sage")


class Unavailable(Exception):
    """This backend cannot run here; the message says why."""


def make_available(name: str, device: VirtualDevice | Gpu) -> None:
    """Lets diffusers find the kernel of this backend; torch must look like ROCm already.

    Each backend needs a process of its own: diffusers is patched differently for each, or not at all, and asks for
    aiter once, at import. Raises Unavailable.
    """
    if name not in OPTIONS:
        return
    try:
        device.expect_kernels()
    except NoGpuError as error:
        raise Unavailable(str(error)) from error
    if name == "aiter_sage_hub":
        patched.activate("hub_backend")
        os.environ["LOCAL_KERNELS"] = f"{repo_id()}={hub_delivery.built_variant()}"
        hub_delivery.load_hub_kernel()
    elif name == "sage_hub":
        os.environ["LOCAL_KERNELS"] = loaded_variant.local_kernels()
        loaded_variant.load_variant()
    else:
        try:
            aiter_delivery.base_tree()
        except RuntimeError as error:
            raise Unavailable(str(error)) from error
        aiter_delivery.load_aiter()
        patched.activate("aiter_backend")
