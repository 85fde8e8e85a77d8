# SPDX-License-Identifier: MIT
"""Builds the virtual device's shared library with PyPI's ziglang, once per content of its sources.

A unit is compiled again only when its own content or that of a header that it includes has changed.
Run as a script it prints the path of the library.
"""

import contextlib
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from integration_tests.paths import DIST, REPOSITORY, requirement

SOURCES = Path(__file__).parent
LIBRARY = "libamdhip64.so.7"
COMPILER = [sys.executable, "-m", "ziglang", "c++"]
# glibc 2.28 is the oldest that torch's own wheels run on. zig turns undefined behaviour into traps unless told not to.
FLAGS = ["-target", "x86_64-linux-gnu.2.28", "-march=x86_64_v3", "-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden"]
FLAGS += ["-fno-sanitize=undefined", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror=return-type"]
JOBS = len(os.sched_getaffinity(0))
FOLDER = DIST / "virtual_gpu"
OBJECTS = FOLDER / "objects"
ISA = "isa.inc"  # generated from AMD's tables


def source_files() -> list[Path]:
    """Every file that the library is made from, generator scripts included."""
    wanted = {".cpp", ".h", ".inc"}
    files = [path for path in SOURCES.rglob("*") if path.suffix in wanted]
    return sorted([*files, SOURCES / "generate_isa.py", SOURCES / "build.py"])


def toolchain() -> str:
    """What decides, beside the sources, which library comes out."""
    return f"ziglang {version('ziglang')} tinygrad {_tinygrad()} {' '.join(FLAGS)}\n"


def _tinygrad() -> str:
    """The version whose tables are used. A library that is there already can be loaded without them."""
    try:
        return version("tinygrad")
    except PackageNotFoundError:
        return requirement("tinygrad").partition("==")[2]


def content_hash() -> str:
    """Identifies the library that the present sources, compiler and instruction tables give."""
    digest = hashlib.sha256(toolchain().encode())
    for path in source_files():
        digest.update(f"{path.relative_to(SOURCES)} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


def run(command: list[str | Path]) -> None:
    """Runs a command. RuntimeError with its output when it fails."""
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{result.stdout}{result.stderr}")


def included_by(unit: Path, generated: Path) -> set[Path]:
    """`unit` and every file of ours that it includes, directly or not. `generated` is the folder of isa.inc."""
    found, unread = set(), [unit]
    while unread:
        path = unread.pop()
        if path in found:
            continue
        found.add(path)
        names = re.findall(r'^#include "(.*)"', path.read_text(), re.MULTILINE)
        unread += [(generated if name == ISA else SOURCES) / name for name in names]
    return found


def object_name(unit: Path, generated: Path) -> str:
    """The unit's object in OBJECTS, named by everything that decides its content."""
    digest = hashlib.sha256(toolchain().encode())
    for path in sorted(included_by(unit, generated)):
        digest.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return f"{unit.stem}-{digest.hexdigest()[:16]}.o"


def compile_objects(scratch: Path) -> list[Path]:
    """The object of every translation unit, compiled where OBJECTS has none, JOBS at a time."""
    run([sys.executable, SOURCES / "generate_isa.py", scratch / ISA])
    units = [path for path in source_files() if path.suffix == ".cpp"]
    OBJECTS.mkdir(parents=True, exist_ok=True)

    def compile_unit(unit: Path) -> Path:
        target = OBJECTS / object_name(unit, scratch)
        if not target.exists():
            made = scratch / target.name
            run([*COMPILER, *FLAGS, "-I", SOURCES, "-I", scratch, "-c", unit, "-o", made])
            os.replace(made, target)
            print(f"  {unit.relative_to(REPOSITORY)}", file=sys.stderr, flush=True)
        return target

    with ThreadPoolExecutor(JOBS) as pool:
        return list(pool.map(compile_unit, units))


def delete_old_objects(used: list[Path]) -> None:
    """Keeps the objects of the last build and what another build may just be making."""
    an_hour_ago = time.time() - 3600
    for path in used:
        path.touch()
    for path in set(OBJECTS.iterdir()) - set(used):
        # Another build may delete the same object at the same time.
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < an_hour_ago:
                path.unlink()


def build() -> Path:
    """Returns the library built from the present sources, building it if need be. RuntimeError when that fails."""
    folder = FOLDER / content_hash()
    library = folder / LIBRARY
    if library.exists():
        return library
    if find_spec("tinygrad") is None:
        install = f"python -m pip install {requirement('tinygrad')}"
        raise RuntimeError(f"building the virtual gfx1201 needs AMD's instruction tables: {install}")
    print(
        "building the virtual gfx1201 (seconds for a changed unit, a minute or two for all)",
        file=sys.stderr,
        flush=True,
    )
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
        generated, made = Path(scratch) / "generated", Path(scratch) / "made"
        generated.mkdir()
        made.mkdir()
        objects = compile_objects(generated)
        flags = [*FLAGS, "-shared", f"-Wl,-soname,{LIBRARY}", "-lpthread"]
        run([*COMPILER, *flags, *objects, "-o", made / LIBRARY])
        delete_old_objects(objects)
        # Programs link against the plain name.
        (made / "libamdhip64.so").symlink_to(LIBRARY)
        try:
            # In one step: whoever sees the library sees all of it. One that is there may be in use and stays.
            made.rename(folder)
        except OSError:
            if not library.exists():
                raise
    return library


if __name__ == "__main__":
    print(build())
