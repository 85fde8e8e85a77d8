# SPDX-License-Identifier: MIT
"""Packets of an SQ thread trace of RDNA4 (trace layout 4), the stream in which hardware reports issue and execution.

A stream is a sequence of packets of 1 to 18 nibbles, the lowest nibble of a byte first. Low bits name the packet's
kind; each has a field of cycles that passed since the packet before, so that the sum is the shader clock. The bit
positions are facts of the hardware, as tinygrad (tinygrad/renderer/amd/sqtt.py) states them.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """A kind of packet: its identifying low bits, its length, and where its cycles stand."""

    name: str
    code: str  # the low bits, highest first
    nibbles: int
    delta: int = 0  # first bit of the field of cycles
    delta_bits: int = 0


KINDS = [
    Kind("time_8", "0100001", 18, 8, 3),
    Kind("time_5", "00110", 14, 7, 3),
    Kind("time_short", "1000", 2, 4, 4),
    Kind("time_long", "0000001", 16, 12, 52),
    Kind("time_wide", "11100", 10, 5, 2),
    Kind("vector", "011", 3, 3, 3),
    Kind("memory_executed", "1111", 2, 4, 2),
    Kind("alu_executed", "1110", 2, 4, 2),
    Kind("immediate", "1101", 3, 4, 3),
    Kind("immediate_mask", "00100", 6, 5, 3),
    Kind("wave_ready", "10100", 6, 5, 3),
    Kind("wave_end", "10101", 5, 5, 3),
    Kind("wave_start", "01100", 8, 5, 2),
    Kind("wave_allocated", "00101", 6, 5, 3),
    Kind("performance", "10110", 8, 7, 3),
    Kind("nothing", "0000", 1),
    Kind("state", "1010001", 6, 7, 9),
    Kind("event", "01100001", 6, 8, 3),
    Kind("big_event", "11100001", 8, 8, 3),
    Kind("register", "1001", 16, 4, 3),
    Kind("snapshot", "1110001", 16, 7, 3),
    Kind("header", "0010001", 16),
    Kind("instruction", "010", 5, 3, 3),
    Kind("counter", "0110001", 12, 7, 2),
]
LAYOUT = 4  # of RDNA4

# What an `instruction` packet reports; other vector instructions are `vector` packets.
OPERATIONS = {
    0x00: "scalar",
    0x01: "scalar memory",
    0x03: "branch taken",
    0x04: "branch not taken",
    0x09: "message",
    0x0A: "vector",
    0x0B: "transcendental",
    0x0C: "vector",
    0x0D: "wide shift",
    0x0E: "wide multiply",
    0x21: "memory load",
    0x22: "memory load",
    0x24: "memory store",
    0x25: "memory store",
    0x29: "LDS load",
    0x2A: "LDS store",
    0x2B: "LDS store",
    0x2C: "LDS store",
    0x7A: "barrier signal",
    0x8C: "matrix 8",
    0x8D: "matrix 16",
    0x98: "scalar",
    0x99: "scalar transcendental",
    0x9B: "scalar",
    0x9C: "scalar",
}
# Memory instructions of the CU's other SIMD, which the traced one sees pass.
OF_OTHER_SIMDS = {*range(0x50, 0x5A), *range(0xBC, 0xDE), 0x77, 0x78}
VECTOR = {
    "vector", "transcendental", "wide shift", "wide multiply", "matrix 8", "matrix 16", "scalar transcendental"
}  # fmt: skip


@dataclass(frozen=True)
class Packet:
    """One packet: `time` in shader cycles since the stream began, `bits` as they stand there."""

    time: int
    kind: str
    bits: int

    def field(self, low: int, bits: int) -> int:
        return self.bits >> low & ((1 << bits) - 1)

    @property
    def wave(self) -> int:
        """The wave slot of an issue packet."""
        return self.field(7, 5)

    @property
    def operation(self) -> str:
        """What was issued. ValueError for a code that OPERATIONS does not name."""
        if self.kind != "instruction":
            return self.kind
        code = self.field(12, 8)
        if code in OF_OTHER_SIMDS:
            return "of another SIMD"
        if code not in OPERATIONS:
            raise ValueError(f"thread trace: no operation has the code {code:#x}")
        return OPERATIONS[code]


def _kinds_by_low_byte() -> list[Kind | None]:
    by_length = sorted(KINDS, key=lambda kind: -len(kind.code))
    return [next((kind for kind in by_length if f"{byte:08b}".endswith(kind.code)), None) for byte in range(256)]


_KINDS = _kinds_by_low_byte()


def decode(stream: bytes) -> Iterator[Packet]:
    """The packets of a stream in order. ValueError where it is not one of layout 4."""
    bits, position, time = int.from_bytes(stream, "little"), 0, 0
    while position < 2 * len(stream):
        kind = _KINDS[bits >> 4 * position & 0xFF]
        if kind is None:
            raise ValueError(f"thread trace: no packet begins at nibble {position}")
        raw = bits >> 4 * position & ((1 << 4 * kind.nibbles) - 1)
        position += kind.nibbles
        is_marker = kind.name == "time_long" and raw >> 7 & 3 == 1
        if not is_marker:
            time += (raw >> kind.delta & ((1 << kind.delta_bits) - 1)) + (4 if kind.name == "time_short" else 0)
        packet = Packet(time, kind.name, raw)
        if kind.name == "header" and packet.field(7, 6) != LAYOUT:
            raise ValueError(f"thread trace: layout {packet.field(7, 6)}, not {LAYOUT} (RDNA4)")
        yield packet
