# SPDX-License-Identifier: MIT
"""Puts the operator into aiter: which file goes where, and which lines upstream's files get.

    python -m aiter_op.recipe check|apply|diff TREE

TREE is a checkout of ROCm/aiter's main, or an installed release of amd-aiter (the folder that holds `aiter` and
`aiter_meta`). `diff` prints a plain git diff.
"""

import argparse
import json
import sys
from pathlib import Path

from diffusers_patch.edits import Edit, EditError, NewFile, Plan, Recipe, plan

HERE = Path(__file__).parent
MODULE = "module_gfx1201_sage_attention"

DEVICE_HEADERS = ["sage_attention_device.h", "sage_attention_launch.h"]
LAUNCHER_HEADER = "gfx1201_sage_attention.h"
LAUNCHER = "gfx1201_sage_attention.cu"
BINDING = "gfx1201_sage_attention_pybind.cu"
PYTHON_FILES = ["gfx1201_sage_attention.py", "sage_attention_contract.py"]
ADAPTER_HEADERS = ["aiter_tensor.h", "aiter_stream.h", "rocm_ops.hpp"]


def module_entry(sources: list[str], **more: object) -> str:
    """The lines of one member of optCompilerConfig.json. Its strings are Python expressions, which aiter evaluates."""
    entry = {
        "srcs": [f"f'{{AITER_CSRC_DIR}}/{source}'" for source in sources],
        # Composable Kernel's headers are neither needed nor, in many installations, there.
        "flags_extra_cc": ["'-DENABLE_CK=0'"],
        "flags_extra_hip": [],
        "extra_ldflags": "None",
        "extra_include": [],
        "verbose": "False",
        "blob_gen_cmd": "''",
    }
    entry["flags_extra_cc"] += more.pop("flags_extra_cc", [])
    # The text of an object that holds only this member, without its braces.
    lines = json.dumps({MODULE: entry | more}, indent=4).splitlines()[1:-1]
    return "\n".join(lines) + ",\n"


def _copy(source: str, target: str, reason: str) -> NewFile:
    return NewFile(target, (HERE / source).read_text(encoding="utf-8"), reason)


def _python_files() -> list[NewFile]:
    return [_copy(f"ops/{name}", f"aiter/ops/{name}", "public operator") for name in PYTHON_FILES]


def main_recipe() -> Recipe:
    """What a pull request to ROCm/aiter's main contains."""
    config = "aiter/jit/optCompilerConfig.json"
    sources = [f"pybind/{BINDING}", f"kernels/{LAUNCHER}"]
    edits = [
        Edit(
            "aiter/__init__.py",
            "",
            "    from .ops.mha import *",
            "after",
            "    from .ops.gfx1201_sage_attention import *\n",
            "export",
        ),
        Edit(
            config,
            "module_mla_metadata",
            '    "module_mla_metadata": {',
            "before",
            module_entry(sources, archs=["'gfx1201'"]),
            "the module's sources and flags",
        ),
        Edit(
            "aiter/jit/core.py",
            "get_args_of_build",
            "                    single_ops = convert(d_ops)",
            "after",
            f"""\
                    # exclude ops of other architectures, such as {MODULE}:
                    # nothing of them would run, so wheels need not build them
                    archs = single_ops.get("archs")
                    if archs and not set(archs) & set(get_gfx_list()):
                        continue
""",
            "modules of one architecture are prebuilt only for it",
        ),
        Edit(
            "aiter/jit/utils/torch_guard.py",
            "NONE_WRAPPED_OP",
            '    "qr_max_size",',
            "after",
            '    "gfx1201_sage_attention_workspace_bytes",\n',
            "returns a number, so it is no torch operator",
        ),
    ]
    files = [_copy(f"csrc/{name}", f"csrc/include/{name}", "device code") for name in DEVICE_HEADERS]
    files += [
        _copy(f"csrc/{LAUNCHER_HEADER}", f"csrc/include/{LAUNCHER_HEADER}", "launcher"),
        _copy(f"csrc/{LAUNCHER}", f"csrc/kernels/{LAUNCHER}", "launcher"),
        _copy(f"csrc/{BINDING}", f"csrc/pybind/{BINDING}", "binding"),
        _copy("op_tests/test_gfx1201_sage_attention.py", "op_tests/test_gfx1201_sage_attention.py", "its test"),
        *_python_files(),
    ]
    return Recipe("aiter_main", "aiter", "gfx1201_sage", tuple(edits), tuple(files))


def release_recipe() -> Recipe:
    """The operator on amd-aiter 0.1.7.post2.dev18, which neither knows gfx1201 nor main's interface for operators."""
    # All C++ files in one folder: there the adapter's headers are found before upstream's of the same name.
    folder = "gfx1201_sage_attention"
    edits = [
        Edit(
            "aiter/jit/utils/chip_info.py",
            "GFX_MAP",
            '    8: "gfx950",',
            "after",
            '    9: "gfx1201",\n',
            "the architecture's number",
        ),
        Edit(
            "aiter/jit/core.py",
            "validate_and_update_archs",
            '        "gfx950",',
            "after",
            '        "gfx1201",\n',
            "an architecture to build for",
        ),
        Edit(
            "aiter/jit/core.py",
            "compile_ops",
            "def compile_ops(",
            "before",
            """\
# For operators written against the interface of main, such as gfx1201_sage_attention.
from .develop_ops import with_develop  # noqa: E402


@with_develop
""",
            "develop=True",
        ),
        Edit(
            "aiter/jit/utils/file_baton.py",
            "FileBaton",
            "            self.fd = os.open(self.lock_file_path, os.O_CREAT | os.O_EXCL)",
            "after",
            """\
            # Who holds it: see refuse_dead_builder.
            with open(self.lock_file_path, "w") as lock:
                lock.write(f"{os.getpid()} {platform.node()}")
""",
            "a lock says who holds it",
        ),
        Edit(
            "aiter/jit/utils/file_baton.py",
            "FileBaton",
            "            time.sleep(self.wait_seconds)",
            "before",
            "            refuse_dead_builder(self.lock_file_path)\n",
            "a lock that nobody holds is not waited for",
        ),
        Edit(
            "aiter/jit/utils/file_baton.py",
            "",
            "import logging",
            "after",
            "import platform\n",
            "which machine a lock is of",
        ),
        Edit(
            "aiter/jit/utils/file_baton.py",
            "",
            "class FileBaton:",
            "before",
            """\
def refuse_dead_builder(lock_file_path):
    \"""Raises RuntimeError for a lock whose process is gone, such as one that was killed while it built.\"""
    try:
        with open(lock_file_path) as lock:
            process, _, machine = lock.read().partition(" ")
        if process and machine != platform.node():
            return
        if process:
            os.kill(int(process), 0)
        elif time.time() - os.path.getmtime(lock_file_path) > 60:
            raise ProcessLookupError  # its owner would have signed it
    except (FileNotFoundError, PermissionError):
        return  # released meanwhile, or another user's process
    except ProcessLookupError:
        raise RuntimeError(
            f"{lock_file_path} was left by a build that no longer runs: delete this file."
        ) from None


""",
            "a lock that nobody holds is not waited for",
        ),
        Edit(
            "aiter/jit/optCompilerConfig.json",
            "module_mla_metadata",
            '    "module_mla_metadata": {',
            "before",
            module_entry(
                [f"{folder}/{BINDING}", f"{folder}/{LAUNCHER}"],
                flags_extra_cc=[f"'-DTORCH_EXTENSION_NAME={MODULE}'"],
                torch_exclude="True",
            ),
            "the module's sources and flags",
        ),
        Edit(
            "aiter/__init__.py",
            "",
            "from .ops.mha import *",
            "after",
            "from .ops.gfx1201_sage_attention import *\n",
            "export",
        ),
    ]
    cpp_files = [f"csrc/{name}" for name in (*DEVICE_HEADERS, LAUNCHER_HEADER, LAUNCHER, BINDING)]
    cpp_files += [f"release_adapter/{name}" for name in ADAPTER_HEADERS]
    files = [
        *(_copy(name, f"aiter_meta/csrc/{folder}/{Path(name).name}", "kernel and launcher") for name in cpp_files),
        _copy("release_adapter/develop_ops.py", "aiter/jit/develop_ops.py", "develop=True"),
        *_python_files(),
    ]
    return Recipe("aiter_release", "aiter", "gfx1201", tuple(edits), tuple(files))


def recipe_for(tree: Path) -> Recipe:
    """The recipe for a tree, told by what only one kind has. EditError, saying what was looked for, for others."""
    if (tree / "csrc" / "include" / "aiter_tensor.h").is_file():
        return main_recipe()
    if (tree / "aiter_meta" / "csrc").is_dir():
        return release_recipe()
    raise EditError(
        f"{tree}: looked for csrc/include/aiter_tensor.h (a checkout of ROCm/aiter whose operators take "
        "aiter_tensor_t) and for aiter_meta/csrc (an installed amd-aiter), found neither"
    )


def plan_for(tree: Path) -> Plan:
    """What applying the operator to `tree` would do. EditError when it cannot be done."""
    return plan(recipe_for(tree), tree)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["check", "apply", "diff"])
    parser.add_argument("tree", type=Path)
    arguments = parser.parse_args()
    try:
        prepared = plan_for(arguments.tree)
    except EditError as error:
        sys.exit(str(error))
    if arguments.action == "diff":
        print(prepared.diff(), end="")
        return
    if arguments.action == "apply":
        prepared.apply()
    for edit, state in prepared.states:
        print(f"{state}: {edit}")


if __name__ == "__main__":
    main()
