# SPDX-License-Identifier: MIT
"""What one arithmetic instruction does to the registers: operands from ``operands``, effect from AMD's pseudo-code."""

from dataclasses import dataclass, field

import numpy as np

from . import amd_pseudo_code, machine, operands
from . import number_formats as nf
from .operands import Operand
from .pseudo_code import parse
from .pseudo_code_values import Environment, Value, unsigned

SCALAR_ENCODINGS = ("SOP1", "SOP2", "SOPC", "SOPK")
_HAS_HALF_BIT = ("VOP1", "VOP2", "VOPC")  # the top bit of an 8-bit VGPR field selects the high half
_CARRY_OUT = ("VOP3SD",)


CROSS_LANE = ("V_READFIRSTLANE", "V_READLANE", "V_WRITELANE", "V_PERMLANE")


class _Row:
    def __init__(self, vgprs: np.ndarray, lane: int):
        self.vgprs, self.lane = vgprs, lane

    def __getitem__(self, register: int) -> Value:
        return unsigned(int(self.vgprs[register, self.lane]))

    def __setitem__(self, register: int, value: Value) -> None:
        self.vgprs[register, self.lane] = value.raw


class _Vgprs:
    """``VGPR[lane][register]`` of the text."""

    def __init__(self, vgprs: np.ndarray):
        self.vgprs = vgprs

    def __getitem__(self, lane: int) -> _Row:
        return _Row(self.vgprs, lane)


@dataclass
class Instruction:
    """One encoded instruction with chosen operands and modifiers."""

    encoding: str
    name: str
    slots: dict[str, Operand]
    neg: int = 0
    abs: int = 0
    clamp: int = 0
    omod: int = 0
    opsel: int = 0  # VOP3P only; for VOP3 the halves are in the slots
    opsel_hi: int = 7
    immediate: int = 0  # simm16 of SOPK, or the literal of fmaak and fmamk
    text: str = field(init=False)

    def __post_init__(self):
        self.text = amd_pseudo_code.text_of(self.encoding, self.name)

    @property
    def sources(self) -> list[Operand]:
        return [self.slots[s] for s in operands.SOURCE_FIELDS if s in self.slots]

    @property
    def is_compare(self) -> bool:
        return self.name.startswith(("V_CMP_", "V_CMPX_"))

    @property
    def takes_literal(self) -> bool:
        return "FMAAK" in self.name or "FMAMK" in self.name or self.name == "S_SETREG_IMM32_B32"

    def code(self) -> bytes:
        fields, literal = {}, self.immediate if self.takes_literal else None
        prefix = {"SOP1": "s", "SOP2": "s", "SOPC": "s"}.get(self.encoding, "")
        for slot, operand in self.slots.items():
            name = prefix + slot if slot.startswith("src") else slot
            if self.encoding in ("VOP2", "VOPC") and slot == "src1":
                name = "vsrc1"
            code = operand.code
            if operand.is_vgpr and self.encoding in _HAS_HALF_BIT:
                code |= operand.half << 7
            if operand.literal or code == machine.LITERAL:
                literal = operand.literal
            if slot == "vdst" and self.encoding in ("VOPC", "VOP3") and self.is_compare and code in (126, 106):
                code = operand.code
            fields[name] = code
        if self.encoding == "VOPC":
            fields.pop("vdst", None)
        if self.encoding == "SOPK":
            fields["simm16"] = self.immediate & 0xFFFF
        fields |= self._modifier_fields()
        if literal is not None:
            fields["literal"] = literal
        variant = "LIT" if literal is not None else ""
        return machine.encode(self.encoding, self.name, variant, **fields)

    def _modifier_fields(self) -> dict[str, int]:
        if self.encoding == "VOP3P":
            return {
                "neg": self.neg,
                "neg_hi": self.abs,
                "clmp": self.clamp,
                "opsel": self.opsel,
                "opsel_hi": self.opsel_hi & 3,
                "opsel_hi2": self.opsel_hi >> 2,
            }
        if self.encoding == "VOP3":
            halves = sum(self.slots[s].half << i for i, s in enumerate(operands.SOURCE_FIELDS) if s in self.slots)
            halves |= self.slots["vdst"].half << 3
            return {
                "neg": self.neg,
                "abs": self.abs,
                "clmp": self.clamp,
                "omod": self.omod,
                "opsel": halves | self.opsel,
            }
        if self.encoding == "VOP3SD":
            return {"neg": self.neg, "clmp": self.clamp, "omod": self.omod}
        return {}

    # --- effect

    def predict(self, before: np.ndarray) -> np.ndarray:
        """The registers afterwards."""
        after = before.copy()
        if self.encoding in SCALAR_ENCODINGS:
            self._run_scalar(before, after)
        elif self.name.startswith(CROSS_LANE):
            self._run_wave(before, after)
        else:
            self._run_vector(before, after)
        return after

    def _run_scalar(self, before: np.ndarray, after: np.ndarray) -> None:
        scalar = before["scalar"]
        names = {f"S{i}": unsigned(s.read(before, 0), s.bits) for i, s in enumerate(self.sources)}
        if self.encoding == "SOPK":
            names["S0"] = names["SIMM16"] = unsigned(self.immediate, 16)
        destination = self.slots.get("sdst")
        if destination:
            names["D0"] = unsigned(destination.read(before, 0), destination.bits)
        names |= {
            "SCC": unsigned(int(before["scc"]), 1),
            "EXEC": unsigned(int(scalar[machine.EXEC]) | int(scalar[machine.EXEC_HI]) << 32, 64),
            "M0": unsigned(int(scalar[machine.M0])),
            "SIMM32": unsigned(self.immediate),
        }
        env = Environment(names, {}, int(before["mode"]))
        parse(self.text)(env)
        exec_mask = env.names["EXEC"].raw
        after["scalar"][machine.EXEC], after["scalar"][machine.EXEC_HI] = exec_mask & 0xFFFFFFFF, exec_mask >> 32
        after["scc"] = env.names["SCC"].raw
        if destination:
            destination.write(after, 0, env.names["D0"].raw)

    def _run_wave(self, before: np.ndarray, after: np.ndarray) -> None:
        """Instructions whose text loops over the lanes itself."""
        scalar = int(before["scalar"][machine.EXEC])
        names = {"EXEC": unsigned(scalar, 64)}
        for i, source in enumerate(self.sources):
            names[f"SRC{i}"] = unsigned(source.code - machine.VGPR0 if source.is_vgpr else 0)
            names[f"S{i}"] = unsigned(source.read(before, 0))
        destination = self.slots["vdst"]
        names["VDST"] = unsigned(destination.code - machine.VGPR0 if destination.is_vgpr else 0)
        names["D0"] = unsigned(0)
        env = Environment(names, {"VGPR": _Vgprs(after["vgpr"])})
        parse(self.text)(env)
        if not destination.is_vgpr:
            destination.write(after, 0, env.names["D0"].raw)

    def _run_vector(self, before: np.ndarray, after: np.ndarray) -> None:
        exec_mask = int(before["scalar"][machine.EXEC])
        mask_in = self._carry_in(before)
        mask_out = {"VCC": 0, "EXEC": 0, "D0": 0}
        run = parse(self.text)
        for lane in range(machine.LANES):
            if not exec_mask >> lane & 1:
                continue
            env = self._lane_environment(before, lane, mask_in)
            run(env)
            if "D1" in env.names:  # the carry of a 64-bit multiply-add, whose text leaves VCC alone
                env.names["VCC"] = unsigned(env.names["D1"].raw << lane, 64)
            for name in mask_out:
                mask_out[name] |= env.names[name].raw & (1 << lane)
            if not self.is_compare:
                self.slots["vdst"].write(after, lane, self._output(env, env.names["D0"]).raw)
            if self.name.startswith("V_SWAP"):
                self.slots["src0"].write(after, lane, env.names["S0"].raw)
        self._write_masks(after, mask_out)

    def _carry_in(self, before: np.ndarray) -> int:
        """The mask that the text calls VCC: a scalar operand where the encoding has one."""
        if "src2" in self.slots and self.slots["src2"].number == "M32":
            return self.slots["src2"].read(before, 0)
        return int(before["scalar"][machine.VCC])

    def _write_masks(self, after: np.ndarray, masks: dict[str, int]) -> None:
        if self.name.startswith("V_CMPX_"):
            after["scalar"][machine.EXEC] = masks["EXEC"]
        elif self.is_compare:
            code = machine.VCC if self.encoding == "VOPC" else self.slots["vdst"].code
            after["scalar"][code] = masks["D0"]
        elif self.encoding in _CARRY_OUT:
            self.slots["sdst"].write(after, 0, masks["VCC"])
        elif "_CO_CI_" in self.name:
            after["scalar"][machine.VCC] = masks["VCC"]

    def _lane_environment(self, before: np.ndarray, lane: int, mask_in: int) -> Environment:
        names = {}
        for i, source in enumerate(self.sources):
            names[f"S{i}"] = self._input(i, source, source.read(before, lane))
        destination = self.slots.get("vdst")
        if self.is_compare:
            names["D0"] = unsigned(0, 64)
        elif destination:
            names["D0"] = unsigned(destination.read(before, lane), destination.bits)
        if "D1." in self.text:
            names["D1"] = unsigned(0, 1)
        names |= {
            "VCC": unsigned(mask_in, 64),
            "EXEC": unsigned(int(before["scalar"][machine.EXEC]), 64),
            "laneId": unsigned(lane),
            "SIMM32": unsigned(self.immediate),
            "OPSEL": unsigned(self.opsel, 4),
            "OPSEL_HI": unsigned(self.opsel_hi, 3),
            "NEG": unsigned(self.neg, 3),
        }
        return Environment(names, {}, int(before["mode"]))

    def _input(self, index: int, source: Operand, raw: int) -> Value:
        """Operand modifiers: halves of packed operands, then absolute value, then negation."""
        if self.encoding == "VOP3P":
            return unsigned(self._packed_input(index, source, raw), source.bits)
        fmt = source.format
        if self.abs >> index & 1:
            raw &= fmt.sign - 1
        if self.neg >> index & 1:
            raw ^= fmt.sign
        return unsigned(raw, source.bits)

    def _packed_input(self, index: int, source: Operand, raw: int) -> int:
        negate_low, negate_high = self.neg >> index & 1, self.abs >> index & 1
        if source.number.startswith("PK2"):
            low, high = (raw >> 16 * (bits >> index & 1) & 0xFFFF for bits in (self.opsel, self.opsel_hi))
            return low ^ negate_low << 15 | (high ^ negate_high << 15) << 16
        if self.name.startswith("V_FMA_MIX"):  # here neg_hi means absolute value
            halves = self.opsel_hi >> index & 1
            sign = (0x8000 << 16 * (self.opsel >> index & 1)) if halves else 1 << 31
            return (raw & ~sign if negate_high else raw) ^ (sign if negate_low else 0)
        return raw

    def _output(self, env: Environment, value: Value) -> Value:
        """Output modifiers of a float result: omod, which needs flushed denormals, then clamp to [0, 1]."""
        fmt = self.slots["vdst"].format
        if fmt is None or not (self.omod or self.clamp):
            return value
        raw = value.raw
        if self.omod and not env.denormals(fmt) & 2:
            factor = {1: 1, 2: 2, 3: -1}[self.omod]
            if not nf.is_nan(raw, fmt) and not nf.is_infinite(raw, fmt):
                negative, significand, exponent = nf.decode(raw, fmt)
                raw = nf.encode((negative, significand, exponent + factor), fmt, env.rounding(fmt))
                raw = 0 if nf.is_denormal(raw, fmt) or raw == fmt.sign else raw
        if self.clamp:
            one = nf.bits_of(1.0, fmt)
            if nf.is_nan(raw, fmt) or nf.is_negative(raw, fmt) or raw == 0:
                raw = 0
            elif raw > one:
                raw = one
        return unsigned(raw, value.width)


def draw(encoding: str, name: str, rng: np.random.Generator) -> Instruction:
    """The instruction with operands chosen at random, without modifiers."""
    slots = operands.describe(machine.operation(encoding, name), encoding)
    chooser = operands.Draw(rng, scalar=encoding in SCALAR_ENCODINGS)
    instruction = Instruction(encoding, name, slots)
    if instruction.takes_literal:
        chooser.has_literal = True
        instruction.immediate = operands.random_bits(rng, "F16" if name.endswith("F16") else "F32", 32)
        instruction.immediate &= 0xFFFF if name.endswith("F16") else 0xFFFFFFFF
    if encoding == "SOPK":
        slots.pop("simm16", None)
        instruction.immediate = operands.random_bits(rng, "I16", 16)
    # First the operands that must be scalar: the others may use up the two that an instruction can read.
    for slot in sorted(
        operands.SOURCE_FIELDS, key=lambda s: s in slots and slots[s].place not in operands.SCALAR_CLASSES
    ):
        if slot in slots:
            _draw_source(instruction, slots[slot], chooser, rng)
    for slot in ("vdst", "sdst"):
        if slot in slots:
            _draw_destination(instruction, slots[slot], chooser, rng)
    return instruction


def _draw_source(instruction: Instruction, operand: Operand, chooser: operands.Draw, rng) -> None:
    short = instruction.encoding in _HAS_HALF_BIT
    if short and operand.slot == "src1":
        operand.place = "OPR_SRC_VGPR"
    elif instruction.name.startswith(CROSS_LANE):
        pass
    elif operand.place == "OPR_VGPR" and instruction.encoding in ("VOP3", "VOP3SD", "VOP3P"):
        # The table lists the DPP form of such operands; the plain form takes any source.
        operand.place = "OPR_SRC"
    # A literal in VOPC, VOP1 and VOP2 sits in src0 only, and so does the one of fmaak.
    chooser.source(operand, allow_literal=True, low_half_only=short)
    if operand.bits == 16 and operand.code != machine.LITERAL and (operand.is_vgpr or instruction.encoding == "VOP3"):
        if not instruction.name.startswith("V_S_"):  # scalar results have no halves, and neither do their sources
            operand.half = int(rng.integers(2)) if operand.is_vgpr or operand.code < 106 else 0


def _draw_destination(instruction: Instruction, operand: Operand, chooser: operands.Draw, rng) -> None:
    if instruction.encoding in SCALAR_ENCODINGS or operand.place in ("OPR_SREG", "OPR_SDST"):
        operand.code = chooser.sgpr(operand.words)
        return
    if operand.place == "OPR_EXEC":
        operand.code = machine.EXEC
        return
    short = instruction.encoding in _HAS_HALF_BIT and operand.bits == 16
    # One time in four the destination is also the first source.
    first = instruction.slots.get("src0")
    if rng.integers(4) == 0 and first is not None and first.is_vgpr and first.words == operand.words:
        operand.code = first.code if not short or first.code < machine.VGPR0 + 128 else chooser.vgpr(1, True)
    else:
        operand.code = chooser.vgpr(operand.words, short)
    if operand.bits == 16 and instruction.encoding in (*_HAS_HALF_BIT, "VOP3"):
        operand.half = int(rng.integers(2))


def fill_sources(instruction: Instruction, registers: np.ndarray, rng: np.random.Generator) -> None:
    """Puts interesting values where the instruction reads."""
    for source in instruction.sources:
        lanes = range(machine.LANES) if source.is_vgpr else range(1)
        if not source.is_vgpr and source.code >= 106:
            continue
        for lane in lanes:
            source.write(registers, lane, operands.random_bits(rng, source.number, source.bits))


# --- comparison ---------------------------------------------------------------------------------------------------


def differences(
    instruction: Instruction, actual: np.ndarray, expected: np.ndarray, before: np.ndarray, ulps: int = 0
) -> list[str]:
    """Every place where the registers differ; results that are NaN on both sides agree."""
    destination = instruction.slots.get("vdst") or instruction.slots.get("sdst")
    found = []
    for name in ("scalar", "scc", "mode", "lds"):
        for i in np.argwhere(np.atleast_1d(actual[name] != expected[name]))[:, 0]:
            got, want = (int(np.atleast_1d(x[name])[i]) for x in (actual, expected))
            if not (destination and destination.code == i and _same_number(instruction, destination, got, want, ulps)):
                found.append(f"{name}[{i}] is {got:#x}, expected {want:#x}")
    for register, lane in np.argwhere(actual["vgpr"] != expected["vgpr"]):
        if (
            destination
            and destination.is_vgpr
            and 0 <= register - (destination.code - machine.VGPR0) < destination.words
        ):
            got, want = destination.read(actual, lane), destination.read(expected, lane)
            if _same_number(instruction, destination, got, want, ulps):
                continue
        values = " ".join(f"{s.slot}={s.read(before, lane):#x}" for s in instruction.sources)
        got, want = int(actual["vgpr"][register, lane]), int(expected["vgpr"][register, lane])
        found.append(f"v{register} lane {lane} is {got:#x}, expected {want:#x} with {values}")
    return found


def _same_number(instruction: Instruction, destination: Operand, got: int, want: int, ulps: int) -> bool:
    if destination.number.startswith("PK2_") and destination.bits == 32:
        fmt = nf.FORMATS.get(destination.number.removeprefix("PK2_").lower())
        if fmt is None:
            return got == want
        return all(_equal(got >> s & 0xFFFF, want >> s & 0xFFFF, fmt, ulps) for s in (0, 16))
    return got == want or (destination.format is not None and _equal(got, want, destination.format, ulps))


def _equal(got: int, want: int, fmt: nf.Format, ulps: int) -> bool:
    if nf.is_nan(got, fmt) and nf.is_nan(want, fmt):
        return True
    return got == want or (ulps > 0 and (got ^ want) & fmt.sign == 0 and abs(got - want) <= ulps)
