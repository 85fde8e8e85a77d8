# SPDX-License-Identifier: MIT
"""The table of models is well formed, and the command does for three of them what it does for all."""

import inspect
import json
import subprocess
import sys

import pytest

from diffusers_patch.__main__ import installed_diffusers
from integration_tests.paths import DOCS, REPOSITORY
from integration_tests.reports.models import report
from integration_tests.reports.models.table import TABLE
from integration_tests.reports.models.workload import ROUTES

NAMES = [workload.name for workload in TABLE]


def test_names_are_unique_and_fit_a_table():
    assert len(set(NAMES)) == len(NAMES) and len({workload.class_name for workload in TABLE}) >= 25
    assert not [name for name in NAMES if "|" in name or not name.strip()]


@pytest.mark.parametrize("workload", TABLE, ids=NAMES)
def test_an_entry_names_a_class_of_diffusers_a_route_and_sizes_that_its_inputs_take(workload):
    # Not imported: other tests of this process import a patched copy.
    assert f'"{workload.class_name}"' in (installed_diffusers() / "__init__.py").read_text()
    assert workload.route in ROUTES and workload.component in ("transformer", "unet")
    signature = inspect.signature(workload.inputs)
    for sizes in (workload.tiny_sizes, *({**workload.full_sizes, **step} for _, step in workload.steps)):
        signature.bind({}, **sizes)


def result(**changes) -> report.Result:
    fields = {
        "name": "a model",
        "class_name": "Model",
        "component": "transformer",
        "route": "sage_hub",
        "dispatched": True,
        "flops": 4e12,
        "share_on_kernel": 0.75,
        "calls": 4,
        "calls_on_kernel": 3,
        "reasons": {"is_causal is set": (1, 0.25)},
        "relative_l2": 0.01,
        "bound": 0.05,
        "launches": 2,
    }
    return report.Result(**fields | changes)


def test_shares_are_unweighted_means_over_workloads():
    results = [result(), result(flops=9e15, share_on_kernel=0.25, dispatched=False)]
    assert report.shares(results) == {"share_all": 0.5, "share_dispatched": 0.75}


DISAGREEING = {
    "beyond the bound": {"relative_l2": 0.06},
    "not a number": {"relative_l2": float("nan")},
    "the kernel changed nothing": {"relative_l2": 0.0},
    "SDPA with other bits": {"launches": 0},
}


@pytest.mark.parametrize("what", DISAGREEING)
def test_a_tiny_model_that_disagrees_is_found(what):
    assert result().agrees and not result(**DISAGREEING[what]).agrees


def test_a_row_has_calls_flops_and_reasons():
    row = report.text([], [result()]).splitlines()[4]
    assert row == ("| a model | `sage_hub` | 4.00 | 3 of 4 | 75.0 % | is_causal is set: 1 calls, 25.0 % | 0.0100 (2) |")


def test_the_page_has_every_model_of_the_table():
    page = (DOCS / "models.md").read_text("utf-8")
    assert [name for name in NAMES if page.count(f"| {name} |") != 2] == []


# Name -> what is known of it: calls on the kernel at least, and TFLOP of attention of the published size.
THREE = {
    "FLUX.1-dev 1024": (57, 14.87),
    "Wan2.1/2.2-14B T2V 480p 81f": (40, 892.92),
    "Chroma 1024": (0, 14.87),
}


def test_the_command_traces_and_executes_three_models(tmp_path):
    out = tmp_path / "models.json"
    command = [sys.executable, "-m", "integration_tests.reports.models", "--out", str(out), "--only", *THREE]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())
    assert {"models", "share_all", "share_dispatched", "torch", "diffusers"} == set(found)
    assert 0 < found["share_dispatched"] <= 1 and 0 < found["share_all"] <= 1
    models = {model["name"]: model for model in found["models"]}
    assert set(models) == set(THREE)
    for name, (calls, tera_flops) in THREE.items():
        model = models[name]
        assert model["calls_on_kernel"] >= calls and model["dispatched"]
        assert round(model["flops"] / 1e12, 2) == tera_flops
        assert 0 <= model["share_on_kernel"] <= 1
        assert sum(count for count, _ in model["reasons"].values()) == model["calls"] - model["calls_on_kernel"]
        assert (model["relative_l2"] > 0) == (model["launches"] > 0)
