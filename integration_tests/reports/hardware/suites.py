# SPDX-License-Identifier: MIT
"""The suites that show a delivery on a GPU: which tests, run how, and what came out."""

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import get_args

from integration_tests.harness import aiter_delivery
from integration_tests.harness.device_under_test import HARDWARE
from integration_tests.harness.hardware_record import Delivery, Suite, Test
from integration_tests.harness.pytest_run import run_pytest

DELIVERIES: tuple[Delivery, ...] = get_args(Delivery)

OP = "integration_tests/tests/op"
WITH_DIFFUSERS = "integration_tests/tests/with_diffusers"
WITHOUT_AITER = ("-m", "not aiter and not slow")
WITH_AITER = ("-m", "aiter and not slow")


@dataclass(frozen=True)
class Plan:
    """A pytest run. One process cannot import both the patched and the unmodified diffusers, so each has its own."""

    name: str
    delivery: Delivery
    arguments: tuple[str, ...]


PLANS = (
    Plan("op", "hub", (OP, "integration_tests/tests/deliveries/test_hub_loader.py", *WITHOUT_AITER)),
    Plan("diffusers with aiter_sage_hub", "hub", (WITH_DIFFUSERS, *WITHOUT_AITER)),
    Plan("op", "aiter", (OP, "integration_tests/tests/deliveries/test_aiter_operator.py", *WITH_AITER)),
    Plan("diffusers with aiter_sage", "aiter", (WITH_DIFFUSERS, *WITH_AITER)),
    Plan(
        "sageattn, unmodified diffusers with sage_hub", "sage_hub", ("integration_tests/tests/sage_hub", *WITHOUT_AITER)
    ),
)


def missing_for(delivery: Delivery, mode: str) -> str | None:
    """What keeps the suites of a delivery from running at all, in words; None when nothing does."""
    if delivery != "aiter":
        return None
    try:
        aiter_delivery.base_tree()
    except RuntimeError as error:
        return str(error)
    # aiter builds the operator on its first call.
    rocm = Path(os.environ.get("ROCM_PATH", "/opt/rocm"))
    if mode == HARDWARE and not (shutil.which("hipcc") or (rocm / "bin" / "hipcc").exists()):
        return f"no hipcc on PATH or in {rocm / 'bin'} (ROCM_PATH), with which aiter builds the operator"
    return None


def run_suite(plan: Plan, mode: str) -> Suite:
    """Runs a suite in a process of its own, whose output goes on to this one's. Times it on hardware only."""
    arguments = ["--gpu", mode, *plan.arguments]
    start = time.perf_counter()
    run = run_pytest(arguments)
    seconds = time.perf_counter() - start
    quoted = " ".join(f'"{part}"' if " " in part else part for part in arguments)
    return Suite(
        name=plan.name,
        delivery=plan.delivery,
        command=f"python -m pytest {quoted}",
        tests=tuple(Test(**asdict(test)) for test in run.tests) or (_no_report(plan),),
        seconds=seconds if mode == HARDWARE else None,
    )


def _no_report(plan: Plan) -> Test:
    # A fault of the GPU can end the process.
    return Test(name=plan.name, outcome="error", reason="pytest ended without a report: its output says why")


def run_suites(
    deliveries: tuple[Delivery, ...], mode: str, run: Callable[[Plan, str], Suite] = run_suite
) -> tuple[Suite, ...]:
    """The suites of these deliveries, in order."""
    suites = []
    for plan in PLANS:
        if plan.delivery in deliveries:
            print(f"\n== {plan.delivery}: {plan.name}", flush=True)
            suites.append(run(plan, mode))
    return tuple(suites)
