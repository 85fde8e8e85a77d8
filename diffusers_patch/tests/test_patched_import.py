# SPDX-License-Identifier: MIT
"""`import diffusers` after the recipes, each time in a process of its own: whatever aiter is there, it goes well."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from diffusers_patch.__main__ import installed_diffusers
from diffusers_patch.edits import plan
from diffusers_patch.recipes import RECIPES
from diffusers_patch.recipes.aiter_backend import MINIMUM_AITER

WITH_OPERATOR = "def gfx1201_sage_attention(): ..."

# What `import aiter` meets on people's machines: distribution, version, source of the package.
UNUSABLE_AITERS = {
    "without the operator": ("amd-aiter", "0.1.9", ""),
    "unknown GPU": ("amd-aiter", "0.1.9", "raise KeyError('gfx1201')"),
    "no GPU": ("amd-aiter", "0.1.9", "raise RuntimeError('No gfx arch found in rocminfo output.')"),
    "broken library": ("amd-aiter", "0.1.9", "raise OSError('libamdhip64.so.6: cannot open shared object file')"),
    "cannot compile": ("amd-aiter", "0.1.9", "raise SystemExit('no module was built')"),
    # PyPI's project of that name; its version passes the gate, so that the import has to decide.
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
import torch

torch.version.hip = {hip!r}
import diffusers
from diffusers.models import attention_dispatch as dispatch
from diffusers.models.attention_dispatch import AttentionBackendName, _AttentionBackendRegistry

assert diffusers.__file__.startswith({folder!r})
assert _AttentionBackendRegistry.get_active_backend()[0] == AttentionBackendName.NATIVE
"""
REFUSED = """
assert not dispatch._CAN_USE_AITER_SAGE_ATTN
try:
    with dispatch.attention_backend("aiter_sage"):
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


def install(folder, distribution, version, source):
    """Puts a package `aiter` into `folder`, with the metadata of a wheel."""
    (folder / "aiter").mkdir()
    (folder / "aiter" / "__init__.py").write_text(source)
    metadata = folder / f"{distribution.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
    (metadata / "RECORD").write_text("aiter/__init__.py,,\n")


def run(program, patched: Path, other: Path | None = None, hip: str | None = "7.2.53211"):
    path = os.pathsep.join(str(folder) for folder in (other, patched) if folder)
    environment = os.environ | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    environment.pop("DIFFUSERS_ATTN_BACKEND", None)
    program = ONLY_THE_TESTS_AITER + PREAMBLE.format(hip=hip, folder=str(patched)) + program
    result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "aiter" not in result.stderr
    return result.stdout


@pytest.mark.parametrize("aiter", UNUSABLE_AITERS)
def test_unusable_aiter_neither_breaks_nor_warns(aiter, tmp_path, patched):
    install(tmp_path, *UNUSABLE_AITERS[aiter])
    message = run("assert diffusers.utils.is_aiter_available()\n" + REFUSED, patched, tmp_path)
    assert "`gfx1201_sage_attention`" in message and f"install `amd-aiter>={MINIMUM_AITER}`" in message


def test_absent_aiter_neither_breaks_nor_warns(tmp_path, patched):
    # A folder without metadata, such as a checkout beside the script, is no installation.
    (tmp_path / "aiter").mkdir()
    program = (
        "assert not diffusers.utils.is_aiter_available()\n"
        f"assert not diffusers.utils.is_aiter_version('>=', {MINIMUM_AITER!r})\n"
    )
    message = run(program + REFUSED, patched, tmp_path)
    assert f"install `amd-aiter>={MINIMUM_AITER}`" in message
    assert message in (Path(__file__).parents[2] / "docs" / "using_with_diffusers.md").read_text()


@pytest.mark.parametrize(
    "version, hip", [("0.1.6", "7.2.53211"), (MINIMUM_AITER, None)], ids=["too old", "torch without ROCm"]
)
def test_aiter_is_not_even_imported(version, hip, tmp_path, patched):
    install(tmp_path, "amd-aiter", version, WITH_OPERATOR)
    run(REFUSED + "assert 'aiter' not in sys.modules\n", patched, tmp_path, hip)


@pytest.mark.parametrize("version", [MINIMUM_AITER, "0.1.7.post2.dev18", "0.1.8.dev3+g0123456"])
def test_aiter_with_the_operator_is_accepted(version, tmp_path, patched):
    install(tmp_path, "amd-aiter", version, WITH_OPERATOR)
    program = (
        "import aiter\n"
        f"assert diffusers.utils.is_aiter_version('==', {version!r})\n"
        "with dispatch.attention_backend('aiter_sage'):\n"
        "    assert dispatch.aiter_sage_attention is aiter.gfx1201_sage_attention\n"
    )
    run(program, patched, tmp_path)


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
