# SPDX-License-Identifier: MIT
"""WMMA, element by element. The layouts are stated here once more, on their own, for wave32 on gfx12:

    A[i][k]   lane i + 16 * (k / 8)    element k % 8 of the lane's packed elements
    B[k][j]   lane j + 16 * (k / 8)    element k % 8
    D[i][j]   lane j + 16 * (i / 8)    element i % 8 (a register each for 32 bits, half a register for 16)

For K = 32 a lane holds 16 elements instead of 8.
"""

import numpy as np
import pytest

from . import machine
from . import number_formats as nf

A, B, C, D = 8, 24, 40, 60  # first registers of the operands


class Kind:
    """One WMMA instruction: number formats of A, B and D (None: integers), and the inner dimension."""

    def __init__(
        self, name: str, bits: int, a: nf.Format | None, b: nf.Format | None, d: nf.Format | None, k: int = 16
    ):
        self.name, self.bits, self.a, self.b, self.d, self.k = name, bits, a, b, d, k
        self.per_lane = k // 2
        self.words = self.per_lane * bits // 32
        self.d_bits = 16 if d in (nf.F16, nf.BF16) else 32

    def __repr__(self) -> str:
        return self.name


KINDS = [
    Kind("V_WMMA_F32_16X16X16_F16", 16, nf.F16, nf.F16, nf.F32),
    Kind("V_WMMA_F32_16X16X16_BF16", 16, nf.BF16, nf.BF16, nf.F32),
    Kind("V_WMMA_F16_16X16X16_F16", 16, nf.F16, nf.F16, nf.F16),
    Kind("V_WMMA_BF16_16X16X16_BF16", 16, nf.BF16, nf.BF16, nf.BF16),
    Kind("V_WMMA_I32_16X16X16_IU8", 8, None, None, None),
    Kind("V_WMMA_I32_16X16X16_IU4", 4, None, None, None),
    Kind("V_WMMA_I32_16X16X32_IU4", 4, None, None, None, k=32),
    Kind("V_WMMA_F32_16X16X16_FP8_FP8", 8, nf.FP8, nf.FP8, nf.F32),
    Kind("V_WMMA_F32_16X16X16_FP8_BF8", 8, nf.FP8, nf.BF8, nf.F32),
    Kind("V_WMMA_F32_16X16X16_BF8_FP8", 8, nf.BF8, nf.FP8, nf.F32),
    Kind("V_WMMA_F32_16X16X16_BF8_BF8", 8, nf.BF8, nf.BF8, nf.F32),
]
FLOAT_KINDS = [kind for kind in KINDS if kind.d]
INTEGER_KINDS = [kind for kind in KINDS if not kind.d]


def pack(kind: Kind, matrix: np.ndarray) -> np.ndarray:
    """Raw elements of A, indexed [i][k], or of B transposed, [j][k], as registers [word][lane]."""
    words = np.zeros((kind.words, machine.LANES), np.uint32)
    for outer in range(16):
        for k in range(kind.k):
            lane, slot = outer + 16 * (k // kind.per_lane), k % kind.per_lane
            position = slot * kind.bits
            words[position // 32, lane] |= np.uint32(int(matrix[outer, k]) << position % 32)
    return words


def pack_result(matrix: np.ndarray, bits: int) -> np.ndarray:
    """Raw elements of C or D, [i][j], as registers."""
    words = np.zeros((8 * bits // 32, machine.LANES), np.uint32)
    for i in range(16):
        for j in range(16):
            position = i % 8 * bits
            words[position // 32, j + 16 * (i // 8)] |= np.uint32(int(matrix[i, j]) << position % 32)
    return words


def unpack_result(words: np.ndarray, bits: int) -> np.ndarray:
    matrix = np.zeros((16, 16), np.int64)
    for i in range(16):
        for j in range(16):
            position = i % 8 * bits
            matrix[i, j] = int(words[position // 32, j + 16 * (i // 8)]) >> position % 32 & ((1 << bits) - 1)
    return matrix


def multiply(
    kind: Kind, a: np.ndarray, b: np.ndarray, c: np.ndarray, mode: int = machine.MODE_DEFAULT, **fields
) -> np.ndarray:
    """Raw D for raw A [i][k], B [k][j] and C [i][j]. Checks that nothing but D changes."""
    before = machine.new_registers(np.random.default_rng(0), mode)
    before["scalar"][machine.EXEC] = 0xFFFFFFFF
    before["vgpr"][A : A + kind.words] = pack(kind, a)
    before["vgpr"][B : B + kind.words] = pack(kind, b.T)
    d_words = 8 * kind.d_bits // 32
    before["vgpr"][C : C + d_words] = pack_result(c, kind.d_bits)
    sources = {f"src{i}": machine.VGPR0 + r for i, r in enumerate((A, B, C))}
    after = machine.execute(machine.encode("VOP3P", kind.name, vdst=D, **sources | fields), before)
    result = unpack_result(after["vgpr"][D : D + d_words], kind.d_bits)
    after["vgpr"][D : D + d_words] = before["vgpr"][D : D + d_words]
    assert (after == before).all(), "registers other than D changed"
    return result


def values(raw: np.ndarray, fmt: nf.Format) -> np.ndarray:
    return np.array([nf.to_float(int(x), fmt) for x in raw.flat]).reshape(raw.shape)


def raw_of(numbers: np.ndarray, fmt: nf.Format) -> np.ndarray:
    return np.array([nf.bits_of(float(x), fmt) for x in numbers.flat], np.int64).reshape(numbers.shape)


def one(kind: Kind, fmt: nf.Format | None) -> int:
    return nf.bits_of(1.0, fmt) if fmt else 1


def distinct_elements(kind: Kind, fmt: nf.Format | None, shape: tuple[int, int]) -> np.ndarray:
    """Random elements that are finite and not zero."""
    rng = np.random.default_rng(5)
    if fmt:
        return raw_of(rng.integers(1, 8, shape) * 2.0 ** rng.integers(-4, 5, shape), fmt)
    return rng.integers(1, 1 << (kind.bits - 1), shape)


def widen(kind: Kind, raw: np.ndarray, fmt: nf.Format | None) -> np.ndarray:
    """Elements of A or B as they arrive in a D that has one product to hold."""
    return raw_of(values(raw, fmt), kind.d) if fmt else raw


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_one_element_of_a_selects_one_row_of_b(kind):
    b = distinct_elements(kind, kind.b, (kind.k, 16))
    row = widen(kind, b, kind.b)
    for i in range(16):
        for k in range(kind.k):
            a = np.zeros((16, kind.k), np.int64)
            a[i, k] = one(kind, kind.a)
            expected = np.zeros((16, 16), np.int64)
            expected[i] = row[k]
            assert (multiply(kind, a, b, np.zeros((16, 16), np.int64)) == expected).all(), (i, k)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_one_element_of_b_selects_one_column_of_a(kind):
    a = distinct_elements(kind, kind.a, (16, kind.k))
    column = widen(kind, a, kind.a)
    for j in range(16):
        for k in range(kind.k):
            b = np.zeros((kind.k, 16), np.int64)
            b[k, j] = one(kind, kind.b)
            expected = np.zeros((16, 16), np.int64)
            expected[:, j] = column[:, k]
            assert (multiply(kind, a, b, np.zeros((16, 16), np.int64)) == expected).all(), (k, j)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_c_is_added_in_its_place(kind):
    c = distinct_elements(kind, kind.d, (16, 16))
    zeros = np.zeros((16, kind.k), np.int64)
    assert (multiply(kind, zeros, zeros.T, c) == c).all()


def as_signed(raw: np.ndarray, bits: int) -> np.ndarray:
    return raw - (raw >> (bits - 1) << bits)


@pytest.mark.parametrize("clamp", [0, 1])
@pytest.mark.parametrize("signs", range(4))
@pytest.mark.parametrize("kind", INTEGER_KINDS, ids=repr)
def test_integers_with_every_combination_of_signs(kind, signs, clamp):
    rng = np.random.default_rng(signs)
    for case in range(8):
        a, b = rng.integers(0, 1 << kind.bits, (16, kind.k)), rng.integers(0, 1 << kind.bits, (kind.k, 16))
        if case >= 4:  # the extremes, where sums are largest
            a[:], b[:] = ((1 << kind.bits) - 1 if case & 1 else 1 << (kind.bits - 1)), b[0, 0]
        c = rng.integers(0, 1 << 32, (16, 16))
        c[::2] = rng.choice([0, 0x7FFFFFFF, 0x80000000, 0x7FFFFF00, 0x800000FF], (8, 16))
        left = as_signed(a, kind.bits) if signs & 1 else a
        right = as_signed(b, kind.bits) if signs & 2 else b
        total = left @ right + as_signed(c, 32)
        if clamp:
            total = np.clip(total, -(1 << 31), (1 << 31) - 1)
        assert (multiply(kind, a, b, c, neg=signs, clmp=clamp) == total & 0xFFFFFFFF).all()


def error_bound(kind: Kind, magnitudes: np.ndarray) -> np.ndarray:
    """K products and C added in any order, rounding each time, give (K + 1) * u * sum of magnitudes; then D rounds."""
    unit = 2.0 ** -(kind.d.mantissa + 1)
    smallest = 2.0 ** (kind.d.min_exponent - kind.d.mantissa)
    return (kind.k + 2) * unit * magnitudes + smallest


@pytest.mark.parametrize("kind", FLOAT_KINDS, ids=repr)
def test_random_products_agree_with_float64(kind):
    rng = np.random.default_rng(3)
    for scale in (1.0, 2.0**-5, 8.0):
        a = raw_of(rng.normal(size=(16, 16)) * scale, kind.a)
        b = raw_of(rng.normal(size=(16, 16)), kind.b)
        c = raw_of(rng.normal(size=(16, 16)), kind.d)
        x, y, z = values(a, kind.a), values(b, kind.b), values(c, kind.d)
        error = np.abs(values(multiply(kind, a, b, c), kind.d) - (x @ y + z))
        assert (error <= error_bound(kind, np.abs(x) @ np.abs(y) + np.abs(z))).all()


@pytest.mark.parametrize("kind", FLOAT_KINDS, ids=repr)
def test_every_operand_value_is_multiplied_exactly(kind):
    patterns = np.arange(256) if kind.bits == 8 else np.random.default_rng(4).integers(0, 1 << 16, 256)
    b = np.zeros((16, 16), np.int64)
    np.fill_diagonal(b, one(kind, kind.b))
    b[0] = one(kind, kind.b)  # row 0 feeds every column, so that column 0 alone stays a plain copy
    a = patterns.reshape(16, 16).copy()
    a[:, 0] = 0
    result = multiply(kind, a, b, np.zeros((16, 16), np.int64))
    for i in range(16):
        for j in range(1, 16):
            others = [int(a[i, k]) for k in range(16) if k != j]
            special = any(nf.is_nan(x, kind.a) or nf.is_infinite(x, kind.a) for x in others)
            if special:
                continue  # zero times infinity is the next test's subject
            number = nf.to_float(int(a[i, j]), kind.a)
            if kind.d_bits == 16 and nf.is_denormal(int(a[i, j]), kind.a):
                continue
            expected = nf.bits_of(number, kind.d)
            got = int(result[i, j])
            assert got == expected or (nf.is_nan(got, kind.d) and nf.is_nan(expected, kind.d)) or number == 0 == got


@pytest.mark.parametrize("kind", FLOAT_KINDS, ids=repr)
def test_nan_and_infinity_reach_exactly_their_row(kind):
    ones = np.full((16, 16), one(kind, kind.b), np.int64)
    zeros = np.zeros((16, 16), np.int64)
    specials = [kind.a.nan] + ([] if kind.a.finite_only else [kind.a.infinity, kind.a.infinity | kind.a.sign])
    for special in specials:
        a = np.zeros((16, 16), np.int64)
        a[5, 11] = special
        result = values(multiply(kind, a, ones, zeros), kind.d)
        expected = np.zeros((16, 16))
        expected[5] = nf.to_float(special, kind.a)
        np.testing.assert_array_equal(result, expected)
        # Times zero, an infinity too becomes NaN.
        result = values(multiply(kind, a, zeros, zeros), kind.d)
        assert np.isnan(result[5]).all() and (result[np.arange(16) != 5] == 0).all()


@pytest.mark.parametrize("kind", FLOAT_KINDS, ids=repr)
def test_c_can_be_negated_and_made_absolute(kind):
    c = distinct_elements(kind, kind.d, (16, 16))
    c[::2] ^= kind.d.sign
    zeros = np.zeros((16, 16), np.int64)
    assert (multiply(kind, zeros, zeros, c, neg=4) == c ^ kind.d.sign).all()
    assert (multiply(kind, zeros, zeros, c, neg_hi=4) == c & ~kind.d.sign).all()


# Compilers give bf16 C no inline constants, and what the hardware would make of one is not published.
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.d is not nf.BF16], ids=repr)
def test_c_can_be_an_inline_constant(kind):
    zeros = np.zeros((16, kind.k), np.int64)
    code, number = (242, 1.0) if kind.d else (133, 5)
    expected = nf.bits_of(number, kind.d) if kind.d else number
    assert (multiply(kind, zeros, zeros.T, np.zeros((16, 16), np.int64), src2=code) == expected).all()


def test_d_may_be_c():
    kind = KINDS[4]
    rng = np.random.default_rng(1)
    a, b, c = rng.integers(0, 256, (16, 16)), rng.integers(0, 256, (16, 16)), rng.integers(0, 1000, (16, 16))
    before = machine.new_registers()
    before["vgpr"][A : A + 2], before["vgpr"][B : B + 2] = pack(kind, a), pack(kind, b.T)
    before["vgpr"][C : C + 8] = pack_result(c, 32)
    code = machine.encode("VOP3P", kind.name, vdst=C, src0=256 + A, src1=256 + B, src2=256 + C)
    after = machine.execute(code + code, before)
    assert (unpack_result(after["vgpr"][C : C + 8], 32) == 2 * (a @ b) + c).all()


def test_bias_of_the_integer_accumulator_makes_it_a_float():
    # The kernel starts the accumulator at the bits of 1.5 * 2**23: sums below 2**22 read as that float plus the sum.
    kind = KINDS[4]
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 256, (16, 16)), rng.integers(0, 256, (16, 16))
    result = multiply(kind, a, b, np.full((16, 16), 0x4B400000), neg=3)
    assert (values(result, nf.F32) == 12582912.0 + as_signed(a, 8) @ as_signed(b, 8)).all()
