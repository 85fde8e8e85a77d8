# SPDX-License-Identifier: MIT
"""Puts the virtual gfx1201, or a real one with `--gpu hardware`, under the tests, and every delivery's op on it."""

import os
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

# huggingface_hub and diffusers read this once, when they are imported: no test may look for a kernel on the network.
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
import torch  # before the device is loaded: it then tracks every tensor that a test makes
from hypothesis import HealthCheck, settings

from integration_tests.harness import aiter_delivery, device_under_test
from integration_tests.harness.device_under_test import Launched
from integration_tests.harness.hub_delivery import load_hub_kernel
from integration_tests.harness.rocm_torch import RocmTorch
from integration_tests.reference.agreement import Agreement
from integration_tests.virtual_gpu import VirtualGpu

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

# How to get the public op of each delivery; the tests of the op run once for each.
DELIVERIES: dict[str, Callable] = {
    "hub": lambda: load_hub_kernel().gfx1201_sage_attention,
    "aiter": lambda: aiter_delivery.load_aiter().gfx1201_sage_attention,
}

# How many examples each property is tried on. The suite's are always the same; `--hypothesis-profile long` draws new
# ones. No deadline: the virtual device is slow at first. The fixtures of these tests need not be made anew for each.
settings.register_profile(
    "suite",
    max_examples=60,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.register_profile("long", settings.get_profile("suite"), max_examples=1700, derandomize=False, print_blob=True)
settings.load_profile("suite")

# A test that reaches neither of these touches no device and shows nothing new on a GPU.
DEVICE_FIXTURES = {"rocm_torch", "gpu_arguments"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gpu",
        choices=device_under_test.GPU_MODES,
        help="run the tests that a real gfx1201 can run, on one, or in a rehearsal on the virtual device",
    )
    parser.addoption("--sanitize", action="store_true", help="run every test on the virtual device under its sanitizer")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--gpu") == device_under_test.HARDWARE:
        from integration_tests.harness.gpu_finder import NoGpuError

        try:
            device_under_test.use_gpu()
        except NoGpuError as error:
            raise pytest.UsageError(str(error)) from error


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--gpu"):
        off_device = [item for item in items if DEVICE_FIXTURES.isdisjoint(item.fixturenames)]
        config.hook.pytest_deselected(items=off_device)
        items[:] = [item for item in items if item not in off_device]


@pytest.fixture
def gpu_arguments(request: pytest.FixtureRequest) -> list[str]:
    """What a test's script needs on its command line to run on the same device as the test."""
    mode = request.config.getoption("--gpu")
    return ["--gpu", mode] if mode else []


@pytest.fixture(scope="session")
def loaded_gpu() -> VirtualGpu:
    """The process's device, built when its sources have changed."""
    return VirtualGpu.load()


@pytest.fixture
def reset_gpu(request: pytest.FixtureRequest, loaded_gpu: VirtualGpu) -> Iterator[VirtualGpu]:
    """The virtual device: one gfx1201, no launches recorded. With `--sanitize`, the sanitizer must find nothing but
    what the test's marker `finds` names."""
    loaded_gpu.configure()
    loaded_gpu.reset()
    loaded_gpu.sanitize(request.config.getoption("--sanitize"))
    yield loaded_gpu
    if request.config.getoption("--sanitize"):
        expected = {fault for mark in request.node.iter_markers("finds") for fault in mark.args}
        found = [finding for finding in loaded_gpu.findings() if finding.fault not in expected]
        loaded_gpu.sanitize(False)
        assert not found, found
    loaded_gpu.configure()


@pytest.fixture
def virtual_gpu(request: pytest.FixtureRequest) -> VirtualGpu:
    """The virtual device, for tests that look into it or reconfigure it, which a GPU does not offer."""
    if request.config.getoption("--gpu"):
        pytest.skip("needs the virtual device: its records, its faults or another configuration")
    return request.getfixturevalue("reset_gpu")


@pytest.fixture
def rocm_torch(request: pytest.FixtureRequest) -> Iterator[RocmTorch | None]:
    """ROCm torch: CPU torch as one on the virtual device, or the process's own on a GPU (None)."""
    if device_under_test.is_virtual():
        request.getfixturevalue("reset_gpu")
    with device_under_test.rocm_torch() as answers:
        yield answers


@pytest.fixture
def launched(rocm_torch: RocmTorch | None) -> Iterator[Launched]:
    """`launched()` names the op's kernels that the test has launched so far, in order."""
    with device_under_test.launched_kernels() as launched:
        yield launched


@pytest.fixture
def record_agreement(record_property: Callable) -> Callable[[dict[str, float]], None]:
    """`record_agreement(figures)` puts how far an output was from its reference into pytest's report."""

    def record(figures: dict[str, float]) -> None:
        for field in fields(Agreement):
            record_property(field.name, figures[field.name])

    return record


@pytest.fixture
def even_barriers(rocm_torch: RocmTorch | None) -> Iterator[None]:
    """Whatever the test launched, all waves of a work-group met the same barriers: the virtual device tells."""
    yield
    if rocm_torch:
        assert not [record.kernel for record in rocm_torch.gpu.records() if record.uneven_barriers]


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    """torch.compile without what earlier tests have compiled; later ones find nothing either."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def count_graphs(fresh_compiler: None) -> Callable:
    """A backend for torch.compile that runs graphs as they are; its attribute `graphs` lists them."""

    def backend(graph, example_inputs):
        backend.graphs.append(graph)
        return graph.forward

    backend.graphs = []
    return backend


# aiter's flags flush denormals: what that may change is in the tests' bounds.
AITER_MARKS = (pytest.mark.aiter, pytest.mark.finds("denormal-mode"))


@pytest.fixture(params=["hub", pytest.param("aiter", marks=AITER_MARKS)])
def sage_attention(request: pytest.FixtureRequest, even_barriers: None) -> Callable:
    """`sage_attention(q, k, v, softmax_scale)` of one delivery, for tensors of the device under test."""
    return DELIVERIES[request.param]()


@pytest.fixture
def one_rank_mesh(tmp_path: Path) -> Iterator["DeviceMesh"]:
    """A mesh of this process alone, for tensors that are sharded and yet whole."""
    from torch.distributed.device_mesh import init_device_mesh

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield init_device_mesh("cpu", (1,))
    torch.distributed.destroy_process_group()
