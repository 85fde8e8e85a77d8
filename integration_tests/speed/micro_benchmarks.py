# SPDX-License-Identifier: MIT
"""Runs micro_benchmarks.hip, on a gfx1201 or on the virtual one; needs torch only.

The virtual device has no clock: there a step takes as many cycles as it has instructions, which is no result.
"""

import ctypes
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch

from hub_kernel.build_code_object import COMPILE_FLAGS, Compiler, compile_code_object, digest_of, staged

SOURCE = Path(__file__).with_name("micro_benchmarks.hip")
CODE_OBJECT, RECORD = "micro_benchmarks.hsaco", "micro_benchmarks.json"

WAVE = 32
SIMDS = 4  # of a work-group processor, over which a work-group is spread
WAVES_PER_SIMD = (1, 6)
NOTHING, PLAIN = "nothing", "valu"
ROUNDS, LAUNCHES = 16, 5
_WORDS_PER_WAVE = 2  # struct Measured


@dataclass(frozen=True)
class Step:
    """What one step of a micro-benchmark takes."""

    name: str
    waves: int  # on the SIMD
    cycles: float  # until all `waves` have made theirs
    ratio: float  # to a step of plain VALU at the same number of waves


def build(folder: Path) -> None:
    """Compiles the micro-benchmarks into `folder` with PyPI's ziglang."""
    with staged(folder) as staging:
        resources = compile_code_object(Compiler.find("ziglang"), staging / CODE_OBJECT, source=SOURCE)
        record = {
            "flags": COMPILE_FLAGS,
            "source": digest_of(SOURCE),
            "sha256": digest_of(staging / CODE_OBJECT),
            "kernels": list(resources),
        }
        (staging / RECORD).write_text(json.dumps(record, indent=1) + "\n", "utf-8")


def is_current(folder: Path) -> bool:
    """Whether `folder` holds what `build` makes of the present source."""
    try:
        record = json.loads((folder / RECORD).read_text("utf-8"))
        expected = COMPILE_FLAGS, digest_of(SOURCE), digest_of(folder / CODE_OBJECT)
        return (record["flags"], record["source"], record["sha256"]) == expected
    except (OSError, ValueError, KeyError, TypeError):
        return False


def names(folder: Path) -> list[str]:
    """The micro-benchmarks of a build, in the order of the source."""
    return json.loads((folder / RECORD).read_text("utf-8"))["kernels"]


def measure(
    folder: Path, hip_module: ModuleType, device: torch.device, rounds: int = ROUNDS, launches: int = LAUNCHES
) -> Iterator[Step]:
    """Every micro-benchmark of a build, one wave alone and six on each SIMD, through a loaded Hub package's launcher.

    Of `launches` the fastest counts: the first ones fill the instruction cache and wake the clock.
    """
    launcher = _Launcher(hip_module, (folder / CODE_OBJECT).read_bytes(), device)
    for waves in WAVES_PER_SIMD:
        per_step: dict[str, float] = {}
        branches = launcher.cycles(NOTHING, waves, rounds, launches)[0]
        for name in names(folder):
            cycles, steps = launcher.cycles(name, waves, rounds, launches)
            if name != NOTHING:
                per_step[name] = (cycles - branches) / steps
        for name, cycles in per_step.items():
            yield Step(name, waves, cycles, cycles / per_step[PLAIN])


class _Launcher:
    """The kernels of one code object on torch's current stream."""

    def __init__(self, hip_module: ModuleType, image: bytes, device: torch.device):
        self._hip_module, self._hip = hip_module, hip_module._hip()
        self._out = torch.zeros(max(WAVES_PER_SIMD) * SIMDS * _WORDS_PER_WAVE, dtype=torch.int32, device=device)
        self._module = ctypes.c_void_p()
        self._call("hipModuleLoadData", ctypes.byref(self._module), image)

    def cycles(self, name: str, waves: int, rounds: int, launches: int) -> tuple[int, int]:
        """The last wave's of the fastest launch, and the number of its steps: waves begin together, and a SIMD may well
        serve one after the other."""
        count = 1 if waves == 1 else waves * SIMDS
        found = []
        for _ in range(launches):
            self._launch(name, count * WAVE, rounds)
            measured = self._out[: count * _WORDS_PER_WAVE].tolist()
            found.append((max(measured[::_WORDS_PER_WAVE]), measured[1]))
        return min(found)

    def _launch(self, name: str, threads: int, rounds: int) -> None:
        function = ctypes.c_void_p()
        self._call("hipModuleGetFunction", ctypes.byref(function), self._module, name.encode())
        self._out.zero_()
        out, rounds_argument = ctypes.c_void_p(self._out.data_ptr()), ctypes.c_int(rounds)
        parameters = (ctypes.c_void_p * 2)(ctypes.addressof(out), ctypes.addressof(rounds_argument))
        stream = ctypes.c_void_p(self._hip_module.device_facts(self._out).stream)
        self._call("hipModuleLaunchKernel", function, 1, 1, 1, threads, 1, 1, 0, stream, parameters, None)

    def _call(self, function: str, *arguments: object) -> None:
        self._hip_module._check(self._hip, function, getattr(self._hip, function)(*arguments))
