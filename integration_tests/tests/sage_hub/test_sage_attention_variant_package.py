# SPDX-License-Identifier: MIT
"""The built ROCm variant of sage-attention as a package: metadata, shared files, imports, and who may load it."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kernels._rust import Digest, DigestAlgorithm, Metadata

from hub_kernel.build_code_object import kernel_sources
from hub_kernel.build_sage_attention_variant import SHARED_MODULES
from integration_tests.harness.variant_delivery import built_variant, general_config
from integration_tests.paths import REPOSITORY
from integration_tests.tests.package_rules import assert_python_3_9_and_self_contained

EXPORTS = ["per_block_int8", "per_channel_fp8", "per_warp_int8", "replace_sdpa", "sageattn", "sub_mean"]


@pytest.fixture(scope="module")
def variant() -> Path:
    return built_variant()


def run_python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints for `code`."""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_metadata_names_the_package_that_diffusers_loads(variant):
    metadata = Metadata.read_from_file(variant / "metadata.json")
    assert (str(metadata.name), metadata.version) == ("sage-attention", 3)
    assert general_config()["hub"]["repo-id"] == "SageAttention/sage-attention"
    metadata.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, variant))


def test_no_architecture_is_declared(variant):
    assert json.loads((variant / "metadata.json").read_text())["backend"] == {"type": "rocm"}


def test_shared_modules_are_those_of_the_gfx1201_package(variant):
    for name, path in SHARED_MODULES.items():
        assert (variant / name).read_bytes() == path.read_bytes()


def test_code_object_is_the_one_of_its_manifest_and_of_the_kernels_sources(variant):
    manifest = json.loads((variant / "manifest.json").read_text())
    assert hashlib.sha256((variant / manifest["code_object"]).read_bytes()).hexdigest() == manifest["sha256"]
    sources = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in kernel_sources()}
    assert manifest["sources"] == sources


def test_no_file_carries_a_path_of_the_machine_that_built_it(variant):
    for path in variant.parent.parent.rglob("*"):
        assert not path.is_file() or str(REPOSITORY).encode() not in path.read_bytes(), path


def test_modules_are_python_3_9_and_import_only_torch_and_the_standard_library(variant):
    modules = sorted(variant.glob("*.py"))
    assert len(modules) == 5 + len(SHARED_MODULES) + 2
    assert_python_3_9_and_self_contained(modules)


SDPA_WITHOUT_GPU = """
import kernels, pathlib, torch, warnings
warnings.simplefilter("error")
package = kernels.get_local_kernel(pathlib.Path(r"{variant}"))
print(package.__all__)
q, k, v = torch.randn(3, 1, 2, 40, 128, dtype=torch.bfloat16)
print(torch.equal(package.sageattn(q, k, v), torch.nn.functional.scaled_dot_product_attention(q, k, v)))
{make_rocm}
print(torch.equal(package.sageattn(q, k, v), torch.nn.functional.scaled_dot_product_attention(q, k, v)))
"""


@pytest.mark.parametrize("make_rocm", ["", "torch.version.hip = '7.2.53211'"])
def test_package_imports_without_gpu_and_gives_sdpa_for_cpu_tensors(variant, make_rocm):
    output = run_python(SDPA_WITHOUT_GPU.format(variant=variant, make_rocm=make_rocm))
    assert output.splitlines() == [str(EXPORTS), "True", "True"]


LOAD_FROM_CACHE = """
import types, torch, kernels
torch.version.hip = "7.2.53211"
torch.cuda.is_available = lambda: True
torch.cuda.current_device = lambda: 0
torch.cuda.get_device_properties = lambda index: types.SimpleNamespace(gcnArchName="{architecture}")
print(kernels.get_kernel("{repo_id}", version=3).__file__)
"""


@pytest.mark.parametrize("architecture", ["gfx1201", "gfx1100", "gfx942:sramecc+:xnack-"])
def test_get_kernel_loads_the_variant_on_every_amd_gpu(variant, tmp_path, architecture):
    repo_id, commit = general_config()["hub"]["repo-id"], "0123456789abcdef0123456789abcdef01234567"
    cached = tmp_path / ("kernels--" + repo_id.replace("/", "--"))
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "v3").write_text(commit)
    build = cached / "snapshots" / commit / "build"
    build.mkdir(parents=True)
    for path in variant.iterdir():
        if path.is_file():
            (build / variant.name).mkdir(exist_ok=True)
            (build / variant.name / path.name).symlink_to(path)
    code = LOAD_FROM_CACHE.format(architecture=architecture, repo_id=repo_id)
    output = run_python(code, HF_HUB_OFFLINE="1", KERNELS_CACHE=str(tmp_path))
    assert output == str(build / variant.name / "__init__.py")
