# SPDX-License-Identifier: MIT
"""Compiles the gfx1201 code object and writes its build record, with nothing but packages from PyPI.

    python hub_kernel/build_code_object.py [--compiler /opt/rocm/llvm/bin] [--out DIR] [--keep-assembly FILE]

The result is `gfx1201_sage_attention.hsaco` and `manifest.json` (schema in hub_kernel/README.md).
The build is reproducible byte for byte on one compiler, and fails when a kernel leaves its budget.
`--keep-assembly` also writes the assembly from which the object was assembled.
"""

import argparse
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
KERNEL_SOURCES = REPOSITORY / "aiter_op" / "csrc"
CODE_OBJECT_SOURCE = REPOSITORY / "hub_kernel" / "code_object.hip"
MANIFEST_PROGRAM = REPOSITORY / "hub_kernel" / "print_launch_manifest.cpp"
DEFAULT_OUT = REPOSITORY / "dist" / "code_object"

CODE_OBJECT_NAME = "gfx1201_sage_attention.hsaco"
ARCHITECTURE = "gfx1201"
COMPILE_FLAGS = [
    "-x",
    "hip",
    f"--offload-arch={ARCHITECTURE}",
    "--offload-device-only",
    "-nogpulib",
    "-nogpuinc",
    "-std=c++17",
    "-O3",
    # The compilation-unit id would carry the path of the source into a symbol name.
    "-fuse-cuid=none",
]

# Six waves per SIMD need <= 240 of gfx1201's 1536 VGPRs; a work-group cannot have more than 64 KiB of LDS.
MAX_VGPRS = 240
MAX_LDS_BYTES = 65536


class BuildGateError(Exception):
    """A kernel compiled, but outside its budget of registers, spills, scratch or LDS."""


@dataclass(frozen=True)
class Compiler:
    """The three tools of one toolchain, each as a command prefix."""

    name: str
    version: str
    clang: list[str]
    linker: list[str]

    @staticmethod
    def find(where: str) -> "Compiler":
        """`where` is "ziglang" (the PyPI package) or the folder of a ROCm or LLVM `clang` and `ld.lld`."""
        if where == "ziglang":
            zig = [sys.executable, "-m", "ziglang"]
            return Compiler("ziglang", importlib.metadata.version("ziglang"), [*zig, "clang"], [*zig, "ld.lld"])
        clang = Path(where) / "clang"
        if not clang.exists():
            raise FileNotFoundError(f"no clang in {where}: give the folder that holds clang and ld.lld")
        return Compiler("clang", "as found", [str(clang)], [str(Path(where) / "ld.lld")])

    def clang_version(self) -> str:
        first_line = subprocess.run([*self.clang, "--version"], check=True, capture_output=True, text=True).stdout
        return first_line.splitlines()[0]


def kernel_sources() -> list[Path]:
    """Every file whose bytes decide the code object, in a fixed order."""
    return [
        CODE_OBJECT_SOURCE,
        KERNEL_SOURCES / "sage_attention_device.h",
        KERNEL_SOURCES / "sage_attention_launch.h",
    ]


def compile_code_object(
    compiler: Compiler,
    out: Path,
    extra_flags: tuple[str, ...] = (),
    source: Path = CODE_OBJECT_SOURCE,
    keep_assembly: Path | None = None,
) -> dict:
    """Writes the linked code object of `source` to `out`; {kernel: resources} from the compiler's metadata.

    `keep_assembly` is where the assembly that the object was made of is copied to, if anywhere.
    """
    with tempfile.TemporaryDirectory() as scratch:
        assembly, object_file = Path(scratch) / "kernel.s", Path(scratch) / "kernel.o"
        sources = [f"-I{KERNEL_SOURCES}", str(source)]
        # Three steps: ziglang's clang finds no lld beside it, so its one-step link fails.
        run([*compiler.clang, *COMPILE_FLAGS, *extra_flags, "-S", *sources, "-o", str(assembly)])
        assemble = ["-target", "amdgcn-amd-amdhsa", f"-mcpu={ARCHITECTURE}", "-c"]
        run([*compiler.clang, *assemble, str(assembly), "-o", str(object_file)])
        run([*compiler.linker, "-shared", str(object_file), "-o", str(out)])
        if keep_assembly:
            shutil.copy(assembly, keep_assembly)
        return read_resources(assembly.read_text("utf-8"))


def read_resources(assembly: str) -> dict:
    """{kernel: {vgpr, sgpr, lds, scratch, vgpr_spills, sgpr_spills, matrix_instructions}} of an assembly file."""
    kernels = re.search(r"\.amdgpu_metadata\n---\namdhsa\.kernels:\n((?: .*\n)*)", assembly)
    if kernels is None:
        raise ValueError("the compiler wrote no .amdgpu_metadata block that begins with its kernels")
    resources = {}
    # YAML as compilers write it: a list item for each kernel, whose own keys stand four columns in. Read without a
    # library, so that the build needs nothing but Python and a compiler.
    for kernel in re.split(r"^  - ", kernels.group(1), flags=re.MULTILINE)[1:]:
        own = dict(re.findall(r"^(?:    )?(\.\w+): +(\S+)$", kernel, re.MULTILINE))
        resources[own[".name"]] = {
            "vgpr": int(own[".vgpr_count"]),
            "sgpr": int(own[".sgpr_count"]),
            "lds": int(own[".group_segment_fixed_size"]),
            "scratch": int(own[".private_segment_fixed_size"]),
            "vgpr_spills": int(own[".vgpr_spill_count"]),
            "sgpr_spills": int(own[".sgpr_spill_count"]),
            "matrix_instructions": len(re.findall(r"^\s+v_wmma_", _body(assembly, own[".name"]), re.MULTILINE)),
        }
    return resources


def _body(assembly: str, kernel: str) -> str:
    """The kernel's instructions."""
    return re.search(rf"^{kernel}:.*?^\.Lfunc_end", assembly, re.DOTALL | re.MULTILINE)[0]


def check_content(resources: dict) -> None:
    """Raises BuildGateError when the kernels are empty, as they are for every architecture but the one they are for."""
    if not any(used["matrix_instructions"] for used in resources.values()):
        raise BuildGateError(f"no kernel has a matrix instruction: was it compiled for {ARCHITECTURE}?")


def check_budget(resources: dict) -> None:
    """Raises BuildGateError naming every kernel and figure that is over budget."""
    faults = []
    for kernel, used in resources.items():
        faults += [f"{kernel} has {used[key]} {key}" for key in ("vgpr_spills", "sgpr_spills", "scratch") if used[key]]
        if used["vgpr"] > MAX_VGPRS:
            faults.append(f"{kernel} uses {used['vgpr']} VGPRs, more than {MAX_VGPRS}")
        if used["lds"] > MAX_LDS_BYTES:
            faults.append(f"{kernel} uses {used['lds']} bytes of LDS, more than {MAX_LDS_BYTES}")
    if faults:
        raise BuildGateError("; ".join(faults))


def build_launch_program(out: Path) -> Path:
    """Compiles print_launch_manifest.cpp for this machine into the folder `out` and returns the program."""
    program = out / "print_launch_manifest"
    # The program uses no C++ library, which zig would compile anew for these flags: a minute on a new machine.
    compile_host = [sys.executable, "-m", "ziglang", "c++", "-std=c++17", "-O1", "-nostdlib++", f"-I{KERNEL_SOURCES}"]
    run([*compile_host, str(MANIFEST_PROGRAM), "-o", str(program)])
    return program


def build_code_object(
    out: Path = DEFAULT_OUT,
    compiler: Compiler | None = None,
    cache: Path | None = None,
    keep_assembly: Path | None = None,
) -> Path:
    """Builds code object and manifest.json into the folder `out`; returns the code object's path.

    With a folder as `cache`, what the same sources and compiler have given before is copied from there.

    Raises BuildGateError when a kernel leaves its budget; then `out` keeps what it had.
    """
    compiler = compiler or Compiler.find("ziglang")
    if cache and not keep_assembly:
        built = cache / _build_key(compiler)
        if not built.exists():
            with staged(built) as staging:
                build_code_object(staging, compiler)
        shutil.copytree(built, out, dirs_exist_ok=True)
        return out / CODE_OBJECT_NAME
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        built = Path(scratch) / CODE_OBJECT_NAME
        resources = compile_code_object(compiler, built, keep_assembly=keep_assembly)
        check_budget(resources)
        check_content(resources)
        launch = json.loads(run([str(build_launch_program(Path(scratch)))]))
        code = built.read_bytes()
    manifest = {
        "schema": 1,
        "arch": ARCHITECTURE,
        "code_object": CODE_OBJECT_NAME,
        "sha256": hashlib.sha256(code).hexdigest(),
        "compiler": {
            "name": compiler.name,
            "version": compiler.version,
            "clang": compiler.clang_version(),
            "flags": COMPILE_FLAGS,
        },
        "sources": source_digests(),
        "kernels": resources,
        "launch": launch,
    }
    (out / CODE_OBJECT_NAME).write_bytes(code)
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
    return out / CODE_OBJECT_NAME


def is_current(folder: Path) -> bool:
    """Whether `folder` holds a whole build of the present sources and flags, by whichever compiler."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text("utf-8"))
        return (
            manifest["arch"] == ARCHITECTURE
            and manifest["compiler"]["flags"] == COMPILE_FLAGS
            and manifest["sources"] == source_digests()
            and manifest["sha256"] == digest_of(folder / manifest["code_object"])
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def source_digests() -> dict[str, str]:
    """The sha256 of each of the sources, by file name."""
    return {path.name: digest_of(path) for path in kernel_sources()}


def digest_of(path: Path) -> str:
    """The sha256 of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _build_key(compiler: Compiler) -> str:
    """Identifies what a build gives: by its sources, this script, which has the flags, and the compiler."""
    digest = hashlib.sha256(f"{compiler.name} {compiler.version} {compiler.clang_version()}".encode())
    for path in (*kernel_sources(), MANIFEST_PROGRAM, Path(__file__)):
        digest.update(bytes.fromhex(digest_of(path)))
    return digest.hexdigest()[:16]


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """A new folder to write into, which becomes `folder` when the block ends without an exception.

    Processes that build the same at once do not disturb each other, nor readers: a `folder` with the same files stays
    as it is, and one with others is there, whole, but for the moment between two renamings.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        new, old = Path(scratch) / "new", Path(scratch) / "old"
        new.mkdir()
        yield new
        while not _same_files(new, folder):
            try:
                if folder.exists():
                    os.rename(folder, old)
                os.rename(new, folder)
                return
            except OSError:
                # Another process has been faster; if it has built the same, there is nothing left to do.
                if not folder.exists():
                    raise


def _same_files(a: Path, b: Path) -> bool:
    def contents(folder: Path) -> dict[str, bytes]:
        files = (path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
        return {str(path.relative_to(folder)): path.read_bytes() for path in files}

    return b.is_dir() and contents(a) == contents(b)


def run(command: list[str]) -> str:
    """Runs a tool; its output, or an exception that carries what it printed."""
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{result.stderr}{result.stdout}")
    return result.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", default="ziglang", help="'ziglang' or the folder of ROCm's clang and ld.lld")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT)
    parser.add_argument("--keep-assembly", type=Path, metavar="FILE", help="where to put the kernels' assembly")
    arguments = parser.parse_args()
    compiler = Compiler.find(arguments.compiler)
    path = build_code_object(arguments.out, compiler, keep_assembly=arguments.keep_assembly)
    manifest = json.loads((path.parent / "manifest.json").read_text("utf-8"))
    size, digest = path.stat().st_size, manifest["sha256"][:16]
    print(f"{path.name}: {size} bytes, sha256 {digest}..., {manifest['compiler']['clang']}")
    for kernel, used in manifest["kernels"].items():
        print(f"  {kernel:28} {used['vgpr']:3} VGPR {used['sgpr']:3} SGPR {used['lds']:5} B LDS, no spills")


if __name__ == "__main__":
    main()
