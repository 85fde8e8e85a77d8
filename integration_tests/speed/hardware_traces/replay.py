# SPDX-License-Identifier: MIT
"""Traced kernels, executed on the virtual device and timed by the model: what hardware did beside what the model says."""

import ctypes
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


def compare(gpu: VirtualGpu, recording: Recording, **changed: float) -> Compared:
    """Runs the recorded kernel and times it; `changed` replaces constants of the model."""
    image = code_object(recording)
    (listing,) = looking.disassemble(gpu.library, image)
    length = len(recording.code)
    hardware = waves_of(recording, [(at, text) for at, text in listing.instructions if at < length])
    operations = {issued.at: issued.operation for issued in hardware}
    out, module = gpu.allocate(bytes(4096)), gpu.load_module(image)
    try:
        with traced(gpu) as traces:
            gpu.launch(module.function("kernel"), (1,), (THREADS,), struct.pack("Q", out), lds=1024)
    finally:
        module.unload()
        gpu.free(out)
    (launch,) = traces.launches
    return Compared(recording.kernel, hardware, list(_schedule(traces, launch, operations, **changed)))


def _schedule(traces: Traces, launch: Launch, operations: dict[int, str], **changed: float) -> Iterator[Issued]:
    steps = traces.schedule(launch, **changed)
    entry = min(step.instruction for step in steps)
    waves = {wave: place for place, wave in enumerate(sorted({step.wave for step in steps}))}
    for step in steps:
        at = 4 * (step.instruction - entry)
        if at in operations:
            yield Issued(waves[step.wave], operations[at], at, step.issued, step.executed or None)


# Cycles of an operation in the vector pipe: hardware reports the last of them, the model the first.
CYCLES = {"matrix 8": 8, "matrix 16": 16, "wide shift": 2, "wide multiply": 4}
