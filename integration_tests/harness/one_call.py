# SPDX-License-Identifier: MIT
"""One call of the op through the Hub package: something to look at.

python -m integration_tests.harness.one_call [--sequence 64] [--heads 1]
"""

import argparse

from integration_tests.harness import inputs
from integration_tests.harness.hub_delivery import load_hub_kernel
from integration_tests.harness.rocm_torch import rocm_torch
from integration_tests.virtual_gpu import VirtualGpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sequence", type=int, default=64)
    parser.add_argument("--heads", type=int, default=1)
    options = parser.parse_args()
    with rocm_torch(VirtualGpu.load()):
        attention = load_hub_kernel().gfx1201_sage_attention
        attention(*inputs.normal(1, options.sequence, options.heads))


if __name__ == "__main__":
    main()
