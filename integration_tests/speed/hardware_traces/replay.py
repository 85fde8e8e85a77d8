# SPDX-License-Identifier: MIT
"""Traced kernels, executed on the virtual device and timed by the model: what hardware did beside what it says."""

import functools
import struct
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hub_kernel.build_code_object import Compiler, compile_code_object
from integration_tests.speed.hardware_traces.packets import VECTOR
from integration_tests.speed.hardware_traces.recordings import Issued, Recording, waves_of
from integration_tests.speed.trace import Launch, Traces, traced
from integration_tests.virtual_gpu import VirtualGpu, looking

THREADS = 128  # of the recorded launches: four waves, two of them on the traced SIMD, so CU mode
SOURCE = """
extern "C" __attribute__((global)) void kernel(void* out) { asm volatile("%s" ::: "v255", "s100", "memory"); }
"""


@functools.cache
def code_object(recording: Recording) -> bytes:
    """A code object whose one kernel is the recorded machine code, word for word."""
    words = struct.unpack(f"<{len(recording.code) // 4}I", recording.code)
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "kernel.hip", Path(folder) / "kernel.hsaco"
        source.write_text(SOURCE % "".join(f".long {word}\\n" for word in words))
        compile_code_object(Compiler.find("ziglang"), out, ("-mcumode",), source)
        return out.read_bytes()


@dataclass(frozen=True)
class Compared:
    """One recording and its replay, both as the traced SIMD's instructions in order of issue."""

    kernel: str
    hardware: list[Issued]
    modelled: list[Issued]


def read(gpu: VirtualGpu, recording: Recording) -> tuple[dict[int, str], list[Issued]]:
    """The recorded code's instructions by offset, and what the traced SIMD's waves issued."""
    (listing,) = looking.disassemble(gpu.library, code_object(recording))
    code = [(at, text) for at, text in listing.instructions if at < len(recording.code)]
    return dict(code), waves_of(recording, code)


def compare(gpu: VirtualGpu, recording: Recording, hardware: list[Issued]) -> Compared:
    """Runs the recorded kernel and times it; `hardware` is what `read` found that its waves issued."""
    image = code_object(recording)
    operations = {issued.at: issued.operation for issued in hardware}
    out, module = gpu.allocate(bytes(4096)), gpu.load_module(image)
    try:
        with traced(gpu) as traces:
            gpu.launch(module.function("kernel"), (1,), (THREADS,), struct.pack("Q", out), lds=1024)
    finally:
        module.unload()
        gpu.free(out)
    (launch,) = traces.launches
    return Compared(recording.kernel, hardware, list(_schedule(traces, launch, operations)))


def _schedule(traces: Traces, launch: Launch, operations: dict[int, str]) -> Iterator[Issued]:
    steps = traces.schedule(launch)
    entry = min(step.instruction for step in steps)
    waves = {wave: place for place, wave in enumerate(sorted({step.wave for step in steps}))}
    for step in steps:
        at = 4 * (step.instruction - entry)
        if at in operations:
            yield Issued(waves[step.wave], operations[at], at, step.issued, step.executed or None)


# Cycles of an operation in the vector pipe: hardware reports the last of them, the model the first.
CYCLES = {"matrix 8": 8, "matrix 16": 16, "wide shift": 2, "wide multiply": 4}
# Longer distances are misses of the instruction cache and of global memory, which the model does not know.
MISS = 300


@dataclass(frozen=True)
class Agreement:
    """Distances in cycles from each instruction of a wave to its next one, hardware's beside the model's.

    A distance is between executions for vector instructions, and between issues otherwise. `left_out` are misses.
    """

    kernel: str
    distances: list[tuple[int, int]]
    left_out: int

    def share_within(self, cycles: int) -> float:
        """Of the distances, those that agree to so many cycles."""
        return sum(abs(a - b) <= cycles for a, b in self.distances) / len(self.distances)

    @property
    def cycles(self) -> tuple[int, int]:
        """Sums of the distances: hardware, model."""
        return sum(a for a, _ in self.distances), sum(b for _, b in self.distances)


def agreement(compared: Compared) -> Agreement:
    """What agrees, wave by wave. ValueError when the waves did not issue the same instructions."""
    distances, left_out = [], 0
    for wave in {issued.wave for issued in compared.hardware}:
        hardware = [(i.at, i.executed or i.issued) for i in compared.hardware if i.wave == wave and _is_timed(i)]
        modelled = [(i.at, _end(i)) for i in compared.modelled if i.wave == wave and _is_timed(i)]
        if [at for at, _ in hardware] != [at for at, _ in modelled]:
            raise ValueError(f"{compared.kernel}: the replay issued other instructions than the recording")
        for before, after, model_before, model_after in zip(
            hardware, hardware[1:], modelled, modelled[1:], strict=False
        ):
            pair = after[1] - before[1], model_after[1] - model_before[1]
            if max(pair) > MISS:
                left_out += 1
            else:
                distances.append(pair)
    return Agreement(compared.kernel, distances, left_out)


def _is_timed(issued: Issued) -> bool:
    return issued.operation in VECTOR or not issued.operation.startswith(("scalar", "immediate", "branch", "message"))


def _end(issued: Issued) -> int:
    return issued.executed + CYCLES.get(issued.operation, 1) - 1 if issued.executed else issued.issued


# What follows what in one wave, and since when cycles are counted.
DRAINED = "VALU executed, then LDS or memory issued"
BESIDE = "LDS or memory issued beside another wave's vector instruction (1) or not (0)"
LOADED = "LDS load issued, then its s_wait_dscnt passed"
BRANCHED = "branch taken, then the wave's next issue"
THROUGH_WAIT = "SALU, s_wait_alu, SALU"
SIGNALLED = "last barrier signal of the waves seen, then vector instruction"


def between_issues(issued: list[Issued], texts: dict[int, str]) -> Counter:
    """(what, cycles) of one recording, counted; `texts`: the code's instructions by offset."""
    result: Counter = Counter()
    vector_cycles = {(i.issued, i.wave) for i in issued if i.operation in VECTOR}
    signals = [i.issued for i in issued if i.operation == "barrier signal"]
    for wave in {i.wave for i in issued}:
        of_wave = [i for i in issued if i.wave == wave]
        for before, after in zip(of_wave, of_wave[1:], strict=False):
            cycles = after.issued - before.issued
            if after.operation.startswith(("LDS", "memory")):
                others = any((after.issued, other) in vector_cycles for other in range(32) if other != wave)
                result[BESIDE, int(others)] += 1
                if before.operation in VECTOR and before.executed:
                    result[DRAINED, after.issued - before.executed] += 1
            if before.operation == "LDS load" and texts[after.at].startswith("s_wait_dscnt 0x0"):
                result[f"{LOADED}: {texts[before.at].split()[0]}", cycles] += 1
            if before.operation == "branch taken" and cycles < MISS:
                result[BRANCHED, cycles] += 1
            if before.operation == after.operation == "scalar" and _s_wait_alu_between(before.at, after.at, texts):
                result[THROUGH_WAIT, cycles] += 1
            if before.operation == "barrier signal" and after.operation in VECTOR:
                result[SIGNALLED, after.issued - max(signals)] += 1
    return result


def _s_wait_alu_between(first: int, last: int, texts: dict[int, str]) -> bool:
    return any(text.startswith("s_wait_alu") for at, text in texts.items() if first < at < last)


def begins_after(issued: list[Issued]) -> Counter:
    """(operation, next operation, same wave or other, cycles between): when the next one began in the vector pipe.

    Counts neighbours in order of execution: 1 is the very next cycle.
    """
    executed = [i for i in issued if i.operation in VECTOR and i.executed is not None]
    result: Counter = Counter()
    for before, after in zip(executed, executed[1:], strict=False):
        begins = after.executed - CYCLES.get(after.operation, 1) + 1
        waves = "same wave" if before.wave == after.wave else "other wave"
        result[before.operation, after.operation, waves, begins - before.executed] += 1
    return result
