# SPDX-License-Identifier: MIT
"""The evaluator itself: number formats against NumPy and torch, the language against results worked out by hand."""

import itertools

import numpy as np
import pytest
import torch

from . import amd_pseudo_code
from . import number_formats as nf
from .pseudo_code import parse
from .pseudo_code_values import Environment, Unusable, Value, floating, unsigned

NUMPY = {"f16": (np.float16, np.uint16), "f32": (np.float32, np.uint32), "f64": (np.float64, np.uint64)}


def run(text: str, mode: int = 0xF0, **registers: int) -> dict:
    env = Environment({name: Value(raw, 64, "u") for name, raw in registers.items()}, {}, mode)
    parse(text)(env)
    return {name: value.raw for name, value in env.names.items() if isinstance(value, Value)}


def numpy_bits(values: np.ndarray, name: str) -> list[int]:
    return [int(b) for b in values.view(NUMPY[name][1])]


def random_floats(rng: np.random.Generator, name: str, count: int) -> np.ndarray:
    """Any bit patterns and moderate numbers in equal shares."""
    float_type, integer_type = NUMPY[name]
    anything = rng.integers(0, np.iinfo(integer_type).max, count, dtype=integer_type, endpoint=True).view(float_type)
    with np.errstate(over="ignore"):
        moderate = (rng.normal(size=count) * 10.0 ** rng.integers(-4, 5, count)).astype(float_type)
    return np.where(rng.integers(2, size=count) == 1, anything, moderate)


def equal(actual: int, expected: int, fmt: nf.Format) -> bool:
    return actual == expected or (nf.is_nan(actual, fmt) and nf.is_nan(expected, fmt))


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize(
    "text, function",
    [
        ("S0 + S1", np.add),
        ("S0 - S1", np.subtract),
        ("S0 * S1", np.multiply),
        ("S0 / S1", np.divide),
        ("sqrt(S0)", lambda a, b: np.sqrt(a)),
    ],
)
def test_arithmetic_agrees_with_numpy(name, text, function):
    rng, fmt = np.random.default_rng(1), nf.FORMATS[name]
    a, b = random_floats(rng, name, 400), random_floats(rng, name, 400)
    with np.errstate(all="ignore"):
        expected = numpy_bits(function(a, b), name)
    typed = text.replace("S0", f"S0.{name}").replace("S1", f"S1.{name}")
    for x, y, z in zip(numpy_bits(a, name), numpy_bits(b, name), expected, strict=True):
        assert equal(run(f"D0.{name} = {typed}", S0=x, S1=y, D0=0)["D0"], z, fmt), (hex(x), hex(y))


def test_fma_rounds_once():
    # (1 + 2**-12)**2 = 1 + 2**-11 + 2**-24: rounding the product first would lose the last term.
    x, minus = nf.bits_of(1 + 2**-12, nf.F32), nf.bits_of(-(1 + 2**-11), nf.F32)
    assert run("D0.f32 = fma(S0.f32, S0.f32, S1.f32)", S0=x, S1=minus, D0=0)["D0"] == nf.bits_of(2**-24, nf.F32)


@pytest.mark.parametrize("mode, expected", list(enumerate([0x3F800000, 0x3F800001, 0x3F800000, 0x3F800000])))
def test_rounding_modes_of_one_plus_a_little(mode, expected):
    # Round to nearest, up, down, toward zero of 1 + 2**-60.
    assert nf.encode(nf.from_float(1 + 2**-52), nf.F32, mode) == expected
    mirrored = {nf.TOWARD_PLUS: 0xBF800000, nf.TOWARD_MINUS: 0xBF800001}.get(mode, 0xBF800000)
    assert nf.encode(nf.from_float(-1 - 2**-52), nf.F32, mode) == mirrored


@pytest.mark.parametrize(
    "fmt, dtype", [(nf.FP8, torch.float8_e4m3fn), (nf.BF8, torch.float8_e5m2), (nf.BF16, torch.bfloat16)]
)
def test_narrow_formats_agree_with_torch(fmt, dtype):
    patterns = torch.arange(1 << fmt.width, dtype=torch.int32)
    integer = torch.uint8 if fmt.width == 8 else torch.uint16
    values = patterns.to(integer).view(dtype).double()
    for bits, value in enumerate(values.tolist()):
        assert nf.is_nan(bits, fmt) if value != value else nf.to_float(bits, fmt) == value
        if value == value:
            assert nf.bits_of(value, fmt) == bits
    # Between neighbours: torch rounds to nearest even, and its result stays finite below the largest number.
    finite = [b for b in range(fmt.largest)]
    for low in finite if fmt.width == 8 else finite[::97]:
        middle = (nf.to_float(low, fmt) + nf.to_float(low + 1, fmt)) / 2
        for value in (
            middle,
            np.nextafter(np.float32(middle), np.float32(0)),
            np.nextafter(np.float32(middle), np.float32(np.inf)),
        ):
            expected = torch.tensor([float(value)]).float().to(dtype).view(integer).item()
            assert nf.bits_of(float(np.float32(value)), fmt) == expected


@pytest.mark.parametrize("name", NUMPY)
def test_conversions_between_formats_agree_with_numpy(name):
    rng = np.random.default_rng(2)
    source = random_floats(rng, name, 500)
    for other in NUMPY:
        with np.errstate(all="ignore"):
            expected = numpy_bits(source.astype(NUMPY[other][0]), other)
        for x, z in zip(numpy_bits(source, name), expected, strict=True):
            result = run(f"D0.{other} = {name}_to_{other}(S0.{name})", S0=x, D0=0)["D0"]
            assert equal(result, z, nf.FORMATS[other])


def test_float_to_integer_truncates_saturates_and_maps_nan_to_zero():
    cases = {1.9: 1, -1.9: -1, 3e9: 2**31 - 1, -3e9: -(2**31), float("nan"): 0, float("inf"): 2**31 - 1}
    for value, expected in cases.items():
        result = run("D0.i32 = f32_to_i32(S0.f32)", S0=nf.bits_of(value, nf.F32), D0=0)["D0"]
        assert result == expected & 0xFFFFFFFF


def test_denormals_flush_when_the_mode_says_so():
    smallest_normal, half = 0x00800000, nf.bits_of(0.5, nf.F32)
    text = "D0.f32 = S0.f32 * S1.f32"
    assert run(text, S0=smallest_normal, S1=half, D0=0)["D0"] == 0x00400000
    assert run(text, mode=0xD0, S0=smallest_normal, S1=half, D0=0)["D0"] == 0  # results flushed
    two = nf.bits_of(2.0, nf.F32)
    assert run(text, mode=0xE0, S0=0x00400000, S1=two, D0=0)["D0"] == 0  # operands flushed
    assert run(text, S0=0x00400000, S1=two, D0=0)["D0"] == smallest_normal


@pytest.mark.parametrize(
    "text, expected",
    [
        ("D0.u32 = S0.u32[0 : 31]", int(f"{0x12345678:032b}"[::-1], 2)),
        ("D0.u32 = { S0[7 : 0].u16, S0[31 : 16].u16 }", 0x00781234),
        ("D0[15 : 8] = 8'0xff", 0xDEADFFEF),
        ("D0.u16 = 16'7U", 0xDEAD0007),
        ("D0.i32 = 32'I(signext(S1.i8))", 0xFFFFFF80),
        ("D0.u32 = S1.i8 < 8'0 ? 1U : 2U", 1),
        ("D0.i32 = S1.i8 >> 3U", 0xFFFFFFF0),
        ("D0.u32 = 32'U((64'U(S2.u32) * 64'U(S2.u32)) >> 32U)", 0xFFFFFFFE),
        ("D0.i32 = S2.i32 * S2.i32", 1),
        ("D0.u32 = (1U << 32U) - 1U", 0xFFFFFFFF),
        ("tmp = 0U;\nfor i in 0 : 31 do\ntmp += S0[i].u32;\nendfor;\nD0.u32 = tmp", 13),
        ("D0.i32 = -1;\nfor i in 0 : 31 do\nif S0.u32[i] == 1'1U then\nD0.i32 = i;\nbreak\nendif\nendfor", 3),
        ("F = lambda(x, y) (\nx > y ? x - y : y - x);\nD0.u32 = F(3U, 10U)", 7),
        (
            "if S0.u32 == 0U then\nD0.u32 = 1U\nelsif S0.u32 == 0x12345678 then\nD0.u32 = 2U\nelse\nD0.u32 = 3U\nendif",
            2,
        ),
        ("D0.f32 = S3.f32 * 2.0F ** -149", 0x00000001),
        ("D0.f32 = 32'F(0xffc00000)", 0xFFC00000),
        ("D0.u32[S1.u32[4 : 0]] = 1'0U", 0xDEADBEEE),
        ("tmp[31 : 16].f16 = f32_to_f16(S3.f32);\ntmp[15 : 0].f16 = f32_to_f16(-S3.f32);\nD0 = tmp.b32", 0x3C00BC00),
        ("{ D1.u1, D0.u32 } = 33'B(33'U(S2.u32) + 33'U(S2.u32))", 0xFFFFFFFE),
    ],
)
def test_language(text, expected):
    registers = {"S0": 0x12345678, "S1": 0x80, "S2": 0xFFFFFFFF, "S3": 0x3F800000, "D0": 0xDEADBEEF, "D1": 0}
    assert run(text, **registers)["D0"] == expected


def test_signalling_and_quiet_nan_are_told_apart():
    text = amd_pseudo_code.text_of("VOPC", "V_CMP_CLASS_F32")
    classes = {0x7F800001: 0, 0x7FC00000: 1, 0xFF800000: 2, 0xBF800000: 3, 0x80000001: 4, 0x80000000: 5}
    classes |= {0: 6, 1: 7, 0x3F800000: 8, 0x7F800000: 9}
    for bits, wanted in classes.items():
        for bit in range(10):
            env = Environment(
                {"S0": unsigned(bits), "S1": unsigned(1 << bit), "D0": unsigned(0, 64), "laneId": unsigned(3)}
            )
            parse(text)(env)
            assert env.names["D0"].raw == (8 if bit == wanted else 0)


def test_text_outside_the_language_is_refused():
    for text in ("D0.u32 = $", "if S0 then", "D0.u32 = unknown(S0)"):
        with pytest.raises(Unusable):
            run(text, S0=1, D0=0)


def test_every_correction_applies_to_some_text():
    texts = amd_pseudo_code.texts()
    for correction in amd_pseudo_code.CORRECTIONS:
        assert any(n.startswith(correction.names) and correction.new in t for (_, n), t in texts.items()), (
            correction.names
        )


def test_pseudo_code_of_every_arithmetic_instruction_parses():
    encodings = ("VOP1", "VOP2", "VOP3", "VOPC", "VOP3SD", "VOPD", "SOP1", "SOP2", "SOPC", "SOPK")
    refused = []
    for (encoding, name), text in amd_pseudo_code.texts().items():
        if encoding in encodings:
            try:
                parse(text)
            except Unusable:
                refused.append(name)
    assert refused == []


def test_floating_values_keep_their_format():
    for fmt, negative in itertools.product(nf.FORMATS.values(), (False, True)):
        value = floating(nf.bits_of(-1.0 if negative else 1.0, fmt), fmt)
        assert value.negative == negative and value.exact == (negative, 1 << fmt.mantissa, -fmt.mantissa)
