# SPDX-License-Identifier: MIT
"""AMD's pseudo-code by opcode, with the places where the published text cannot be meant literally."""

import functools
from dataclasses import dataclass

from tinygrad.runtime.autogen.amd.rdna4.str_pcode import PCODE


@dataclass(frozen=True)
class Correction:
    """In the text of every instruction whose name starts with one of ``names``, ``old`` reads ``new``."""

    names: tuple[str, ...]
    old: str
    new: str
    reason: str


CORRECTIONS = (
    Correction(
        ("V_RNDNE_F32", "S_RNDNE_F32", "V_DUAL_RNDNE"),
        "D0.f32 = floor(S0.f32 + 0.5F);\nif (isEven(64'F(floor(S0.f32))) && (fract(S0.f32) == 0.5F)) then\n"
        "D0.f32 -= 1.0F\nendif",
        "D0.f32 = round_even(S0.f32)",
        "x + 0.5 rounds: it would send 0.49999997 and odd integers above 2**23 to the wrong neighbour",
    ),
    Correction(
        ("V_RNDNE_F64",),
        "D0.f64 = floor(S0.f64 + 0.5);\nif (isEven(floor(S0.f64)) && (fract(S0.f64) == 0.5)) then\n"
        "D0.f64 -= 1.0\nendif",
        "D0.f64 = round_even(S0.f64)",
        "as for f32",
    ),
    Correction(
        ("V_RNDNE_F16", "S_RNDNE_F16"),
        "D0.f16 = floor(S0.f16 + 16'0.5);\nif (isEven(64'F(floor(S0.f16))) && (fract(S0.f16) == 16'0.5)) then\n"
        "D0.f16 -= 16'1.0\nendif",
        "D0.f16 = round_even(S0.f16)",
        "as for f32",
    ),
    Correction(
        ("V_FREXP_EXP_I32_F32",),
        "exponent(S0.f32) - 127 + 1",
        "frexp_exponent(S0.f32)",
        "the exponent of a denormal is that of its normalised value, and zero gives 0, so that ldexp undoes frexp",
    ),
    Correction(("V_FREXP_EXP_I32_F64",), "exponent(S0.f64) - 1023 + 1", "frexp_exponent(S0.f64)", "as for f32"),
    Correction(("V_FREXP_EXP_I16_F16",), "exponent(S0.f16) - 15 + 1", "frexp_exponent(S0.f16)", "as for f32"),
    Correction(
        ("V_DIV_SCALE_",),
        "VCC = 0x0LL",
        "VCC.u64[laneId] = 1'0U;\nD0.b64 = S0.b64",
        "VCC holds one bit per lane, and an operand that needs no scaling is returned as it is",
    ),
    Correction(("V_DIV_SCALE_",), "VCC = 0x1LL", "VCC.u64[laneId] = 1'1U", "one bit per lane"),
    Correction(
        ("V_DIV_SCALE_F32",),
        "1.0 / 64'F(S1.f32) == DENORM.f64",
        "1.0F / S1.f32 == DENORM.f32",
        "the reciprocal of an f32 is never an f64 denormal: the scaling guards the f32 reciprocal that follows",
    ),
    Correction(
        ("V_DIV_SCALE_F32",),
        "((1.0F / S1.f32 == DENORM.f32) && (S2.f32 / S1.f32 == DENORM.f32)) then\nVCC.u64[laneId] = 1'1U;\n"
        "if S0.f32 == S1.f32 then\n// Only scale the denominator\nD0.f32 = ldexp(S0.f32, 64)",
        "((1.0F / S1.f32 == DENORM.f32) && (S2.f32 / S1.f32 == DENORM.f32)) then\nVCC.u64[laneId] = 1'1U;\n"
        "if S0.f32 == S1.f32 then\nD0.f32 = ldexp(S0.f32, -64)",
        "the denominator is near the top of the range here: scaled up, it would overflow (test_division)",
    ),
    Correction(
        ("V_DIV_SCALE_F64",),
        "((1.0 / S1.f64 == DENORM.f64) && (S2.f64 / S1.f64 == DENORM.f64)) then\nVCC.u64[laneId] = 1'1U;\n"
        "if S0.f64 == S1.f64 then\n// Only scale the denominator\nD0.f64 = ldexp(S0.f64, 128)",
        "((1.0 / S1.f64 == DENORM.f64) && (S2.f64 / S1.f64 == DENORM.f64)) then\nVCC.u64[laneId] = 1'1U;\n"
        "if S0.f64 == S1.f64 then\nD0.f64 = ldexp(S0.f64, -128)",
        "as for f32",
    ),
    Correction(
        ("V_DIV_FMAS_F32",),
        "2.0F ** 32 * fma(S0.f32, S1.f32, S2.f32)",
        "(exponent(S2.f32) > 127 ? 2.0F ** 64 : 2.0F ** -64) * fma(S0.f32, S1.f32, S2.f32)",
        "v_div_scale scales by 2**64 either way; only this undoes it (test_division proves the pair)",
    ),
    Correction(
        ("V_DIV_FMAS_F64",),
        "2.0 ** 64 * fma(S0.f64, S1.f64, S2.f64)",
        "(exponent(S2.f64) > 1023 ? 2.0 ** 128 : 2.0 ** -128) * fma(S0.f64, S1.f64, S2.f64)",
        "as for f32, with 2**128",
    ),
    Correction(
        ("V_CVT_OFF_F32_I4",),
        "declare CVT_OFF_TABLE : 32'F[16];\nD0.f32 = CVT_OFF_TABLE[S0.u32[3 : 0]]",
        "D0.f32 = i32_to_f32(S0.i4) * 2.0F ** -4",
        "the table's contents are not published in the text: it holds the signed nibble divided by 16",
    ),
    Correction(
        ("V_SIN_F32",),
        "sin(S0.f32 * 32'F(PI * 2.0))",
        "sin_turns(S0.f32)",
        "the operand counts turns, and the result is that of the exact angle, not of a rounded product",
    ),
    Correction(
        ("V_COS_F32",),
        "cos(S0.f32 * 32'F(PI * 2.0))",
        "cos_turns(S0.f32)",
        "the operand counts turns, and the result is that of the exact angle, not of a rounded product",
    ),
    Correction(
        ("V_RSQ_F32", "V_S_RSQ_F32"),
        "1.0F / sqrt(S0.f32)",
        "reciprocal_root(S0.f32)",
        "one rounding, not two",
    ),
    Correction(
        ("V_SIN_F16",),
        "sin(S0.f16 * 16'F(PI * 2.0))",
        "sin_turns(S0.f16)",
        "the operand counts turns, and the result is that of the exact angle, not of a rounded product",
    ),
    Correction(
        ("V_COS_F16",),
        "cos(S0.f16 * 16'F(PI * 2.0))",
        "cos_turns(S0.f16)",
        "the operand counts turns, and the result is that of the exact angle, not of a rounded product",
    ),
    Correction(
        ("V_RSQ_F16", "V_S_RSQ_F16"),
        "16'1.0 / sqrt(S0.f16)",
        "reciprocal_root(S0.f16)",
        "one rounding, not two",
    ),
    Correction(("V_RSQ_F64",), "1.0 / sqrt(S0.f64)", "reciprocal_root(S0.f64)", "one rounding, not two"),
    Correction(
        ("V_FRACT_F32",),
        "S0.f32 + -floor(S0.f32)",
        "v_minimum_f32(S0.f32 + -floor(S0.f32), 1.0F - 2.0F ** -24)",
        "the result is below one for every operand; compilers rely on it",
    ),
    Correction(
        ("V_FRACT_F64",),
        "S0.f64 + -floor(S0.f64)",
        "v_minimum_f64(S0.f64 + -floor(S0.f64), 1.0 - 2.0 ** -53)",
        "as for f32",
    ),
    Correction(
        ("V_FRACT_F16",),
        "S0.f16 + -floor(S0.f16)",
        "v_minimum_f16(S0.f16 + -floor(S0.f16), 16'1.0 - 16'2.0 ** -11)",
        "as for f32",
    ),
    Correction(("V_READFIRSTLANE_B32",), "EXEC_LO", "EXEC.u32", "one name for the mask"),
    Correction(
        ("V_DIV_FIXUP_F32",),
        "else\nD0.f32 = sign_out ? -abs(S0.f32) : abs(S0.f32)\nendif",
        "elsif isNAN(64'F(S0.f32)) then\nD0.f32 = sign_out ? -OVERFLOW_F32 : OVERFLOW_F32\n"
        "else\nD0.f32 = sign_out ? -abs(S0.f32) : abs(S0.f32)\nendif",
        "a quotient too large refines to inf - inf; IEEE division, which compilers expand to this, needs infinity",
    ),
    Correction(
        ("V_DIV_FIXUP_F64",),
        "else\nD0.f64 = sign_out ? -abs(S0.f64) : abs(S0.f64)\nendif",
        "elsif isNAN(S0.f64) then\nD0.f64 = sign_out ? -OVERFLOW_F64 : OVERFLOW_F64\n"
        "else\nD0.f64 = sign_out ? -abs(S0.f64) : abs(S0.f64)\nendif",
        "as for f32",
    ),
)


def _correct(name: str, text: str) -> str:
    for correction in CORRECTIONS:
        if name.startswith(correction.names):
            text = text.replace(correction.old, correction.new)
    return text


@functools.cache
def texts() -> dict[tuple[str, str], str]:
    """Corrected pseudo-code by (encoding, instruction name without its encoding suffix)."""
    return {
        (type(op).__name__.removesuffix("Op"), bare_name(op.name)): _correct(op.name, text)
        for op, text in PCODE.items()
    }


def bare_name(name: str) -> str:
    """``V_ADD_F32_E64`` without the encoding suffix."""
    return name.removesuffix("_E32").removesuffix("_E64")


def text_of(encoding: str, name: str) -> str | None:
    """Corrected pseudo-code of an instruction, for example ``("VOP3", "V_ADD_F32")``; None when AMD gives none."""
    return texts().get((encoding, bare_name(name)))


def text_of_instruction(name: str) -> str:
    """The text under any encoding. Raises KeyError."""
    for encoding in ("VOP3", "VOP2", "VOP1", "VOPC", "VOP3P"):
        if (text := text_of(encoding, name)) is not None:
            return text
    raise KeyError(name)
