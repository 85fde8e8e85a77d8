# SPDX-License-Identifier: MIT
"""Builds the virtual device's shared library with PyPI's ziglang, once per content of its sources.

Run as a script it prints the path of the library.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

from integration_tests.paths import DIST, REPOSITORY

SOURCES = Path(__file__).parent
LIBRARY = "libamdhip64.so.7"
COMPILER = [sys.executable, "-m", "ziglang", "c++"]
# glibc 2.28 is the oldest that torch's own wheels run on. zig turns undefined behaviour into traps unless told not to.
FLAGS = ["-target", "x86_64-linux-gnu.2.28", "-march=x86_64_v3", "-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden"]
FLAGS += ["-fno-sanitize=undefined", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror=return-type"]
JOBS = 2


def source_files() -> list[Path]:
    """Every file that the library is made from, generator scripts included."""
    wanted = {".cpp", ".h", ".inc"}
    files = [path for path in SOURCES.rglob("*") if path.suffix in wanted]
    return sorted([*files, SOURCES / "generate_isa.py", SOURCES / "build.py"])


def content_hash() -> str:
    """Identifies the library that the present sources, compiler and instruction tables give."""
    digest = hashlib.sha256(f"ziglang {version('ziglang')} tinygrad {version('tinygrad')}\n".encode())
    for path in source_files():
        digest.update(f"{path.relative_to(SOURCES)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def run(command: list[str | Path]) -> None:
    """Runs a command. RuntimeError with its output when it fails."""
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")


def compile_objects(folder: Path) -> list[Path]:
    """Compiles every translation unit into `folder`, JOBS at a time."""
    run([sys.executable, SOURCES / "generate_isa.py", folder / "isa.inc"])
    units = [path for path in source_files() if path.suffix == ".cpp"]

    def compile_unit(unit: Path) -> Path:
        target = folder / f"{unit.relative_to(SOURCES).with_suffix('').as_posix().replace('/', '_')}.o"
        run([*COMPILER, *FLAGS, "-I", SOURCES, "-I", folder, "-c", unit, "-o", target])
        print(f"  {unit.relative_to(REPOSITORY)}", file=sys.stderr, flush=True)
        return target

    with ThreadPoolExecutor(JOBS) as pool:
        return list(pool.map(compile_unit, units))


def build() -> Path:
    """Returns the library built from the present sources, building it if need be. RuntimeError when that fails."""
    folder = DIST / "virtual_gpu" / content_hash()
    library = folder / LIBRARY
    if library.exists():
        return library
    print("building the virtual gfx1201 (one to two minutes)", file=sys.stderr, flush=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent))
    try:
        objects = compile_objects(scratch)
        flags = [*FLAGS, "-shared", f"-Wl,-soname,{LIBRARY}", "-lpthread"]
        run([*COMPILER, *flags, *objects, "-o", scratch / LIBRARY])
        folder.mkdir(exist_ok=True)
        # Programs link against the plain name.
        (scratch / "libamdhip64.so").symlink_to(LIBRARY)
        os.replace(scratch / "libamdhip64.so", folder / "libamdhip64.so")
        # Last, and in one step: whoever sees the library sees all of it.
        os.replace(scratch / LIBRARY, library)
    finally:
        shutil.rmtree(scratch)
    return library


if __name__ == "__main__":
    print(build())
