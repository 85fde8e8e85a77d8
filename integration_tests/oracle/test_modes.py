# SPDX-License-Identifier: MIT
"""MODE: rounding, denormals and FP16_OVFL, and the instructions that read and write it."""

import numpy as np
import pytest

from . import instruction_model as model
from . import machine
from . import number_formats as nf
from .test_arithmetic import check

V = machine.VGPR0
ROUNDED = (
    "V_ADD_F32",
    "V_SUB_F32",
    "V_MUL_F32",
    "V_FMA_F32",
    "V_ADD_F16",
    "V_MUL_F16",
    "V_FMA_F16",
    "V_CVT_F16_F32",
    "V_CVT_F32_I32",
    "V_CVT_F32_U32",
    "V_ADD_F64",
    "V_MUL_F64",
    "V_FMA_F64",
    "V_LDEXP_F32",
)
DENORMAL_AWARE = (
    "V_ADD_F32",
    "V_MUL_F32",
    "V_FMA_F32",
    "V_ADD_F16",
    "V_MUL_F16",
    "V_FMA_F16",
    "V_ADD_F64",
    "V_FMA_F64",
)
MODE_REGISTER = 1


def run(name: str, mode: int, seed: int, numbers=None) -> list[str]:
    rng = np.random.default_rng(seed)
    instruction = model.draw("VOP3", name, rng)
    before = machine.new_registers(rng, mode)
    model.fill_sources(instruction, before, rng)
    if numbers is not None:
        for source in instruction.sources:
            if source.is_vgpr:
                for lane in range(machine.LANES):
                    source.write(before, lane, numbers(rng, source.format))
    return check(instruction, before)


@pytest.mark.parametrize("rounding", range(4))
@pytest.mark.parametrize("name", ROUNDED)
def test_results_round_as_the_mode_says(name, rounding):
    for seed in range(6):
        assert run(name, 0xF0 | rounding | rounding << 2, seed) == []


def test_f32_and_f16_round_by_their_own_fields():
    for seed in range(4):
        assert run("V_ADD_F32", 0xF0 | nf.TOWARD_PLUS | nf.TOWARD_ZERO << 2, seed) == []
        assert run("V_ADD_F16", 0xF0 | nf.TOWARD_PLUS | nf.TOWARD_ZERO << 2, seed) == []


def small_numbers(rng: np.random.Generator, fmt: nf.Format) -> int:
    """Around the smallest normal number, but not results that round up to it: whether those flush is not published."""
    exponent = fmt.min_exponent + int(rng.integers(-3, 4))
    return nf.encode((bool(rng.integers(2)), 1 + 2 * int(rng.integers(4)), exponent), fmt)


@pytest.mark.parametrize("denormals", range(4))
@pytest.mark.parametrize("name", DENORMAL_AWARE)
def test_denormals_flush_as_the_mode_says(name, denormals):
    for seed in range(6):
        assert run(name, denormals << 4 | denormals << 6, seed, small_numbers) == []


@pytest.mark.parametrize("name", ["V_ADD_F16", "V_MUL_F16", "V_FMA_F16", "V_CVT_F16_F32"])
def test_fp16_ovfl_clamps_finite_overflow(name):
    for seed in range(6):
        assert run(name, machine.MODE_DEFAULT | 1 << 23, seed) == []


def test_conversion_with_round_toward_zero_ignores_the_mode():
    for mode in (0xF0, 0xF5, 0xFA):
        assert run("V_CVT_PK_RTZ_F16_F32", mode, mode) == []


@pytest.mark.parametrize("offset, size", [(0, 4), (4, 4), (0, 8), (23, 1), (2, 2)])
def test_setreg_and_getreg_reach_the_mode(offset, size):
    field = MODE_REGISTER | offset << 6 | (size - 1) << 11
    mask = ((1 << size) - 1) << offset
    before = machine.new_registers(np.random.default_rng(1), mode=0x0080005A)
    value = int(before["scalar"][3])
    codes = [
        (machine.encode("SOPK", "S_SETREG_B32", sdst=3, simm16=field), value),
        (machine.encode("SOPK", "S_SETREG_IMM32_B32", "LIT", simm16=field, literal=0x2DB), 0x2DB),
    ]
    for code, written in codes:
        after = machine.execute(code, before)
        expected = before.copy()
        expected["mode"] = int(before["mode"]) & ~mask | written << offset & mask
        assert (after == expected).all()
    after = machine.execute(machine.encode("SOPK", "S_GETREG_B32", sdst=4, simm16=field), before)
    assert after["scalar"][4] == (int(before["mode"]) & mask) >> offset


def test_setreg_of_fp16_ovfl_is_what_fp8_conversions_see():
    # s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1 ; v_cvt_pk_fp8_f32: what a kernel that wants clamping does.
    registers = machine.new_registers()
    registers["vgpr"][2] = np.float32(1e6).view(np.uint32)
    convert = machine.encode("VOP3", "V_CVT_PK_FP8_F32", vdst=1, src0=V + 2, src1=V + 2)
    switch = machine.encode("SOPK", "S_SETREG_IMM32_B32", "LIT", simm16=MODE_REGISTER | 23 << 6, literal=1)
    assert (machine.execute(convert, registers)["vgpr"][1] == 0x7F7F).all()
    assert (machine.execute(switch + convert, registers)["vgpr"][1] == 0x7E7E).all()


def test_round_and_denorm_mode_instructions():
    implemented = machine.implemented()
    for name, shift in (("S_ROUND_MODE", 0), ("S_DENORM_MODE", 4)):
        if ("SOPP", name) in implemented:
            before = machine.new_registers(mode=0x00800F5A)
            after = machine.execute(machine.encode("SOPP", name, simm16=0x9), before)
            assert after["mode"] == (0x00800F5A & ~(15 << shift) | 9 << shift)


def test_the_cycle_counter_gives_instructions_of_the_wave():
    low, high = (machine.encode("SOPK", "S_GETREG_B32", sdst=4, simm16=id | 31 << 11) for id in (29, 30))
    move = machine.encode("SOP1", "S_MOV_B32", sdst=5, ssrc0=128)
    assert machine.execute(move * 3 + low, machine.new_registers())["scalar"][4] == 3
    assert machine.execute(move + high, machine.new_registers())["scalar"][4] == 0
