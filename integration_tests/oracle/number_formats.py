# SPDX-License-Identifier: MIT
"""Exact binary floating point for the expected results: nothing here is shared with the virtual device.

A finite number is held exactly as ``(negative, significand, exponent)``, meaning
``(-1)**negative * significand * 2**exponent`` with integers of any size, so that every operation is exact until
``encode`` rounds it once.
"""

from dataclasses import dataclass
from math import isqrt

# MODE.FP_ROUND values.
NEAREST_EVEN, TOWARD_PLUS, TOWARD_MINUS, TOWARD_ZERO = range(4)


@dataclass(frozen=True)
class Format:
    """A binary format. ``finite_only`` is OCP e4m3fn: no infinity, and only all-ones is NaN."""

    name: str
    width: int
    mantissa: int
    finite_only: bool = False

    @property
    def sign(self) -> int:
        return 1 << (self.width - 1)

    @property
    def exponent_ones(self) -> int:
        return (1 << (self.width - 1 - self.mantissa)) - 1

    @property
    def min_exponent(self) -> int:
        """Exponent of the smallest normal number."""
        return 2 - (1 << (self.width - 2 - self.mantissa))

    @property
    def infinity(self) -> int:
        """Bits of +infinity; for a finite-only format the first pattern past the largest number."""
        return self.sign - 1 if self.finite_only else self.exponent_ones << self.mantissa

    @property
    def largest(self) -> int:
        return self.infinity - 1

    @property
    def nan(self) -> int:
        return self.sign - 1 if self.finite_only else self.infinity | 1 << (self.mantissa - 1)


F64 = Format("f64", 64, 52)
F32 = Format("f32", 32, 23)
F16 = Format("f16", 16, 10)
BF16 = Format("bf16", 16, 7)
FP8 = Format("fp8", 8, 3, finite_only=True)
BF8 = Format("bf8", 8, 2)
FORMATS = {f.name: f for f in (F64, F32, F16, BF16, FP8, BF8)}


def is_negative(bits: int, fmt: Format) -> bool:
    return bool(bits & fmt.sign)


def is_nan(bits: int, fmt: Format) -> bool:
    magnitude = bits & (fmt.sign - 1)
    return magnitude == fmt.nan if fmt.finite_only else magnitude > fmt.infinity


def is_infinite(bits: int, fmt: Format) -> bool:
    return not fmt.finite_only and bits & (fmt.sign - 1) == fmt.infinity


def is_denormal(bits: int, fmt: Format) -> bool:
    return 0 < bits & (fmt.sign - 1) < 1 << fmt.mantissa


def biased_exponent(bits: int, fmt: Format) -> int:
    return bits >> fmt.mantissa & fmt.exponent_ones


def decode(bits: int, fmt: Format) -> tuple[bool, int, int]:
    """The exact value of finite ``bits``."""
    exponent = biased_exponent(bits, fmt)
    significand = bits & ((1 << fmt.mantissa) - 1)
    if exponent:
        significand |= 1 << fmt.mantissa
    return is_negative(bits, fmt), significand, max(exponent, 1) - 1 + fmt.min_exponent - fmt.mantissa


def encode(number: tuple[bool, int, int], fmt: Format, mode: int = NEAREST_EVEN, saturate: bool = False) -> int:
    """Rounds an exact number into ``fmt``. ``saturate`` replaces overflow by the largest finite number."""
    negative, significand, exponent = number
    sign = fmt.sign if negative else 0
    if significand == 0:
        return sign
    top = max(significand.bit_length() - 1 + exponent, fmt.min_exponent)
    shift = top - fmt.mantissa - exponent
    if shift <= 0:
        kept, dropped, half = significand << -shift, 0, 1
    else:
        kept, dropped, half = significand >> shift, significand & ((1 << shift) - 1), 1 << (shift - 1)
    away = {TOWARD_PLUS: not negative, TOWARD_MINUS: negative}.get(mode, False)
    if mode == NEAREST_EVEN:
        kept += dropped > half or (dropped == half and kept & 1)
    elif away and dropped:
        kept += 1
    # A carry out of the mantissa lands in the exponent field, where it belongs.
    magnitude = ((top - fmt.min_exponent) << fmt.mantissa) + kept
    if magnitude >= fmt.infinity:
        to_infinity = mode == NEAREST_EVEN or away
        magnitude = fmt.infinity if to_infinity and not saturate else fmt.largest
    return sign | magnitude


def from_float(value: float) -> tuple[bool, int, int]:
    """The exact value of a finite Python float."""
    numerator, denominator = abs(value).as_integer_ratio()
    negative = value < 0 or (value == 0 and str(value)[0] == "-")
    return negative, numerator, 1 - denominator.bit_length()


def to_float(bits: int, fmt: Format) -> float:
    """The value as a Python float; exact, since no format here is wider than f64."""
    if is_nan(bits, fmt):
        return float("nan")
    if is_infinite(bits, fmt):
        return float("-inf") if is_negative(bits, fmt) else float("inf")
    negative, significand, exponent = decode(bits, fmt)
    # Scaled in two exact steps, because 2**exponent alone may lie below the smallest f64.
    value = float(significand) * 2.0 ** max(exponent, -1022) * 2.0 ** min(exponent + 1022, 0)
    return -value if negative else value


def bits_of(value: float, fmt: Format, mode: int = NEAREST_EVEN) -> int:
    """A Python float, NaN and infinity included, rounded into ``fmt``."""
    if value != value:
        return fmt.nan
    if value in (float("inf"), float("-inf")):
        return fmt.infinity | (fmt.sign if value < 0 else 0)
    return encode(from_float(value), fmt, mode)


def compare(a: tuple[bool, int, int], b: tuple[bool, int, int]) -> int:
    """-1, 0 or 1 for exact numbers; the two zeros are equal."""
    low = min(a[2], b[2])
    left, right = (x[1] << (x[2] - low) if not x[0] else -(x[1] << (x[2] - low)) for x in (a, b))
    return (left > right) - (left < right)


def add(a: tuple[bool, int, int], b: tuple[bool, int, int], mode: int = NEAREST_EVEN) -> tuple[bool, int, int]:
    """Exact sum. An exact zero of two opposite numbers is -0 only when rounding toward minus infinity."""
    low = min(a[2], b[2])
    left, right = (x[1] << (x[2] - low) if not x[0] else -(x[1] << (x[2] - low)) for x in (a, b))
    total = left + right
    if total == 0:
        negative = a[0] if a[0] == b[0] and not a[1] and not b[1] else mode == TOWARD_MINUS
        return negative, 0, 0
    return total < 0, abs(total), low


def multiply(a: tuple[bool, int, int], b: tuple[bool, int, int]) -> tuple[bool, int, int]:
    return a[0] != b[0], a[1] * b[1], a[2] + b[2]


def divide(a: tuple[bool, int, int], b: tuple[bool, int, int]) -> tuple[bool, int, int]:
    """The quotient to 128 bits, its last bit sticky: enough to round correctly into any format above."""
    shift = 128 + b[1].bit_length()
    quotient, rest = divmod(a[1] << shift, b[1])
    return a[0] != b[0], quotient << 1 | bool(rest), a[2] - b[2] - shift - 1


def square_root(a: tuple[bool, int, int]) -> tuple[bool, int, int]:
    """The root to at least 128 bits, its last bit sticky."""
    shift = 256 + (a[2] & 1)
    scaled = a[1] << shift
    root = isqrt(scaled)
    return a[0], root << 1 | (root * root != scaled), (a[2] - shift) // 2 - 1
