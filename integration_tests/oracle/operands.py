# SPDX-License-Identifier: MIT
"""Operands of one instruction: drawing them at random, their encoding, and what they read and write.

This is the test's own statement of the operand rules: inline constants, literals, the halves of 16-bit registers,
register pairs. The instruction tables say only which operands there are, with which width and number format.
"""

from dataclasses import dataclass, field

import numpy as np
from tinygrad.runtime.autogen.amd.rdna4.operands import OPERANDS

from . import machine
from . import number_formats as nf

_FLOAT_CONSTANTS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0}
_INVERSE_2PI = {"f16": 0x3118, "f32": 0x3E22F983, "f64": 0x3FC45F306DC9C882}
_SPECIAL_INTEGERS = (0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 32767, 32768, 65535, 65536)

# Operands that the published tables describe with half their width.
_WIDER = {("S_CVT_PK_RTZ_F16_F32", "sdst"): ("PK2_F16", 32), ("S_CVT_HI_F32_F16", "src0"): ("PK2_F16", 32)}

# Operand classes that only a scalar register (or, for some, a constant) can fill.
SCALAR_CLASSES = ("OPR_SREG", "OPR_SREG_LITERAL", "OPR_SSRC", "OPR_SSRC_LANESEL")

SOURCE_FIELDS = ("src0", "src1", "src2")


@dataclass
class Operand:
    """One operand slot. ``number`` is AMD's number format without its prefix: F32, PK2_F16, U64, M64 ..."""

    slot: str
    number: str
    bits: int
    place: str  # AMD's operand class: OPR_SRC, OPR_VGPR, OPR_SSRC, ...
    code: int = 0  # value in the 9-bit operand space
    half: int = 0  # 1: the high half of a 16-bit register operand
    literal: int = 0

    @property
    def is_vgpr(self) -> bool:
        return self.code >= machine.VGPR0

    @property
    def words(self) -> int:
        return max(1, self.bits // 32)

    @property
    def format(self) -> nf.Format | None:
        return nf.FORMATS.get(self.number.lower())

    def read(self, registers: np.ndarray, lane: int) -> int:
        """The operand's bits in one lane, before modifiers."""
        if self.is_vgpr:
            words = registers["vgpr"][self.code - machine.VGPR0 :][: self.words, lane]
        elif self.code < 128:
            words = registers["scalar"][self.code : self.code + self.words]
        else:
            return self._constant()
        raw = sum(int(word) << 32 * i for i, word in enumerate(words))
        return raw >> 16 * self.half & ((1 << self.bits) - 1)

    def _constant(self) -> int:
        mask = (1 << self.bits) - 1
        if self.code == machine.LITERAL:
            return self.literal << 32 if self.number == "F64" else self.literal & mask
        if self.code <= 192:
            return self.code - 128
        if self.code <= 208:
            return (192 - self.code) & mask
        fmt = self.format or (nf.F64 if self.bits == 64 else nf.F16 if self.number == "PK2_F16" else nf.F32)
        if self.code == 248:
            return _INVERSE_2PI[fmt.name]
        return nf.bits_of(_FLOAT_CONSTANTS[self.code], fmt)

    def write(self, registers: np.ndarray, lane: int, raw: int) -> None:
        """Writes a destination; the other half of a register that is written by halves stays."""
        if self.code == machine.NULL:
            return
        if not self.is_vgpr:  # a 16-bit result fills a scalar register: its high half becomes 0
            for i in range(self.words):
                registers["scalar"][self.code + i] = raw >> 32 * i & 0xFFFFFFFF
            return
        register = self.code - machine.VGPR0
        if self.bits < 32:
            mask = ((1 << self.bits) - 1) << 16 * self.half
            raw = int(registers["vgpr"][register, lane]) & ~mask | raw << 16 * self.half & mask
        for i in range(self.words):
            registers["vgpr"][register + i, lane] = raw >> 32 * i & 0xFFFFFFFF


def describe(op, encoding: str) -> dict[str, Operand]:
    """The operand slots of an opcode. Masks are 32 bits wide, as in wave32."""
    slots = {}
    for name, (number, bits, place) in OPERANDS[op].items():
        slot = {"vsrc0": "src0", "vsrc1": "src1", "ssrc0": "src0", "ssrc1": "src1", "sdst": "sdst"}.get(name, name)
        number = number.name.removeprefix("FMT_NUM_").removeprefix("FMT_")
        if number == "M64":
            number, bits = "M32", 32
        if number in ("I24", "U24"):
            bits = 32
        number, bits = _WIDER.get((op.name, slot), (number, bits))
        slots[slot] = Operand(slot, number, bits, place.name)
    return slots


def _float_pool(fmt: nf.Format) -> list[int]:
    one, tiny = nf.bits_of(1.0, fmt), 1 << fmt.mantissa
    magnitudes = [0, 1, tiny - 1, tiny, one, one + 1, one - 1, nf.bits_of(0.5, fmt), nf.bits_of(2.5, fmt)]
    magnitudes += [fmt.largest, fmt.infinity, fmt.nan, nf.bits_of(1.5, fmt), nf.bits_of(255.0, fmt)]
    return [m | s for m in magnitudes for s in (0, fmt.sign)]


def random_bits(rng: np.random.Generator, number: str, bits: int) -> int:
    """One operand value: a special one, a moderate one, or any bits."""
    choice = rng.integers(4)
    anything = int.from_bytes(rng.bytes((bits + 7) // 8), "little") & ((1 << bits) - 1)
    if choice == 0:
        return anything
    if "PK" in number and ("F16" in number or "BF16" in number):
        part = "BF16" if "BF16" in number else "F16"
        return random_bits(rng, part, 16) | random_bits(rng, part, 16) << 16
    fmt = nf.FORMATS.get(number.lower())
    if fmt:
        pool = _float_pool(fmt)
        return (
            pool[rng.integers(len(pool))]
            if choice == 1
            else nf.bits_of(float(rng.normal() * 10.0 ** rng.integers(-3, 4)), fmt)
        )
    mask = (1 << bits) - 1
    if choice == 1:
        value = _SPECIAL_INTEGERS[rng.integers(len(_SPECIAL_INTEGERS))]
        return (value if rng.integers(2) else -value) & mask
    if choice == 2:
        return (1 << int(rng.integers(bits))) - int(rng.integers(2)) & mask
    return anything


@dataclass
class Draw:
    """Chooses operands under the hardware's limits: two scalar registers and one literal per vector instruction."""

    rng: np.random.Generator
    scalar: bool  # a scalar instruction has no such limit
    used: set[int] = field(default_factory=set)
    scalars: int = 0
    has_literal: bool = False

    def vgpr(self, words: int, low_half_only: bool = False) -> int:
        """A run of VGPRs disjoint from the earlier ones, or once in a while one of those."""
        limit = (128 if low_half_only else 256) - words
        while True:
            first = int(self.rng.integers(limit))
            if not self.used & set(range(first, first + words)):
                self.used |= set(range(first, first + words))
                return machine.VGPR0 + first

    def sgpr(self, words: int) -> int:
        while True:
            first = int(self.rng.integers(0, 100 // words)) * words
            if not self.used & set(range(-1 - first - words, -1 - first)):
                self.used |= set(range(-1 - first - words, -1 - first))
                return first

    def source(self, operand: Operand, allow_literal: bool, low_half_only: bool) -> None:
        """Fills in an operand's code, half and literal."""
        anywhere = operand.place in ("OPR_SRC", "OPR_SSRC") or (operand.place == "OPR_VGPR" and operand.slot == "src0")
        scalar_only = self.scalar or operand.place in SCALAR_CLASSES
        kinds = [] if scalar_only else ["vgpr"] * 3
        if operand.place not in ("OPR_VGPR", "OPR_SRC_VGPR") and (self.scalar or self.scalars < 2):
            kinds += ["sgpr"] * (3 if self.scalar else 1)
        if anywhere and operand.place != "OPR_VGPR" and operand.bits <= 64:
            kinds.append("integer")
            if operand.format or operand.number in ("B32", "U32", "I32", "PK2_F16"):
                kinds.append("float")
            if allow_literal and not self.has_literal and "PK" not in operand.number:
                kinds.append("literal")
        kind = kinds[self.rng.integers(len(kinds))]
        if kind == "vgpr":
            halves = operand.bits <= 16
            operand.code = self.vgpr(operand.words, low_half_only and halves)
        elif kind == "sgpr":
            operand.code = self.sgpr(operand.words)
            self.scalars += 1
        elif kind == "integer":
            operand.code = int(self.rng.integers(128, 209))
        elif kind == "float":
            operand.code = int(self.rng.integers(240, 248 if operand.number in ("BF16", "PK2_F16") else 249))
        else:
            operand.code, self.has_literal = machine.LITERAL, True
            # A negative literal of a 64-bit integer operand is left out: its extension depends on signedness.
            sample = random_bits(self.rng, "F32" if operand.number == "F64" else operand.number, 32)
            operand.literal = sample & (0x7FFFFFFF if operand.bits == 64 else 0xFFFFFFFF)
