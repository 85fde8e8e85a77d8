# SPDX-License-Identifier: MIT
"""Conversions to and from 8-bit floats, exhaustively, against torch's float8 types."""

import numpy as np
import pytest
import torch

from . import machine
from . import number_formats as nf

V = machine.VGPR0
FP16_OVFL = 1 << 23
TYPES = {"FP8": (nf.FP8, torch.float8_e4m3fn), "BF8": (nf.BF8, torch.float8_e5m2)}


def run(code: bytes, mode: int = machine.MODE_DEFAULT, **vgprs: np.ndarray) -> np.ndarray:
    registers = machine.new_registers(np.random.default_rng(0), mode)
    registers["scalar"][machine.EXEC] = 0xFFFFFFFF
    for name, contents in vgprs.items():
        registers["vgpr"][int(name[1:])] = contents
    return machine.execute(code, registers)["vgpr"]


def in_waves(numbers: np.ndarray) -> np.ndarray:
    """32-bit values as rows of 32 lanes, the last row padded with zeros."""
    rows = -(-len(numbers) // machine.LANES)
    padded = np.zeros(rows * machine.LANES, np.uint32)
    padded[: len(numbers)] = numbers
    return padded.reshape(rows, machine.LANES)


def decoded(kind: str, patterns: np.ndarray) -> np.ndarray:
    return torch.from_numpy(patterns.astype(np.uint8)).view(TYPES[kind][1]).float().numpy()


def assert_same_floats(bits: np.ndarray, expected: np.ndarray) -> None:
    actual = bits.view(np.float32)
    same = (bits == expected.view(np.uint32)) | (np.isnan(actual) & np.isnan(expected))
    assert same.all(), [(hex(b), e) for b, e in zip(bits[~same], expected[~same], strict=True)][:4]


@pytest.mark.parametrize("byte", range(4))
@pytest.mark.parametrize("kind", TYPES)
def test_each_byte_pattern_converts_to_f32(kind, byte):
    # The byte select is stored bit-reversed: byte 1 is op_sel 2.
    code = machine.encode("VOP3", f"V_CVT_F32_{kind}", vdst=1, src0=V + 2, opsel=(byte & 1) << 1 | byte >> 1)
    for start in range(0, 256, machine.LANES):
        patterns = np.arange(start, start + machine.LANES, dtype=np.uint32)
        word = np.uint32(0xA5A5A5A5) & ~np.uint32(0xFF << 8 * byte) | patterns << np.uint32(8 * byte)
        assert_same_floats(run(code, v2=word)[1], decoded(kind, patterns))


@pytest.mark.parametrize("kind", TYPES)
def test_each_byte_pattern_converts_to_f32_in_the_short_encoding(kind):
    code = machine.encode("VOP1", f"V_CVT_F32_{kind}", vdst=1, src0=V + 2)
    for start in range(0, 256, machine.LANES):
        patterns = np.arange(start, start + machine.LANES, dtype=np.uint32)
        assert_same_floats(run(code, v2=patterns | 0x5A5A5A00)[1], decoded(kind, patterns))


@pytest.mark.parametrize("high", [0, 1])
@pytest.mark.parametrize("kind", TYPES)
def test_each_pair_converts_to_two_f32(kind, high):
    codes = [
        machine.encode("VOP3", f"V_CVT_PK_F32_{kind}", vdst=4, src0=V + 2, opsel=high),
        machine.encode("VOP1", f"V_CVT_PK_F32_{kind}", vdst=4, src0=V + 2 + 128 * high),
    ]
    for code in codes:
        for start in range(0, 256, machine.LANES):
            low = np.arange(start, start + machine.LANES, dtype=np.uint32)
            second = 255 - low
            after = run(code, v2=(low | second << 8) << np.uint32(16 * high) | np.uint32(0x3C3C << 16 * (1 - high)))
            assert_same_floats(after[4], decoded(kind, low))
            assert_same_floats(after[5], decoded(kind, second))


def interesting_inputs(fmt: nf.Format) -> np.ndarray:
    """Every value of the format, every midpoint, and the floats beside each; overflow's edge, specials, a sweep."""
    values = [nf.to_float(b, fmt) for b in range(fmt.largest + 1)]
    step = values[-1] - values[-2]
    values += [values[-1] + step * k / 4 for k in range(1, 9)]
    points = np.array(values + [(a + b) / 2 for a, b in zip(values, values[1:], strict=False)], np.float32)
    points = np.concatenate(
        [points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))]
    )
    rng = np.random.default_rng(9)
    sweep = (rng.normal(size=20000) * 2.0 ** rng.integers(-12, 17, 20000)).astype(np.float32)
    anything = rng.integers(0, 1 << 32, 4000, dtype=np.uint32).view(np.float32)
    special = np.array([0.0, np.inf, np.nan, 1e-45, 3.4e38], np.float32)
    positive = np.concatenate([points, sweep, anything, special])
    return np.concatenate([positive, -positive])


def expected_bytes(kind: str, numbers: np.ndarray, clamp: bool) -> np.ndarray:
    """torch's conversion; overflow and infinity give NaN (fp8) or infinity (bf8), or the largest value when clamped.

    Overflow is decided here, because torch's fp8 conversion turned from NaN to saturation between releases: beyond
    halfway to the next number that the exponent range lacks.
    """
    fmt, dtype = TYPES[kind]
    limit = nf.to_float(fmt.largest, fmt)
    halfway = limit + (limit - nf.to_float(fmt.largest - 1, fmt)) / 2
    # The tie goes to the even neighbour: down for fp8, whose 448 is even, and up for bf8, whose largest number is odd.
    overflow = np.abs(numbers) > halfway if fmt.largest % 2 == 0 else np.abs(numbers) >= halfway
    result = torch.from_numpy(np.clip(numbers, -limit, limit)).to(dtype).view(torch.uint8).numpy().copy()
    if not clamp:
        result[overflow] = np.where(numbers[overflow] < 0, 0x80, 0) | (fmt.nan if fmt.finite_only else fmt.infinity)
    return result


def assert_same_bytes(kind: str, actual: np.ndarray, expected: np.ndarray, numbers: np.ndarray) -> None:
    fmt = TYPES[kind][0]
    for got, want, number in zip(actual.tolist(), expected.tolist(), numbers.tolist(), strict=True):
        assert got == want or (nf.is_nan(got, fmt) and nf.is_nan(want, fmt)), (number, hex(got), hex(want))


@pytest.mark.parametrize("clamp", [False, True], ids=["ovfl0", "ovfl1"])
@pytest.mark.parametrize("high", [0, 1])
@pytest.mark.parametrize("kind", TYPES)
def test_pairs_of_f32_convert_as_torch_does(kind, high, clamp):
    code = machine.encode("VOP3", f"V_CVT_PK_{kind}_F32", vdst=1, src0=V + 2, src1=V + 3, opsel=8 * high)
    numbers = interesting_inputs(TYPES[kind][0])
    second = np.roll(numbers, 1)
    rows = zip(in_waves(numbers.view(np.uint32)), in_waves(second.view(np.uint32)), strict=True)
    mode = machine.MODE_DEFAULT | (FP16_OVFL if clamp else 0)
    results = []
    for a, b in rows:
        word = run(code, mode, v1=np.uint32(0xDEADBEEF), v2=a, v3=b)[1]
        assert (word >> np.uint32(16 * (1 - high)) & 0xFFFF == (0xDEAD if high == 0 else 0xBEEF)).all()
        results.append(word >> np.uint32(16 * high) & 0xFFFF)
    pairs = np.concatenate(results)[: len(numbers)]
    assert_same_bytes(kind, pairs & 0xFF, expected_bytes(kind, numbers, clamp), numbers)
    assert_same_bytes(kind, pairs >> 8, expected_bytes(kind, second, clamp), second)


def test_the_edge_of_overflow():
    # 464 is halfway between 448 and the 480 that e4m3fn lacks: it still rounds to 448; the next float does not.
    code = machine.encode("VOP3", "V_CVT_PK_FP8_F32", vdst=1, src0=V + 2, src1=V + 2)
    for number, plain, clamped in (
        (448.0, 0x7E, 0x7E),
        (464.0, 0x7E, 0x7E),
        (464.00003, 0x7F, 0x7E),
        (np.inf, 0x7F, 0x7E),
    ):
        for mode, want in ((machine.MODE_DEFAULT, plain), (machine.MODE_DEFAULT | FP16_OVFL, clamped)):
            word = run(code, mode, v2=np.float32(number).view(np.uint32))[1]
            assert (word & 0xFF == want).all(), (number, mode)


@pytest.mark.parametrize("mode", [0xF0 | r for r in range(1, 4)])
def test_the_rounding_mode_does_not_reach_8_bit_floats(mode):
    code = machine.encode("VOP3", "V_CVT_PK_FP8_F32", vdst=1, src0=V + 2, src1=V + 2)
    numbers = interesting_inputs(nf.FP8)[:320]
    words = [run(code, mode | mode << 2 & 0xC, v2=row)[1] & 0xFF for row in in_waves(numbers.view(np.uint32))]
    assert_same_bytes("FP8", np.concatenate(words)[: len(numbers)], expected_bytes("FP8", numbers, False), numbers)


@pytest.mark.parametrize("byte", range(4))
@pytest.mark.parametrize("kind", TYPES)
def test_stochastic_rounding_of_exact_values_is_exact(kind, byte):
    # Whatever the noise does, a representable number with no noise below it converts to itself, in the chosen byte.
    fmt = TYPES[kind][0]
    code = machine.encode("VOP3", f"V_CVT_SR_{kind}_F32", vdst=1, src0=V + 2, src1=V + 3, opsel=byte << 2)
    for start in range(0, 256, machine.LANES):
        patterns = np.arange(start, start + machine.LANES, dtype=np.uint32)
        numbers = decoded(kind, patterns)
        word = run(code, v1=np.uint32(0x11223344), v2=numbers.view(np.uint32), v3=np.uint32(0))[1]
        kept = ~np.uint32(0xFF << 8 * byte)
        assert (word & kept == 0x11223344 & kept).all()
        assert_same_bytes(kind, word >> np.uint32(8 * byte) & 0xFF, patterns, numbers)
        assert fmt.width == 8


@pytest.mark.parametrize("kind", TYPES)
def test_stochastic_rounding_adds_noise_below_the_mantissa(kind):
    # To the letter of AMD's text: the noise wraps within the mantissa, and the sum rounds to nearest even.
    code = machine.encode("VOP3", f"V_CVT_SR_{kind}_F32", vdst=1, src0=V + 2, src1=V + 3)
    rng = np.random.default_rng(11)
    numbers = (rng.normal(size=2048) * 2.0 ** rng.integers(-10, 10, 2048)).astype(np.float32)
    noise = rng.integers(0, 1 << 32, 2048, dtype=np.uint32)
    bits = numbers.view(np.uint32)
    shift = np.uint32(12 if kind == "FP8" else 11)
    sums = (bits & np.uint32(0xFF800000) | (bits & 0x7FFFFF) + (noise >> shift) & 0x7FFFFF).view(np.float32)
    words = [run(code, v2=a, v3=b)[1] & 0xFF for a, b in zip(in_waves(bits), in_waves(noise), strict=True)]
    assert_same_bytes(kind, np.concatenate(words), expected_bytes(kind, sums, False), numbers)


def test_every_f16_converts_to_f32():
    code = machine.encode("VOP1", "V_CVT_F32_F16", vdst=1, src0=V + 2)
    for row in np.arange(1 << 16, dtype=np.uint32).reshape(-1, machine.LANES):
        expected = row.astype(np.uint16).view(np.float16).astype(np.float32)
        assert_same_floats(run(code, v2=row)[1], expected)


def test_f32_to_f16_at_every_midpoint():
    code = machine.encode("VOP1", "V_CVT_F16_F32", vdst=1, src0=V + 2)
    lower = np.arange(0, 0x7BFF, 37, dtype=np.uint16).view(np.float16).astype(np.float32)
    upper = np.arange(1, 0x7C00, 37, dtype=np.uint16).view(np.float16).astype(np.float32)
    middle = (lower + upper) / 2
    numbers = np.concatenate(
        [middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(np.inf)), -middle]
    )
    numbers = np.concatenate([numbers, np.float32([65504, 65519.996, 65520, np.inf, 1e-8, 2**-25])])
    with np.errstate(over="ignore"):
        expected = in_waves(numbers.astype(np.float16).view(np.uint16).astype(np.uint32))
    for row, want in zip(in_waves(numbers.view(np.uint32)), expected, strict=True):
        assert (run(code, v2=row)[1] & 0xFFFF == want).all()
