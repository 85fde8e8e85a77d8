# SPDX-License-Identifier: MIT
"""Operand and result modifiers, and two instructions in one (VOPD)."""

import numpy as np
import pytest

from . import instruction_model as model
from . import machine, operands
from . import number_formats as nf
from .amd_pseudo_code import text_of
from .pseudo_code import parse
from .pseudo_code_values import Environment, unsigned
from .test_arithmetic import check, names

V = machine.VGPR0
FLUSH_ALL = 0x00
FLOAT_INSTRUCTIONS = (
    "V_ADD_F32",
    "V_MUL_F32",
    "V_FMA_F32",
    "V_MAX_NUM_F32",
    "V_SUBREV_F32",
    "V_ADD_F16",
    "V_MUL_F16",
    "V_FMA_F16",
    "V_MIN_NUM_F16",
    "V_ADD_F64",
    "V_FMA_F64",
    "V_MED3_NUM_F32",
    "V_MAXIMUM_F32",
)


def run(name: str, seed: int, mode: int = machine.MODE_DEFAULT, encoding: str = "VOP3", **modifiers: int) -> list[str]:
    """Differences for random operands and the given modifiers."""
    rng = np.random.default_rng(seed)
    instruction = model.draw(encoding, name, rng)
    for field, value in modifiers.items():
        setattr(instruction, field, value)
    before = machine.new_registers(rng, mode)
    model.fill_sources(instruction, before, rng)
    return check(instruction, before)


@pytest.mark.parametrize("name", FLOAT_INSTRUCTIONS)
def test_negation_and_absolute_value_of_every_operand(name):
    count = 3 if any(part in name for part in ("FMA", "MED3")) else 2
    for neg in range(1 << count):
        for absolute in range(1 << count):
            assert run(name, 100 * neg + absolute, neg=neg, abs=absolute) == [], (neg, absolute)


@pytest.mark.parametrize("name", FLOAT_INSTRUCTIONS)
def test_clamp_limits_results_to_zero_and_one(name):
    for seed in range(8):
        assert run(name, seed, clamp=1) == []


@pytest.mark.parametrize("omod", [1, 2, 3])
@pytest.mark.parametrize("name", ["V_ADD_F32", "V_MUL_F32", "V_FMA_F32", "V_MUL_F16"])
def test_output_scaling_needs_flushed_denormals(name, omod):
    for seed in range(6):
        assert run(name, seed, FLUSH_ALL, omod=omod) == []
        assert run(name, seed, FLUSH_ALL, omod=omod, clamp=1) == []
        # With denormal results kept, the modifier is ignored.
        assert run(name, seed, omod=omod) == []


@pytest.mark.parametrize("name", ["V_PK_ADD_F16", "V_PK_MUL_F16", "V_PK_FMA_F16", "V_PK_MAX_NUM_F16"])
def test_packed_halves_and_signs_are_chosen_per_operand(name):
    rng = np.random.default_rng(1)
    for seed in range(60):
        modifiers = {field: int(rng.integers(8)) for field in ("neg", "abs", "opsel", "opsel_hi")}
        if "FMA" not in name:
            modifiers = {field: value & 3 | 4 * (field == "opsel_hi") for field, value in modifiers.items()}
        assert run(name, seed, encoding="VOP3P", **modifiers) == [], modifiers


@pytest.mark.parametrize(
    "name", ["V_PK_ADD_U16", "V_PK_MUL_LO_U16", "V_PK_MAD_I16", "V_PK_LSHLREV_B16", "V_PK_MAX_I16"]
)
def test_packed_integers_choose_halves(name):
    rng = np.random.default_rng(2)
    for seed in range(30):
        modifiers = {"opsel": int(rng.integers(4)), "opsel_hi": 4 | int(rng.integers(4))}
        assert run(name, seed, encoding="VOP3P", **modifiers) == [], modifiers


@pytest.mark.parametrize("name", ["V_FMA_MIX_F32", "V_FMA_MIXLO_F16", "V_FMA_MIXHI_F16"])
def test_mixed_precision_operands(name):
    rng = np.random.default_rng(3)
    for _ in range(60):
        slots = {f"src{i}": operands.Operand(f"src{i}", "F32", 32, "OPR_SRC", V + 10 + i) for i in range(3)}
        slots["vdst"] = operands.Operand("vdst", "PK2_F16" if "F16" in name else "F32", 32, "OPR_VGPR", V + 1)
        modifiers = {field: int(rng.integers(8)) for field in ("neg", "abs", "opsel", "opsel_hi")}
        instruction = model.Instruction("VOP3P", name, slots, **modifiers)
        before = machine.new_registers(rng)
        for i in range(3):
            for lane in range(machine.LANES):
                number = "F32" if not modifiers["opsel_hi"] >> i & 1 else "PK2_F16"
                before["vgpr"][10 + i, lane] = operands.random_bits(rng, number, 32)
        assert check(instruction, before) == [], modifiers


@pytest.mark.parametrize("signs", range(4))
@pytest.mark.parametrize("name", ["V_DOT4_I32_IU8", "V_DOT8_I32_IU4"])
def test_dot_products_take_the_sign_flags(name, signs):
    for seed in range(4):
        assert run(name, seed, encoding="VOP3P", neg=signs) == []


SATURATING = {
    "V_ADD_NC_U32": (lambda a, b: a + b, 32, False),
    "V_SUB_NC_U32": (lambda a, b: a - b, 32, False),
    "V_ADD_NC_I32": (lambda a, b: a + b, 32, True),
    "V_SUB_NC_I32": (lambda a, b: a - b, 32, True),
    "V_ADD_NC_U16": (lambda a, b: a + b, 16, False),
    "V_SUB_NC_U16": (lambda a, b: a - b, 16, False),
    "V_ADD_NC_I16": (lambda a, b: a + b, 16, True),
    "V_SUB_NC_I16": (lambda a, b: a - b, 16, True),
}


@pytest.mark.parametrize("name", SATURATING)
def test_integer_clamp_saturates(name):
    function, bits, signed = SATURATING[name]
    rng = np.random.default_rng(4)
    before = machine.new_registers(rng)
    before["scalar"][machine.EXEC] = 0xFFFFFFFF
    for register in (2, 3):
        before["vgpr"][register] = [operands.random_bits(rng, "U32", bits) for _ in range(machine.LANES)]
    after = machine.execute(machine.encode("VOP3", name, vdst=1, src0=V + 2, src1=V + 3, clmp=1), before)
    a, b = (before["vgpr"][r].astype(np.int64) & ((1 << bits) - 1) for r in (2, 3))
    if signed:
        a, b = (x - (x >> (bits - 1) << bits) for x in (a, b))
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    expected = np.clip(function(a, b), low, high) & ((1 << bits) - 1)
    assert (after["vgpr"][1].astype(np.int64) & ((1 << bits) - 1) == expected).all()


@pytest.mark.parametrize("name", ["V_MAD_U32_U24", "V_MAD_I32_I24", "V_MAD_U16", "V_MAD_I16"])
def test_multiply_add_without_clamp_wraps(name):
    for seed in range(4):
        assert run(name, seed) == []


def test_inline_constants_in_every_width():
    # 1/(2*pi) and the small integers, as an f16, f32 and f64 operand reads them.
    registers = machine.new_registers()
    for name, code, expected in (
        ("V_MOV_B32", 248, 0x3E22F983),
        ("V_MOV_B32", 193, 0xFFFFFFFF),
        ("V_MOV_B32", 192, 64),
        ("V_MOV_B32", 208, 0xFFFFFFF0),
        ("V_MOV_B32", 240, 0x3F000000),
        ("V_CVT_F32_F16", 248, 0x3E230000),
        ("V_CVT_F32_F16", 242, 0x3F800000),
        ("V_CVT_F32_F64", 247, 0xC0800000),
    ):
        after = machine.execute(machine.encode("VOP1", name, vdst=1, src0=code), registers)
        assert (after["vgpr"][1] == expected).all(), (name, code)


def test_special_scalar_operands():
    registers = machine.new_registers()
    registers["scalar"][machine.VCC], registers["scalar"][machine.M0] = 0x1234, 0x77
    registers["scalar"][machine.EXEC] = 0xF
    registers["scc"] = 1
    registers["scalar"][108] = 0x55AA
    for code, expected in ((106, 0x1234), (125, 0x77), (126, 0xF), (253, 1), (124, 0), (108, 0x55AA)):
        after = machine.execute(machine.encode("SOP1", "S_MOV_B32", sdst=3, ssrc0=code), registers)
        assert after["scalar"][3] == expected, code
    after = machine.execute(machine.encode("SOP1", "S_MOV_B32", sdst=machine.NULL, ssrc0=106), registers)
    assert (after == registers).all()


VOPD_Y_ONLY = ("V_DUAL_ADD_NC_U32", "V_DUAL_LSHLREV_B32", "V_DUAL_AND_B32")  # opcodes that exist in the Y slot only


def vopd_names() -> list[str]:
    return [name for encoding, name in machine.implemented() if encoding.startswith("VOPD")]


def _vopd_half(name: str, before: np.ndarray, s0: int, s1: int, d: int, literal: int) -> np.ndarray:
    text, result = text_of("VOPD", name), before["vgpr"][d].copy()
    for lane in range(machine.LANES):
        if not int(before["scalar"][machine.EXEC]) >> lane & 1:
            continue
        registers = {f"S{i}": unsigned(int(before["vgpr"][r, lane])) for i, r in enumerate((s0, s1))}
        registers["D0"] = unsigned(int(before["vgpr"][d, lane]))
        registers |= {"SIMM32": unsigned(literal), "laneId": unsigned(lane)}
        registers["VCC"] = unsigned(int(before["scalar"][machine.VCC]), 64)
        env = Environment(registers)
        parse(text)(env)
        result[lane] = env.names["D0"].raw
    return result


def test_vopd_pairs_read_before_either_writes():
    rng = np.random.default_rng(6)
    second = sorted({n for n in vopd_names()})
    first = [n for n in second if n not in VOPD_Y_ONLY]
    assert len(first) > 8
    for x in first:
        for y in second:
            before = machine.new_registers(rng)
            for register in (4, 5, 6, 7, 8, 9):
                before["vgpr"][register] = [operands.random_bits(rng, "F32", 32) for _ in range(machine.LANES)]
            # Y reads X's destination: it must see the old value.
            literal = nf.bits_of(1.25, nf.F32)
            variant = "LIT" if any(part in x + y for part in ("FMAAK", "FMAMK")) else ""
            fields = {"literal": literal} if variant else {}
            places = {"vdstx": 8, "srcx0": V + 4, "vsrcx1": 5, "vdsty": 9 >> 1, "srcy0": V + 8, "vsrcy1": 6}
            after = machine.execute(machine.encode("VOPD", (x, y), variant, **places | fields), before)
            expected = before.copy()
            expected["vgpr"][8] = _vopd_half(x, before, 4, 5, 8, literal)
            expected["vgpr"][9] = _vopd_half(y, before, 8, 6, 9, literal)
            for register in (8, 9):
                got, want = (z["vgpr"][register].view(np.float32) for z in (after, expected))
                both_nan = np.isnan(got) & np.isnan(want)
                after["vgpr"][register][both_nan] = expected["vgpr"][register][both_nan]
            assert (after == expected).all(), (x, y)


def test_modifier_tests_use_implemented_instructions():
    available = set(names("VOP3")) | set(names("VOP3P"))
    assert set(FLOAT_INSTRUCTIONS) | set(SATURATING) <= available
