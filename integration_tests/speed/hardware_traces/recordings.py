# SPDX-License-Identifier: MIT
"""The recordings in a checkout of tinygrad (extra/sqtt/examples/gfx1200), without running anything of it.

The folder is named gfx1200; the recordings give `gfx_target_version` 120001, a gfx1201, with 128 SIMDs.
"""

import pickle
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from integration_tests.speed.hardware_traces.packets import VECTOR, Packet, decode

FOLDER = Path("extra/sqtt/examples/gfx1200")
NAMES = ("handwritten", "sync", "gemm", "plus")
SKIPPED = ("s_delay_alu", "s_wait_alu", "s_barrier_wait")  # they leave no packet


class _Anything:
    """Stands for every class that a pickle names: holds state, does nothing."""

    def __init__(self, *_, **__):
        pass

    def __setstate__(self, state):
        if isinstance(state, dict):
            self.__dict__.update(state)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        return type(name, (_Anything,), {})


@dataclass(frozen=True)
class Recording:
    """One traced launch, as one shader engine saw it: the kernel's machine code and the stream."""

    kernel: str
    code: bytes
    stream: bytes


@dataclass(frozen=True)
class Issued:
    """One instruction of one wave: `at` is its offset in the code, times are shader cycles.

    `executed` is when hardware reports its execution: the last of its cycles in the vector pipe, None where it
    reports none.
    """

    wave: int
    operation: str
    at: int
    issued: int
    executed: int | None


def recordings(checkout: Path, name: str) -> Iterator[Recording]:
    """The recordings of both runs of a traced program; none where the checkout has none."""
    for file in sorted((checkout / FOLDER).glob(f"profile_{name}_run_*.pkl")):
        with file.open("rb") as stream:
            events = _Unpickler(stream).load()
        kernels = {e.tag: e for e in events if type(e).__name__ == "ProfileProgramEvent"}
        for event in events:
            if type(event).__name__ == "ProfileSQTTEvent" and event.itrace and event.kern in kernels:
                kernel = kernels[event.kern]
                yield Recording(kernel.name, machine_code(kernel.lib), event.blob)


def machine_code(image: bytes) -> bytes:
    """The executable section of an ELF file, which needs no symbols and no program headers."""
    table, entries = struct.unpack_from("<Q", image, 0x28)[0], struct.unpack_from("<H", image, 0x3C)[0]
    for index in range(entries):
        _, kind, flags, _, offset, size = struct.unpack_from("<IIQQQQ", image, table + 64 * index)
        if kind == 1 and flags & 4:
            return image[offset : offset + size]
    raise ValueError("the recording's program has no executable section")


def waves_of(recording: Recording, listing: list[tuple[int, str]]) -> list[Issued]:
    """What the traced SIMD's waves issued, in order of issue; `listing`: (offset, text) of the code."""
    texts = dict(listing)
    offsets = [offset for offset, _ in listing]
    following = dict(zip(offsets, [*offsets[1:], len(recording.code)], strict=True))
    at: dict[int, int] = {}
    issued: list[tuple[Packet, int, int]] = []
    vector_times, scalar_times = [], []
    for packet in decode(recording.stream):
        if (
            packet.kind == "wave_start"
            and not packet.field(7, 1)
            and not packet.field(8, 2)
            and not packet.field(10, 4)
        ):
            at[packet.field(15, 5)] = 0
        elif packet.kind == "alu_executed":
            (scalar_times if packet.field(6, 2) & 1 else []).append(packet.time)
            (vector_times if packet.field(6, 2) & 2 else []).append(packet.time)
        for wave in _waves(packet):
            if wave not in at or packet.operation == "of another SIMD":
                continue
            while texts[at[wave]].startswith(SKIPPED):
                at[wave] = following[at[wave]]
            issued.append((packet, wave, at[wave]))
            at[wave] = _next(packet, texts[at[wave]], at[wave], following[at[wave]])
    vector, scalar = iter(vector_times), iter(scalar_times)

    def executed(operation: str) -> int | None:
        return next(vector, None) if operation in VECTOR else next(scalar, None) if operation == "scalar" else None

    return [Issued(wave, p.operation, where, p.time, executed(p.operation)) for p, wave, where in issued]


def _waves(packet: Packet) -> list[int]:
    if packet.kind == "immediate_mask":
        return [wave for wave in range(16) if packet.field(8 + wave, 1)]
    return [packet.wave] if packet.kind in ("instruction", "vector", "immediate") else []


def _next(packet: Packet, text: str, at: int, following: int) -> int:
    return at + int(text.split()[1], 0) if packet.operation == "branch taken" else following
