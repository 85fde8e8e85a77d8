# SPDX-License-Identifier: MIT
"""What the machine code costs, by toolchain, and the record that it must not get worse than.

    python -m integration_tests.speed.guard [--record]

Counts only, no times. --record replaces recorded.json by what this machine's toolchains give, and keeps the record of
toolchains that are not here. A change that makes a figure worse on purpose records it and says why in
docs/tuning_log.md.
"""

import argparse
import functools
import json
import shutil
import struct
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch

from hub_kernel.build_code_object import Compiler, build_launch_program, compile_code_object, run
from integration_tests.harness import inputs
from integration_tests.harness.launches import KERNELS, MAIN_KERNEL
from integration_tests.speed import counts
from integration_tests.speed.instruction_classes import slots_per_matrix
from integration_tests.speed.trace import traced
from integration_tests.virtual_gpu import Module, VirtualGpu

RECORD = Path(__file__).with_name("recorded.json")

# What aiter's JIT (aiter/jit/core.py) adds for HIP from 6.3 on, as far as it changes code and clang knows it.
AITER_FLAGS = (
    *("-mllvm", "--amdgpu-kernarg-preload-count=16"),
    "-fgpu-flush-denormals-to-zero",
    *("-mllvm", "--lsr-drop-solution=1"),
    "-fno-offload-uniform-block",
    *("-mllvm", "-enable-post-misched=0"),
    *("-mllvm", "-amdgpu-early-inline-all=true"),
    *("-mllvm", "-amdgpu-function-calls=false"),
)

DEBIAN_CLANG = "clang-19"
CACHE_LINE_BYTES = 128
SIZES = (256, 512)  # sequence lengths: whole work-groups of queries
_FORMATS = {"pointer": "Q", "int64": "q", "float": "f"}


@dataclass(frozen=True)
class Toolchain:
    """A compiler and the flags of one delivery."""

    name: str
    compiler: str  # "ziglang" or a program on the PATH
    flags: tuple[str, ...] = ()

    def find(self) -> Compiler | None:
        """The compiler, or None when this machine does not have it."""
        if self.compiler == "ziglang":
            return Compiler.find("ziglang")
        program, linker = shutil.which(self.compiler), shutil.which(self.compiler.replace("clang", "ld.lld"))
        return Compiler(self.compiler, "as found", [program], [linker]) if program and linker else None


TOOLCHAINS = {
    toolchain.name: toolchain
    for toolchain in (
        Toolchain("ziglang", "ziglang"),
        Toolchain("ziglang, aiter's flags", "ziglang", AITER_FLAGS),
        Toolchain(DEBIAN_CLANG, DEBIAN_CLANG),
        Toolchain(f"{DEBIAN_CLANG}, aiter's flags", DEBIAN_CLANG, AITER_FLAGS),
    )
}

Figures = dict[str, float]


def measure(gpu: VirtualGpu, toolchain: Toolchain, compiler: Compiler) -> Figures:
    """The figures of the code that a toolchain makes, every one better when smaller."""
    with tempfile.TemporaryDirectory() as scratch:
        code = Path(scratch) / "kernels.hsaco"
        resources = compile_code_object(compiler, code, toolchain.flags)
        module = gpu.load_module(code.read_bytes())
        try:
            runs = [_run(gpu, module, size) for size in SIZES]
        finally:
            module.unload()
    tiles = [size // counts.KEYS_PER_TILE for size in SIZES]
    per_tile, _ = counts.split(*(main for main, _ in runs), *tiles)
    figures = {"slots_per_wmma": slots_per_matrix(per_tile), "prologue_bytes": runs[-1][1]}
    for kernel in KERNELS:
        used = resources[kernel]
        figures |= {f"{kernel}.{name}": used[name] for name in ("vgpr", "lds", "scratch")}
        figures[f"{kernel}.spills"] = used["vgpr_spills"] + used["sgpr_spills"]
    return figures


def worse(figures: Figures, record: Figures) -> list[str]:
    """One sentence for each figure that is not at most the recorded one. KeyError when one is not recorded."""
    return [
        f"{name} is {value:g}, recorded {record[name]:g}"
        for name, value in figures.items()
        if not (value <= record[name])
    ]


def read_record() -> dict[str, Figures]:
    return json.loads(RECORD.read_text())


@functools.cache
def _launches() -> tuple[dict, dict[int, dict]]:
    """What sage_attention_launch.h says: the argument struct and launches; workspace and grids by sequence length."""
    with tempfile.TemporaryDirectory() as scratch:
        program = str(build_launch_program(Path(scratch)))
        plans = {size: json.loads(run([program, "1", str(size), "1"])) for size in SIZES}
        return json.loads(run([program])), plans


def _run(gpu: VirtualGpu, module: Module, sequence: int) -> tuple[Counter, int]:
    """One call at [1, sequence, 1, 128]: what a wave of the main kernel executed, and the prologue's DRAM bytes.

    DRAM moves every cache line that a kernel touches once.
    """
    contract, plans = _launches()
    plan = plans[sequence]
    q, k, v = counts.with_early_maximum(1, sequence, 1)
    workspace = torch.empty(plan["workspace_bytes"], dtype=torch.uint8)
    given = {"q": q, "k": k, "v": v, "out": torch.empty_like(q), "workspace": workspace}
    tensors = {name: _on_whole_lines(tensor) for name, tensor in given.items()}
    values = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    values |= {"batch": 1, "sequence": sequence, "heads": 1, "softmax_scale": inputs.SOFTMAX_SCALE}
    for name in ("q", "k", "v"):
        strides = zip(("batch", "sequence", "head"), tensors[name].stride(), strict=False)
        values |= {f"{name}_stride_{axis}": stride for axis, stride in strides}
    layout = "".join(_FORMATS[kind] for _, kind in contract["arguments"])
    arguments = struct.pack(layout, *(values[name] for name, _ in contract["arguments"]))
    arguments = arguments.ljust(contract["argument_bytes"], b"\0")
    with traced(gpu) as traces:
        for step, grid in zip(contract["launches"], plan["grids"], strict=True):
            gpu.launch(module.function(step["kernel"]), grid, (contract["threads"],), arguments)
    prologue = [launch for launch in traces.launches if launch.kernel != MAIN_KERNEL]
    moved = sum(launch.distinct_bytes_read + launch.distinct_bytes_written for launch in prologue)
    return counts.per_wave(traces.of(MAIN_KERNEL)), moved


def _on_whole_lines(tensor: torch.Tensor) -> torch.Tensor:
    """A copy that starts with a cache line: torch's allocator must not decide how many lines it takes."""
    storage = torch.empty(tensor.nbytes + CACHE_LINE_BYTES, dtype=torch.uint8)
    start = -storage.data_ptr() % CACHE_LINE_BYTES
    return storage[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape).copy_(tensor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="replace the record")
    record_new = parser.parse_args().record
    gpu = VirtualGpu.load()
    record = read_record() if RECORD.exists() else {}
    for name, toolchain in TOOLCHAINS.items():
        compiler = toolchain.find()
        if compiler is None:
            print(f"{name}: not on this machine")
            continue
        figures = measure(gpu, toolchain, compiler)
        print(name)
        for figure, value in figures.items():
            before = record.get(name, {}).get(figure)
            print(f"  {figure:44}{value:>10g}" + ("" if before == value else f"  recorded {before}"))
        if record_new:
            record[name] = figures
            RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
