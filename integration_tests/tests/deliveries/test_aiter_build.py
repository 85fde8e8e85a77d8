# SPDX-License-Identifier: MIT
"""aiter's JIT and our module: one source with the Hub's code object, budget, cold and warm starts, broken builds."""

import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tinygrad.runtime.support.elf import elf_loader

from aiter_op import recipe
from hub_kernel import build_code_object
from integration_tests.harness import aiter_delivery, launches
from integration_tests.paths import REPOSITORY

pytestmark = pytest.mark.aiter

KERNELS = set(launches.KERNELS)


@pytest.fixture
def patched(virtual_gpu, rocm_torch) -> aiter_delivery.PatchedAiter:
    """The patched copy, with the module built."""
    aiter_delivery.load_aiter()
    return aiter_delivery.patched_aiter()


def built_flags(patched: aiter_delivery.PatchedAiter) -> list[str]:
    """The flags with which aiter's JIT compiled the module, from the ninja file that it wrote."""
    ninja = (patched.jit / "build" / recipe.MODULE / "build" / "build.ninja").read_text()
    return shlex.split(re.search(r"^cuda_cflags = (.*)$", ninja, re.MULTILINE).group(1))


def launcher(patched: aiter_delivery.PatchedAiter) -> Path:
    (path,) = patched.root.glob(f"**/csrc/**/{recipe.LAUNCHER}")
    return path


def header_flags(flags: list[str]) -> list[str]:
    """Where headers are, and macros: nothing that changes how code is generated."""
    kept = [flag for flag in flags if flag.startswith(("-I", "-D"))]
    return kept + [
        word for flag, value in zip(flags, flags[1:], strict=False) if flag == "-isystem" for word in (flag, value)
    ]


def hipcc(*arguments: str | Path) -> None:
    build_code_object.run([str(aiter_delivery.rocm() / "bin" / "hipcc"), *map(str, arguments)])


def kernel_bytes(code_object: bytes) -> dict[str, tuple[bytes, bytes]]:
    """Machine code and descriptor of each of our kernels, less where the descriptor says how far away the code is."""
    image, sections, _ = elf_loader(code_object)
    by_name = {section.name: section.content for section in sections}
    symbols = {}
    for name, _, _, _, address, size in struct.iter_unpack("<IBBHQQ", by_name[".symtab"]):
        text = bytes(by_name[".strtab"][name:]).split(b"\0", 1)[0].decode()
        symbols[text] = bytes(image[address : address + size])
    descriptors = {name: symbols[f"{name}.kd"] for name in KERNELS}
    # kernel_code_entry_byte_offset: bytes 16 to 24.
    return {name: (symbols[name], descriptors[name][:16] + descriptors[name][24:]) for name in KERNELS}


# One source


def test_module_and_code_object_come_from_the_same_files(patched):
    for source in build_code_object.kernel_sources():
        if source.suffix == ".h":
            (copy,) = patched.root.glob(f"**/csrc/**/{source.name}")
            assert copy.read_bytes() == source.read_bytes()
    includes = launcher(patched).read_text().split("#include")
    assert any('"sage_attention_device.h"' in line for line in includes)


def test_equal_flags_give_the_code_objects_machine_code(patched, tmp_path):
    flags = [*build_code_object.COMPILE_FLAGS, *header_flags(built_flags(patched))]
    # HIP's own headers are the difference between the two sources; they change no kernel of ours.
    flags = [flag for flag in flags if flag != "-nogpuinc"]
    hipcc(*flags, "--no-gpu-bundle-output", "-c", launcher(patched), "-o", tmp_path / "aiter.o")
    build_code_object.build_code_object(tmp_path)
    hub = kernel_bytes((tmp_path / build_code_object.CODE_OBJECT_NAME).read_bytes())
    assert all(len(code) > 1000 and len(descriptor) == 56 for code, descriptor in hub.values())
    assert kernel_bytes((tmp_path / "aiter.o").read_bytes()) == hub


# The build


def test_kernels_keep_their_budget_under_aiters_flags(patched, tmp_path):
    assembly = tmp_path / "kernels.s"
    hipcc(*built_flags(patched), "--offload-device-only", "-S", launcher(patched), "-o", assembly)
    resources = build_code_object.read_resources(assembly.read_text())
    # Main's headers bring a kernel of their own into each unit.
    build_code_object.check_budget({name: resources[name] for name in KERNELS})


def test_other_targets_of_aiters_wheels_get_empty_kernels(patched, tmp_path):
    for architecture in ("gfx942", "gfx950"):
        flags = [flag.replace("=gfx1201", f"={architecture}") for flag in built_flags(patched)]
        assembly = tmp_path / f"{architecture}.s"
        hipcc(*flags, "--offload-device-only", "-S", launcher(patched), "-o", assembly)
        text = assembly.read_text()
        bodies = re.findall(r"^(gfx1201_sage_\w+):.*?\n(.*?)^\s*\.section", text, re.MULTILINE | re.DOTALL)
        assert {name for name, _ in bodies} == KERNELS
        instructions = [line.split()[0] for _, body in bodies for line in body.splitlines() if line.startswith("\ts_")]
        assert instructions == 3 * ["s_endpgm"]


def run_in_a_new_process(*arguments: str | Path) -> dict:
    command = [sys.executable, "-m", "integration_tests.harness.aiter_delivery", *map(str, arguments)]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    return json.loads(result.stdout.splitlines()[-1])


def test_cold_start_builds_on_the_first_call_and_warm_start_builds_nothing(virtual_gpu, tmp_path, capsys):
    cold = run_in_a_new_process("--jit", tmp_path)
    # Import builds what aiter always builds, and nothing of ours.
    assert f"{recipe.MODULE}.so" not in cold["modules_after_import"]
    built = (tmp_path / f"{recipe.MODULE}.so").stat().st_mtime_ns
    warm = run_in_a_new_process("--jit", tmp_path)
    assert (tmp_path / f"{recipe.MODULE}.so").stat().st_mtime_ns == built
    with capsys.disabled():
        for name, report in (("cold", cold), ("warm", warm)):
            first, second = report["calls"]
            print(f"\n{name} start: import {report['import']:.1f} s, first call {first:.3f} s, next {second:.3f} s")


def test_a_build_that_fails_raises_and_leaves_the_process_alive(patched, tmp_path):
    for module in patched.jit.glob("module_aiter_*.so"):
        shutil.copy(module, tmp_path)
    linker = tmp_path / "clang++"
    linker.write_text("#!/bin/sh\nexit 1\n")
    linker.chmod(0o755)
    report = run_in_a_new_process("--jit", tmp_path, "--cxx", linker)
    assert len(report["calls"]) == 2
    for error in report["calls"]:
        assert re.search(rf"build \[{recipe.MODULE}\] under .* failed", error)


@pytest.mark.parametrize("architectures, built", [(["gfx942", "gfx950"], False), (["gfx942", "gfx1201"], True)])
def test_wheels_of_other_architectures_do_not_build_the_module(
    virtual_gpu, rocm_torch, monkeypatch, architectures, built
):
    aiter = aiter_delivery.load_aiter()
    if recipe.recipe_for(aiter_delivery.base_tree()).name != "aiter_main":
        pytest.skip("wheels are built from main")
    monkeypatch.setattr(aiter.core, "get_gfx_list", lambda: architectures)
    modules, _ = aiter.core.get_args_of_build("all")
    assert (recipe.MODULE in {module["md_name"] for module in modules}) is built


# Locks of aiter's builds


@pytest.fixture
def locks(patched):
    """The patched module of locks, by itself."""
    if recipe.recipe_for(aiter_delivery.base_tree()).name != "aiter_release":
        pytest.skip("main breaks the locks of dead builders by itself")
    path = patched.root / "aiter" / "jit" / "utils" / "file_baton.py"
    spec = importlib.util.spec_from_file_location("patched_file_baton", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def dead_process() -> int:
    finished = subprocess.Popen([sys.executable, "-c", ""])
    finished.wait()
    return finished.pid


@pytest.mark.parametrize("age, content", [(0, "{pid} {machine}"), (61, "")], ids=["signed", "of an earlier aiter"])
def test_a_lock_whose_builder_is_gone_ends_in_an_error_with_its_name(locks, tmp_path, age, content):
    lock = tmp_path / "lock_module"
    lock.write_text(content.format(pid=dead_process(), machine=platform.node()))
    os.utime(lock, (time.time() - age,) * 2)
    baton = locks.FileBaton(str(lock), wait_seconds=0.01)
    assert not baton.try_acquire()
    with pytest.raises(RuntimeError) as error:
        baton.wait()
    assert str(error.value) == f"{lock} was left by a build that no longer runs: delete this file."


@pytest.mark.parametrize(
    "content", ["{pid} {machine}", "{dead} another-machine", ""], ids=["alive", "elsewhere", "new"]
)
def test_a_lock_that_may_be_held_is_waited_for(locks, tmp_path, content):
    lock = tmp_path / "lock_module"
    lock.write_text(content.format(pid=os.getpid(), dead=dead_process(), machine=platform.node()))
    threading.Timer(0.05, lock.unlink).start()
    locks.FileBaton(str(lock), wait_seconds=0.01).wait()
    owner = locks.FileBaton(str(lock))
    assert owner.try_acquire() and lock.read_text() == f"{os.getpid()} {platform.node()}"
    owner.release()
    assert not lock.exists()
