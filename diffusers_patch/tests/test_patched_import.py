# SPDX-License-Identifier: MIT
"""`import diffusers` after the recipes, each time in a process of its own: it imports no aiter, whatever is installed.
Choosing the backend does, and says what is wrong with it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from diffusers_patch.__main__ import installed_diffusers
from diffusers_patch.edits import plan
from diffusers_patch.recipes import RECIPES

WITH_OPERATOR = "def gfx1201_sage_attention(): ..."

# What `import aiter` meets on people's machines: distribution, version, source of the package.
UNUSABLE_AITERS = {
    "without the operator": ("amd-aiter", "0.1.9", ""),
    "unknown GPU": ("amd-aiter", "0.1.9", "raise KeyError('gfx1201')"),
    "no GPU": ("amd-aiter", "0.1.9", "raise RuntimeError('No gfx arch found in rocminfo output.')"),
    "broken library": ("amd-aiter", "0.1.9", "raise OSError('libamdhip64.so.6: cannot open shared object file')"),
    "cannot compile": ("amd-aiter", "0.1.9", "raise SystemExit('no module was built')"),
    # PyPI's project of that name.
    "unrelated project": ("aiter", "0.13.20191203", "def join(*iterables): ..."),
}

# The environment may have an aiter of its own, which these processes must not see.
ONLY_THE_TESTS_AITER = """
import os
import sys
from importlib.machinery import PathFinder

class Finder(PathFinder):
    folders = os.environ["PYTHONPATH"].split(os.pathsep)

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return super().find_spec(name, cls.folders if name == "aiter" else path, target)

    @classmethod
    def find_distributions(cls, *context):
        for found in super().find_distributions(*context):
            if found.metadata["Name"] != "amd-aiter" or str(found.locate_file("")) in cls.folders:
                yield found

sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
"""
PREAMBLE = """
import sys
import types
import torch

torch.version.hip = {hip!r}
torch.cuda.device_count = lambda: 2
torch.cuda.get_device_properties = lambda index: types.SimpleNamespace(gcnArchName={architectures!r}[index])
import diffusers
from diffusers.models import attention_dispatch as dispatch
from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry

assert diffusers.__file__.startswith({folder!r})
assert _AttentionBackendRegistry.get_active_backend()[0] == AttentionBackendName.NATIVE
"""
REFUSED = """
assert "aiter" not in sys.modules
try:
    with dispatch.attention_backend({backend!r}):
        raise AssertionError("the backend was accepted")
except RuntimeError as error:
    print(error)
"""


def patch(folder, names):
    """A copy of the installed diffusers in `folder`, with the recipes of these names."""
    shutil.copytree(installed_diffusers(), folder / "diffusers", ignore=shutil.ignore_patterns("__pycache__"))
    for name in names:
        plan(RECIPES[name](), folder).apply()
    return folder


@pytest.fixture(scope="module")
def patched(tmp_path_factory):
    return patch(tmp_path_factory.mktemp("patched"), ["aiter_backend"])


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    return patch(tmp_path_factory.mktemp("both"), RECIPES)


def install(folder, distribution, version, source):
    """Puts a package `aiter` into `folder`, with the metadata of a wheel if it has a version."""
    (folder / "aiter").mkdir()
    (folder / "aiter" / "__init__.py").write_text(source)
    if version is None:
        return
    metadata = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (metadata / "RECORD").write_text("aiter/__init__.py,,\n")


def run(
    program,
    patched: Path,
    other: Path | None = None,
    hip: str | None = "7.2.53211",
    architectures: tuple[str, str] = ("gfx1036", "gfx1201:sramecc-:xnack-"),
):
    path = os.pathsep.join(str(folder) for folder in (other, patched) if folder)
    environment = os.environ | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    environment.pop("DIFFUSERS_ATTN_BACKEND", None)
    program = (
        ONLY_THE_TESTS_AITER + PREAMBLE.format(hip=hip, folder=str(patched), architectures=architectures) + program
    )
    result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "aiter" not in result.stderr.replace("aiter_sage", "")
    return result.stdout


@pytest.mark.parametrize("aiter", UNUSABLE_AITERS)
def test_unusable_aiter_is_named_with_its_own_error_when_the_backend_is_chosen(aiter, tmp_path, patched):
    install(tmp_path, *UNUSABLE_AITERS[aiter])
    message = run(REFUSED.format(backend="aiter_sage"), patched, tmp_path)
    cause = re.search(r"raise (\w+\('.*'\))", UNUSABLE_AITERS[aiter][2])
    assert f"failed: {cause[1] if cause else 'ImportError('}" in message
    assert message.strip().endswith("Please install an `amd-aiter` that has this operator.")


def test_absent_aiter_is_told_so_when_the_backend_is_chosen(patched):
    message = run(REFUSED.format(backend="aiter_sage"), patched)
    assert "ModuleNotFoundError(\"No module named 'aiter'\")" in message
    assert message in (Path(__file__).parents[2] / "docs" / "using_with_diffusers.md").read_text()


@pytest.mark.parametrize("backend", ["aiter_sage", "aiter_sage_hub"])
@pytest.mark.parametrize(
    "hip, architectures, found",
    [(None, ("gfx1201", "gfx1201"), "no AMD GPU"), ("7.2.53211", ("gfx1036", "gfx1100"), "gfx1036, gfx1100")],
    ids=["torch without ROCm", "other cards"],
)
def test_a_machine_that_cannot_run_it_is_told_so_when_the_backend_is_chosen(
    backend, hip, architectures, found, tmp_path, both
):
    install(tmp_path, "amd-aiter", "0.1.9", WITH_OPERATOR)
    message = run(REFUSED.format(backend=backend), both, tmp_path, hip, architectures)
    assert (
        f"Backend '{backend}' is not usable because it needs a ROCm build of PyTorch and a gfx1201 GPU. Found "
        in message
    )
    assert message.strip().endswith(f"with {found}.")


@pytest.mark.parametrize("version", ["0.1.dev1", "0.1.7rc1", "0.1.7.post2.dev18", None])
def test_aiter_with_the_operator_is_accepted_whatever_its_version(version, tmp_path, patched):
    install(tmp_path, "amd-aiter", version, WITH_OPERATOR)
    program = (
        "with dispatch.attention_backend('aiter_sage'):\n"
        "    import aiter\n"
        "    assert dispatch.aiter_sage_attention is aiter.gfx1201_sage_attention\n"
    )
    run(program, patched, tmp_path)


@pytest.mark.parametrize("backend", ["aiter_sage", "aiter_sage_hub"])
def test_a_call_loads_what_nothing_has_loaded_before(backend, tmp_path, both):
    install(tmp_path, "amd-aiter", "0.1.9", "def gfx1201_sage_attention(q, k, v, scale): return q + 1")
    program = f"""
import kernels
kernels.get_kernel = lambda *arguments, **options: types.SimpleNamespace(
    gfx1201_sage_attention=lambda q, k, v, softmax_scale: q + 1
)
x = torch.zeros(1, 4, 1, 128, dtype=torch.bfloat16)
out = dispatch.dispatch_attention_fn(x, x, x, backend={backend!r})
assert (out == 1).all()
"""
    run(program, both, tmp_path)


@pytest.mark.parametrize("names", [("hub_backend",), tuple(RECIPES)], ids="+".join)
def test_backends_are_registered_and_load_no_kernel(names, tmp_path):
    backends = {"aiter_backend": "aiter_sage", "hub_backend": "aiter_sage_hub"}
    program = "assert 'kernels' not in sys.modules and 'aiter' not in sys.modules\n"
    for name in names:
        program += (
            f"backend = AttentionBackendName({backends[name]!r})\n"
            "assert backend in _AttentionBackendRegistry.list_backends()\n"
            "assert _AttentionBackendRegistry._is_context_parallel_available(backend)\n"
        )
    run(program, patch(tmp_path, names))
