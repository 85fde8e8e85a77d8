# SPDX-License-Identifier: MIT
"""A developer's first answer: a choice from every part of the suite, in about a minute.

python -m integration_tests.quick
"""

import sys

import pytest

from integration_tests.harness import prepare
from integration_tests.paths import REPOSITORY

# What is chosen, and the tests by which it is known.
CHOSEN = {
    "kernel through the Hub package: accuracy, tails, special values": (
        "integration_tests/tests/op/test_accuracy.py",
        "integration_tests/tests/op/test_shapes.py",
        "integration_tests/tests/op/test_special_values.py",
    ),
    "its counts and registers under the default toolchain": (
        "integration_tests/speed/test_guard.py::test_no_figure_is_worse_than_recorded[ziglang]",
        "integration_tests/speed/test_guard.py::test_the_main_loop_meets_its_targets[ziglang]",
    ),
    "the Hub package's loader": ("integration_tests/tests/deliveries/test_hub_loader.py",),
    "every instruction of every encoding, once": (
        "integration_tests/oracle/test_arithmetic.py",
        "integration_tests/oracle/test_control_flow.py",
        "integration_tests/oracle/test_matrix.py",
        "integration_tests/oracle/test_memory.py",
    ),
    "the virtual device's HIP API and faults": ("integration_tests/tests/device",),
    "contract, and recipes on the installed diffusers": (
        "aiter_op/tests/test_contract.py",
        "diffusers_patch/tests/test_edits.py",
        "diffusers_patch/tests/test_recipes.py",
    ),
}
LEFT_OUT = (
    "properties, sanitizer, aiter's JIT, patched diffusers and MiniMax-H3, the ROCm variant, Ulysses, reports, and the "
    "recipes on other releases of diffusers: `nox` runs them"
)


def main() -> int:
    prepare.main()
    tests = [str(REPOSITORY / test) for chosen in CHOSEN.values() for test in chosen]
    # Releases of diffusers that are not installed have names; the one that is has none.
    status = pytest.main(["-q", "-n", "2", "--dist", "loadfile", "-k", "not diffusers-0", *tests])
    print("Run:", *CHOSEN, sep="\n  ")
    print(f"Left out: {LEFT_OUT}.")
    return status


if __name__ == "__main__":
    sys.exit(main())
