# SPDX-License-Identifier: MIT
"""Builds what the tests share, so that test processes that start together do not build it at once.

python -m integration_tests.harness.prepare
"""

from integration_tests.harness import hub_delivery, variant_delivery
from integration_tests.harness.progress import Progress
from integration_tests.virtual_gpu import build


def main() -> None:
    progress = Progress(2)
    with progress.step("build the virtual gfx1201 (the first time one to two minutes)"):
        build()
    with progress.step("compile the kernel and package it for the Hub, and the ROCm variant of sage-attention"):
        hub_delivery.built_variant()
        variant_delivery.built_variant()


if __name__ == "__main__":
    main()
