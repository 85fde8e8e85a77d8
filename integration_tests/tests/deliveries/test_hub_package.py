# SPDX-License-Identifier: MIT
"""The staged Hub repository: valid, reproducible, importable anywhere, and found by the real `kernels` package."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from kernels._rust import Digest, DigestAlgorithm, Metadata

from hub_kernel import build_hub_package
from hub_kernel.build_code_object import build_launch_program
from integration_tests.harness import hub_delivery, torch_hip_library
from integration_tests.paths import REPOSITORY
from integration_tests.tests.package_rules import assert_python_3_9_and_self_contained


@pytest.fixture(scope="module")
def variant() -> Path:
    return hub_delivery.built_variant()


@pytest.fixture(scope="module")
def manifest(variant) -> dict:
    return json.loads((variant / "manifest.json").read_text())


@pytest.fixture(scope="module")
def repository(variant) -> Path:
    return variant.parent.parent


def run_python(code: str, *options: str, **environment: str) -> str:
    """What a fresh interpreter prints for `code`."""
    command = [sys.executable, *options, "-c", code]
    result = subprocess.run(command, env={**os.environ, **environment}, cwd=REPOSITORY, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# Metadata


def test_metadata_is_valid_and_its_digest_matches_the_files(variant):
    metadata = Metadata.read_from_file(variant / "metadata.json")
    general = build_hub_package.read_build_config()["general"]
    assert (str(metadata.name), metadata.version) == (general["name"], general["version"])
    assert metadata.license == "MIT" and metadata.python_depends == []
    assert metadata.backend.archs is None
    metadata.digest.validate(Digest.hash_variant(DigestAlgorithm.SHA256, variant))
    assert set(metadata.digest.files) == set(files_of(variant)) - {"metadata.json"}


def test_kernels_info_describes_the_repository(repository):
    code = f"import sys; sys.argv = ['kernels', 'info', r'{repository}']; from kernels.cli import main; main()"
    output = run_python(code)
    assert "Name: gfx1201-sage-attention" in output and "Backends: rocm" in output


def test_two_builds_give_the_same_bytes(variant, repository, tmp_path):
    again = build_hub_package.build_hub_package(tmp_path / "again")
    assert files_of(again.parent.parent) == files_of(repository)


def test_changed_content_gives_another_id(variant, tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("x = 1\n")
    (package / "manifest.json").write_text("{}\n")
    config = build_hub_package.read_build_config()
    build_hub_package.finish_variant(package, config)
    first = Metadata.read_from_file(package / "metadata.json").id
    for generated in ("_ops.py", "metadata.json"):
        (package / generated).unlink()
    (package / "__init__.py").write_text("x = 2\n")
    build_hub_package.finish_variant(package, config)
    assert Metadata.read_from_file(package / "metadata.json").id != first


def test_no_file_carries_a_path_of_the_machine_that_built_it(repository):
    for name, content in files_of(repository).items():
        assert str(REPOSITORY).encode() not in content, name


def test_card_names_the_repository_and_version(repository):
    general = build_hub_package.read_build_config()["general"]
    card = (repository / "README.md").read_text()
    assert f'REPO_ID = "{general["hub"]["repo-id"]}"' in card and f"version={general['version']}" in card


# Sources and code object


def test_manifest_states_the_sha256_of_object_and_sources(variant, repository, manifest):
    code_object = (variant / manifest["code_object"]).read_bytes()
    assert hashlib.sha256(code_object).hexdigest() == manifest["sha256"]
    staged = {path.name: path for path in (repository / "source").rglob("*") if path.is_file()}
    assert manifest["sources"]
    for name, sha256 in manifest["sources"].items():
        assert hashlib.sha256(staged[name].read_bytes()).hexdigest() == sha256


def test_staged_sources_alone_rebuild_the_code_object(repository, manifest, tmp_path):
    script = repository / "source" / "hub_kernel" / "build_code_object.py"
    subprocess.run([sys.executable, str(script), "--out", str(tmp_path)], check=True, capture_output=True)
    rebuilt = (tmp_path / manifest["code_object"]).read_bytes()
    assert hashlib.sha256(rebuilt).hexdigest() == manifest["sha256"]


# Python


def test_package_is_python_3_9_and_imports_only_torch_and_the_standard_library(variant):
    modules = sorted(variant.glob("*.py"))
    assert len(modules) == 5
    assert_python_3_9_and_self_contained(modules)


LOAD_LOCALLY = """
import torch, kernels, pathlib, warnings
warnings.simplefilter("error")
kernel = kernels.get_local_kernel(pathlib.Path(r"{variant}"))
q = torch.zeros(1, 2, 1, 128, dtype=torch.bfloat16)
"""


def test_import_without_gpu_and_hip_raises_no_warning(variant):
    code = LOAD_LOCALLY.format(variant=variant) + "print(kernel.__all__)"
    assert run_python(code, "-W", "error") == "['gfx1201_sage_attention']"


def test_a_broken_hip_runtime_does_not_keep_the_package_from_being_imported(variant, tmp_path):
    for name in ("libamdhip64.so", "libamdhip64.so.6", "libamdhip64.so.7"):
        (tmp_path / name).write_bytes(b"\x7fELF, and then nothing")
    code = LOAD_LOCALLY.format(variant=variant) + "print(kernel.__all__)"
    assert run_python(code, LD_LIBRARY_PATH=str(tmp_path)) == "['gfx1201_sage_attention']"


CALL_AND_PRINT_THE_ERROR = """
try:
    kernel.gfx1201_sage_attention(q, q, q)
except Exception as error:
    print(type(error).__name__, error, sep=": ")
"""


def test_call_without_rocm_is_refused(variant):
    output = run_python(LOAD_LOCALLY.format(variant=variant) + CALL_AND_PRINT_THE_ERROR)
    assert output.startswith("RuntimeError: gfx1201_sage_attention needs PyTorch built for ROCm, got ")


def test_cpu_tensors_on_rocm_are_refused(variant):
    code = LOAD_LOCALLY.format(variant=variant) + "torch.version.hip = '7.2.53211'" + CALL_AND_PRINT_THE_ERROR
    assert run_python(code).startswith("ValueError: gfx1201_sage_attention needs tensors on a ROCm device, got cpu")


ON_A_GFX1201 = """
import types
torch.version.hip = "7.2.53211"
torch.cuda.get_device_properties = lambda index: types.SimpleNamespace(gcnArchName="gfx1201")
facts = kernel.hip_module.DeviceFacts("cuda", 0, 0)
kernel.hip_module.device_facts = lambda tensor: facts
"""


def test_a_torch_without_its_hip_library_is_told_so(variant):
    code = LOAD_LOCALLY.format(variant=variant) + ON_A_GFX1201 + CALL_AND_PRINT_THE_ERROR
    assert run_python(code) == (
        "RuntimeError: PyTorch has not loaded its libc10_hip.so, which leads to the HIP runtime: "
        "check the ROCm build of PyTorch."
    )


def runtime(folder: Path, name: str, device: int, functions: Sequence[str]) -> Path:
    """A HIP runtime that has these functions, which succeed, and says that `device` is the current one."""
    folder.mkdir()
    source = f"int hipGetDevice(int* device) {{ *device = {device}; return 0; }}\n"
    source += "".join(f"int {function}(void) {{ return 0; }}\n" for function in functions)
    file = folder / name
    zig = [sys.executable, "-m", "ziglang", "cc", "-shared", "-nostdlib", "-fno-sanitize=undefined"]
    options = [f"-Wl,-soname,{name}", "-x", "c", "-", "-o", str(file)]
    subprocess.run([*zig, *options], input=source.encode(), check=True)
    return file


def test_a_hip_runtime_that_lacks_functions_is_named(variant, tmp_path):
    library = torch_hip_library.link(runtime(tmp_path / "hip", "libamdhip64.so.7", 0, []), tmp_path)
    load = (
        f"import ctypes; ctypes.CDLL({str(tmp_path / 'hip' / 'libamdhip64.so.7')!r}); ctypes.CDLL({str(library)!r})\n"
    )
    code = LOAD_LOCALLY.format(variant=variant) + ON_A_GFX1201 + load + CALL_AND_PRINT_THE_ERROR
    assert run_python(code) == "RuntimeError: libc10_hip.so lacks hipSetDevice: check the ROCm build of PyTorch."


HIP_FUNCTIONS = (
    *("hipSetDevice", "hipModuleLoadData", "hipModuleGetFunction", "hipModuleLaunchKernel"),
    *("hipGetLastError", "hipGetErrorString"),
)
SURROUNDINGS = {
    "a name with a hash": ("libamdhip64-4c2f8d1a.so", ""),
    "the file replaced since it was loaded": ("libamdhip64.so.7", "import os; os.remove({torchs!r})\n"),
    "another runtime loaded before the first call": ("libamdhip64.so.7", "ctypes.CDLL({other!r}, mode=257)\n"),
}


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_the_runtime_is_the_one_that_torch_is_linked_with(variant, tmp_path, name):
    file, change = SURROUNDINGS[name]
    torchs = runtime(tmp_path / "torch", file, 7, HIP_FUNCTIONS)
    other = runtime(tmp_path / "other", "libamdhip64.so.6", 3, HIP_FUNCTIONS)
    library = torch_hip_library.link(torchs, tmp_path)
    code = LOAD_LOCALLY.format(variant=variant) + (
        "import ctypes\n"
        f"ctypes.CDLL({str(torchs)!r}); ctypes.CDLL({str(library)!r})\n"
        + change.format(torchs=str(torchs), other=str(other))
        + "device = ctypes.c_int()\n"
        "kernel.hip_module._hip().hipGetDevice(ctypes.byref(device))\n"
        "print(device.value)\n"
    )
    assert run_python(code) == "7"


WINDOWS = """
import ctypes, sys, types
sys.platform, torch.version.hip = "win32", {hip!r}
loaded = {{"amdhip64_6.dll": 6, "amdhip64_7.dll": 7}}

class GetModuleHandleW:
    def __call__(self, name):
        return loaded.get(name)

ctypes.WinDLL = lambda name: types.SimpleNamespace(GetModuleHandleW=GetModuleHandleW())
kernel.hip_module.ctypes.CDLL = lambda name, handle: (name, handle)
try:
    print(*kernel.hip_module._runtime_of_torch())
except RuntimeError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "hip, expected",
    [
        ("7.2.53211", "amdhip64_7.dll 7"),
        ("6.4.43483", "amdhip64_6.dll 6"),
        ("8.0.1", "PyTorch has not loaded the HIP runtime amdhip64_8.dll: check the ROCm build of PyTorch."),
    ],
)
def test_on_windows_the_runtime_is_of_torchs_version_whatever_else_is_loaded(variant, hip, expected):
    # Windows is played: its loader is asked for names, and nobody has run this there.
    assert run_python(LOAD_LOCALLY.format(variant=variant) + WINDOWS.format(hip=hip)) == expected


# kernels.get_kernel

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GET_KERNEL = """
import types, torch, kernels
torch.version.hip = "7.2.53211"
torch.cuda.is_available = lambda: True
torch.cuda.current_device = lambda: 0
torch.cuda.get_device_properties = lambda index: types.SimpleNamespace(gcnArchName="{architecture}")
try:
    print(kernels.get_kernel("{repo_id}", version=1).__file__)
except RuntimeError as error:
    print(error)
"""


@pytest.fixture
def offline_cache(repository, tmp_path) -> Path:
    """A Hugging Face cache that holds the repository as a download leaves it: snapshots of symlinks to blobs."""
    cached = tmp_path / ("kernels--" + hub_delivery.repo_id().replace("/", "--"))
    (cached / "blobs").mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs" / "v1").write_text(COMMIT)
    for path in sorted((repository / "build").rglob("*")):
        if path.is_file():
            blob = cached / "blobs" / hashlib.sha256(path.read_bytes()).hexdigest()
            blob.write_bytes(path.read_bytes())
            link = cached / "snapshots" / COMMIT / path.relative_to(repository)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(os.path.relpath(blob, link.parent))
    return tmp_path


def get_kernel_offline(cache: Path, architecture: str) -> str:
    code = GET_KERNEL.format(architecture=architecture, repo_id=hub_delivery.repo_id())
    return run_python(code, HF_HUB_OFFLINE="1", KERNELS_CACHE=str(cache))


def test_get_kernel_finds_the_build_in_an_offline_cache_of_symlinks(offline_cache):
    path = get_kernel_offline(offline_cache, "gfx1201:sramecc+:xnack-")
    assert path.startswith(str(offline_cache)) and path.endswith(f"/snapshots/{COMMIT}/build/torch-rocm/__init__.py")


def test_get_kernel_loads_where_the_current_device_is_another_gpu(offline_cache):
    # An integrated GPU is device 0, and the model on device 1.
    assert get_kernel_offline(offline_cache, "gfx1036").endswith("/build/torch-rocm/__init__.py")


def test_the_package_is_built_where_the_default_encoding_is_not_utf_8(tmp_path):
    environment = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    code = (
        f"import pathlib, hub_kernel.build_hub_package as b; b.build_hub_package(pathlib.Path({str(tmp_path)!r}) / 'o')"
    )
    run_python(code, **environment)
    assert (tmp_path / "o" / "CARD.md").read_bytes() == (REPOSITORY / "hub_kernel" / "CARD.md").read_bytes()


def test_get_kernel_takes_the_build_that_local_kernels_names(variant):
    code = GET_KERNEL.format(architecture="gfx1201", repo_id=hub_delivery.repo_id())
    path = run_python(code, HF_HUB_OFFLINE="1", LOCAL_KERNELS=f"{hub_delivery.repo_id()}={variant}")
    assert path == str(variant / "__init__.py")


# Launch arithmetic: the loader's Python against the header's C++

SHAPES = [(1, 1, 1), (1, 4096, 4), (1, 4097, 4), (2, 257, 3), (1, 73923, 56), (3, 99866, 56), (40000, 33, 2)]


@pytest.fixture(scope="module")
def hip_module(variant):
    import kernels

    return kernels.get_local_kernel(variant).hip_module


@pytest.mark.parametrize("shape", SHAPES)
def test_plan_equals_what_the_header_computes(hip_module, manifest, tmp_path, shape):
    program = build_launch_program(tmp_path)
    output = subprocess.run([str(program), *map(str, shape)], check=True, capture_output=True, text=True).stdout
    expected = json.loads(output)
    plan = hip_module.plan_call(manifest["launch"], *shape)
    assert plan.workspace_bytes == expected["workspace_bytes"]
    assert [list(launch.grid) for launch in plan.launches] == expected["grids"]


def test_argument_struct_has_the_size_of_the_headers(hip_module, manifest):
    assert hip_module._argument_layout().fields.size == manifest["launch"]["argument_bytes"]


@pytest.mark.parametrize("sequence", [4096, 4097, 8192, 73923, 163840])
def test_workspace_stays_near_a_third_of_q_k_and_v(hip_module, manifest, sequence):
    # Per token and head: int8 K and e4m3 V are 256 of the 768 bytes of Q, K and V; the rest is scales and sums.
    q_k_v_bytes = 3 * sequence * 128 * 2
    assert hip_module.plan_call(manifest["launch"], 1, sequence, 1).workspace_bytes <= 0.36 * q_k_v_bytes
