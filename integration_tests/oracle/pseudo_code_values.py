# SPDX-License-Identifier: MIT
"""Typed values of AMD's pseudo-code, their arithmetic, and the functions that the text calls. Typing rules:

- Integer ``+ - * << >>`` work in at least 32 bits, as in C; ``& | ^ ~`` keep the operands' width.
- A hexadecimal literal is a bit pattern, so ``32'F(0xffc00000)`` reinterprets; other conversions keep the value.
- ``a ** b`` is exact and is rounded only where it meets a value of finite precision: ``x * 2.0F ** n`` is ldexp.
"""

import functools
import math
import re
from collections.abc import Callable

from . import number_formats as nf

VIEW = re.compile(r"(bf|fp|[uifb])(\d+)$")


class Unusable(Exception):
    """The text is not in the language, or asks for something that has no meaning here."""


class Value:
    """Bits with a type. ``kind`` is u, i, b (a bit pattern), f (a float of format ``fmt``) or r (an exact real)."""

    __slots__ = ("raw", "width", "kind", "fmt")

    def __init__(self, raw, width: int, kind: str, fmt: nf.Format | None = None):
        self.raw, self.width, self.kind, self.fmt = raw, width, kind, fmt
        if kind != "r":
            self.raw &= (1 << width) - 1

    @property
    def number(self) -> int:
        """The integer value."""
        if self.kind == "i" and self.width and self.raw >> (self.width - 1):
            return self.raw - (1 << self.width)
        return self.raw

    def __bool__(self) -> bool:
        return bool(self.raw)

    @property
    def exact(self) -> tuple[bool, int, int]:
        if self.kind == "r":
            return self.raw
        if self.kind == "f":
            return nf.decode(self.raw, self.fmt)
        return self.number < 0, abs(self.number), 0

    @property
    def is_nan(self) -> bool:
        return self.kind == "f" and nf.is_nan(self.raw, self.fmt)

    @property
    def is_infinite(self) -> bool:
        return self.kind == "f" and nf.is_infinite(self.raw, self.fmt)

    @property
    def negative(self) -> bool:
        return self.raw[0] if self.kind == "r" else bool(self.raw >> (self.width - 1))


def unsigned(raw: int, width: int = 32) -> Value:
    return Value(raw, width, "u")


def boolean(condition) -> Value:
    return Value(int(bool(condition)), 1, "u")


def real(value: float) -> Value:
    return Value(nf.from_float(value), 0, "r")


def floating(raw: int, fmt: nf.Format) -> Value:
    return Value(raw, fmt.width, "f", fmt)


@functools.cache
def parse_type(text: str) -> tuple[str, int, nf.Format | None]:
    """``u32``, ``f16``, ``bf16``, ``fp8`` ... as (kind, width, format)."""
    letters, width = VIEW.match(text).groups()
    if text in nf.FORMATS:
        return "f", int(width), nf.FORMATS[text]
    return letters, int(width), None


def view(value: Value, text: str) -> Value:
    kind, width, fmt = parse_type(text)
    return Value(value.raw, width, kind, fmt)


class Environment:
    """One lane's evaluation: registers by name, shared containers, and the rounding mode.

    ``registers`` keep the width they were given: writing part of one leaves the rest. Other names are variables.
    """

    def __init__(self, registers: dict[str, Value], containers: dict | None = None, mode: int = 0xF0):
        self.names = dict(registers)
        self.names.update(containers or {})
        self.registers = set(registers)
        self.mode = mode
        self.names.setdefault("ROUND_MODE", Value(15, 4, "u"))

    def rounding(self, fmt: nf.Format) -> int:
        override = self.names["ROUND_MODE"].raw
        if override != 15:
            return override
        return self.mode & 3 if fmt is nf.F32 else self.mode >> 2 & 3

    def denormals(self, fmt: nf.Format) -> int:
        """MODE.FP_DENORM for a format: bit 0 keeps denormal inputs, bit 1 keeps denormal results."""
        return self.mode >> (4 if fmt is nf.F32 else 6) & 3

    @property
    def fp16_overflow(self) -> bool:
        return bool(self.mode >> 23 & 1)


# --- arithmetic ---------------------------------------------------------------------------------------------------


def round_to(env: Environment, number: tuple[bool, int, int], fmt: nf.Format) -> Value:
    raw = nf.encode(number, fmt, env.rounding(fmt), saturate=env.fp16_overflow and fmt is nf.F16)
    if fmt in (nf.F16, nf.F32, nf.F64) and nf.is_denormal(raw, fmt) and not env.denormals(fmt) & 2:
        raw &= fmt.sign
    return floating(raw, fmt)


def _operand(env: Environment, value: Value) -> Value:
    """An arithmetic operand: a denormal reads as zero when the mode says so."""
    if value.kind == "f" and nf.is_denormal(value.raw, value.fmt) and not env.denormals(value.fmt) & 1:
        return floating(value.raw & value.fmt.sign, value.fmt)
    return value


def _result_format(*values: Value) -> nf.Format | None:
    formats = [v.fmt for v in values if v.kind == "f"]
    return max(formats, key=lambda f: f.width) if formats else None


def nan_of(fmt: nf.Format) -> Value:
    return floating(fmt.nan, fmt)


def infinity_of(negative: bool, fmt: nf.Format) -> Value:
    return floating(fmt.infinity | (fmt.sign if negative else 0), fmt)


def float_add(env: Environment, a: Value, b: Value) -> Value:
    fmt = _result_format(a, b)
    a, b = _operand(env, a), _operand(env, b)
    if a.is_nan or b.is_nan or (a.is_infinite and b.is_infinite and a.negative != b.negative):
        return nan_of(fmt)
    if a.is_infinite or b.is_infinite:
        return infinity_of((a if a.is_infinite else b).negative, fmt)
    return round_to(env, nf.add(a.exact, b.exact, env.rounding(fmt)), fmt)


def float_multiply(env: Environment, a: Value, b: Value) -> Value:
    fmt = _result_format(a, b)
    if fmt is None:
        return Value(nf.multiply(a.exact, b.exact), 0, "r")
    a, b = _operand(env, a), _operand(env, b)
    if a.is_nan or b.is_nan:
        return nan_of(fmt)
    if a.is_infinite or b.is_infinite:
        finite = b if a.is_infinite else a
        zero = not finite.is_infinite and finite.exact[1] == 0
        return nan_of(fmt) if zero else infinity_of(a.negative != b.negative, fmt)
    return round_to(env, nf.multiply(a.exact, b.exact), fmt)


def float_divide(env: Environment, a: Value, b: Value) -> Value:
    fmt = _result_format(a, b)
    if fmt is None:
        return Value(nf.divide(a.exact, b.exact), 0, "r")
    a, b = _operand(env, a), _operand(env, b)
    zero_a = not (a.is_nan or a.is_infinite) and a.exact[1] == 0
    zero_b = not (b.is_nan or b.is_infinite) and b.exact[1] == 0
    if a.is_nan or b.is_nan or (a.is_infinite and b.is_infinite) or (zero_a and zero_b):
        return nan_of(fmt)
    negative = a.negative != b.negative
    if a.is_infinite or zero_b:
        return infinity_of(negative, fmt)
    if b.is_infinite:
        return round_to(env, (negative, 0, 0), fmt)
    return round_to(env, nf.divide(a.exact, b.exact), fmt)


def float_fma(env: Environment, a: Value, b: Value, c: Value) -> Value:
    fmt = _result_format(a, b, c)
    a, b, c = _operand(env, a), _operand(env, b), _operand(env, c)
    if a.is_nan or b.is_nan or c.is_nan:
        return nan_of(fmt)
    if a.is_infinite or b.is_infinite:
        finite = b if a.is_infinite else a
        negative = a.negative != b.negative
        if (not finite.is_infinite and finite.exact[1] == 0) or (c.is_infinite and c.negative != negative):
            return nan_of(fmt)
        return infinity_of(negative, fmt)
    if c.is_infinite:
        return c
    return round_to(env, nf.add(nf.multiply(a.exact, b.exact), c.exact, env.rounding(fmt)), fmt)


def convert_float(env: Environment, value: Value, fmt: nf.Format) -> Value:
    if value.is_nan:
        return nan_of(fmt)
    value = _operand(env, value)
    if value.is_infinite:
        return infinity_of(value.negative, fmt)
    return round_to(env, value.exact, fmt)


def to_integer(value: Value, width: int, signed: bool) -> Value:
    """Truncates and saturates; NaN gives 0."""
    kind = "i" if signed else "u"
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    if value.is_nan:
        return Value(0, width, kind)
    if value.is_infinite:
        return Value(low if value.negative else high, width, kind)
    negative, significand, exponent = value.exact
    size = significand << exponent if exponent >= 0 else significand >> -exponent
    return Value(min(max(-size if negative else size, low), high), width, kind)


def _integer_binary(op: str, a: Value, b: Value) -> Value:
    width = max(a.width, b.width)
    if op in ("<<", ">>"):
        width, kind = max(a.width, 32), a.kind
    else:
        kind = "u" if "u" in (a.kind, b.kind) else "i" if "i" in (a.kind, b.kind) else "b"
        if op not in "&|^":
            width = max(width, 32)
    x, y = a.number, b.number
    if op == "<<":
        return Value(x << y if y < 4096 else 0, width, kind)
    if op == ">>":
        return Value(x >> y, width, kind)
    if op in "/%":
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        return Value(quotient if op == "/" else x - quotient * y, width, kind)
    results = {"+": x + y, "-": x - y, "*": x * y, "&": x & y, "|": x | y, "^": x ^ y}
    return Value(results[op], width, kind)


def _compare(op: str, a: Value, b: Value) -> Value:
    for value, other in ((a, b), (b, a)):
        if value.kind == "denormal":
            return boolean(nf.is_denormal(other.raw, value.fmt))
    if a.is_nan or b.is_nan:
        return boolean(op == "!=")
    if a.is_infinite or b.is_infinite:
        left, right = ((-1 if v.negative else 1) if v.is_infinite else 0 for v in (a, b))
        order = (left > right) - (left < right)
    else:
        order = nf.compare(a.exact, b.exact)
    answers = {"==": order == 0, "!=": order != 0, "<>": order != 0, "<": order < 0, ">": order > 0}
    return boolean(answers.get(op, order <= 0 if op == "<=" else order >= 0))


def binary(env: Environment, op: str, a: Value, b: Value) -> Value:
    if op in ("&&", "||"):
        return boolean(bool(a) and bool(b) if op == "&&" else bool(a) or bool(b))
    if op in ("==", "!=", "<>", "<", ">", "<=", ">="):
        return _compare(op, a, b)
    if op == "**":
        base, power = a.exact, max(min(b.number, 5000), -5000)
        if base[1].bit_count() != 1:
            raise Unusable("only powers of two can be raised")
        return Value((False, 1, (base[2] + base[1].bit_length() - 1) * power), 0, "r")
    if a.kind in "fr" or b.kind in "fr":
        if op in "+-":
            return float_add(env, a, negate(b) if op == "-" else b)
        return {"*": float_multiply, "/": float_divide}[op](env, a, b)
    return _integer_binary(op, a, b)


def negate(value: Value) -> Value:
    if value.kind == "f":
        return floating(value.raw ^ value.fmt.sign, value.fmt)
    if value.kind == "r":
        return Value((not value.raw[0], *value.raw[1:]), 0, "r")
    return Value(-value.number, max(value.width, 32), value.kind)


def _nan_with_payload(value: Value, fmt: nf.Format) -> Value:
    """Widens or narrows a NaN so that a signalling one stays signalling, as isSignalNAN(64'F(x)) presumes."""
    shift = fmt.mantissa - value.fmt.mantissa
    payload = value.raw & ((1 << value.fmt.mantissa) - 1)
    payload = payload << shift if shift >= 0 else payload >> -shift
    return floating(fmt.infinity | payload | (fmt.sign if value.negative else 0), fmt)


def cast(env: Environment, width: int, letter: str, value: Value) -> Value:
    if letter == "F":
        fmt = nf.FORMATS[f"f{width}"]
        if value.kind == "r":
            return value
        if value.is_nan and not value.fmt.finite_only:
            return _nan_with_payload(value, fmt)
        if value.is_nan:
            return nan_of(fmt)
        if value.kind == "f":
            return (
                value
                if value.fmt is fmt
                else round_to(env, value.exact, fmt)
                if not value.is_infinite
                else (infinity_of(value.negative, fmt))
            )
        if value.kind == "b":
            return floating(value.raw, fmt)
        return round_to(env, value.exact, fmt)
    kind = letter.lower()
    if kind in "ui" and value.kind in "fr":
        return to_integer(value, width, kind == "i")
    return Value(value.raw if kind == "b" else value.number, width, kind)


# --- functions that the text calls --------------------------------------------------------------------------------


def with_bits(value: Value, raw: int) -> Value:
    return Value(raw, value.width, value.kind, value.fmt)


def _integral(value: Value, direction: str) -> Value:
    """Rounds to an integral number without the rounding mode; the sign of a zero result is the operand's."""
    if value.is_nan or value.is_infinite:
        return value
    negative, significand, exponent = value.exact
    if exponent >= 0:
        return value
    whole, rest = significand >> -exponent, significand & ((1 << -exponent) - 1)
    half = 1 << (-exponent - 1)
    if direction == "floor":
        whole += negative and rest > 0
    elif direction == "even":
        whole += rest > half or (rest == half and whole & 1)
    return floating(nf.encode((negative, whole, 0), value.fmt), value.fmt)


def _normalised(value: Value) -> tuple[bool, int, int]:
    """(negative, significand, exponent) with the magnitude equal to 0.1xxx... * 2**exponent."""
    negative, significand, exponent = value.exact
    return negative, significand, exponent + significand.bit_length()


def _mantissa(env: Environment, value: Value) -> Value:
    negative, significand, _ = _normalised(value)
    return floating(nf.encode((negative, significand, -significand.bit_length()), value.fmt), value.fmt)


def _frexp_exponent(env: Environment, value: Value) -> Value:
    _, significand, exponent = _normalised(value)
    return Value(exponent if significand else 0, 32, "i")


def _signext_from_bit(env: Environment, value: Value, width: Value) -> Value:
    n = min(width.number, value.width)
    field = value.raw & ((1 << n) - 1)
    return with_bits(value, field - (1 << n) if n and field >> (n - 1) else field)


def _normalise_to(value: Value, scale: int, width: int, kind: str) -> Value:
    """round-to-even(clamp(x) * scale); NaN gives 0."""
    if value.is_nan:
        return Value(0, width, kind)
    low = -1.0 if kind == "i" else 0.0
    x = min(max(nf.to_float(value.raw, value.fmt), low), 1.0)
    negative, significand, exponent = nf.multiply(nf.from_float(x), (False, scale, 0))
    magnitude = significand >> -exponent
    rest, half = significand & ((1 << -exponent) - 1), 1 << max(-exponent - 1, 0)
    magnitude += exponent < 0 and (rest > half or (rest == half and magnitude & 1))
    return Value(-magnitude if negative else magnitude, width, kind)


def convert_named(env: Environment, source: str, target: str, value: Value) -> Value:
    if target in ("snorm", "unorm"):
        scale, kind = (32767, "i") if target == "snorm" else (65535, "u")
        return _normalise_to(value, scale, 16, kind)
    if source in nf.FORMATS and value.kind != "f":
        value = view(value, source)
    kind, width, fmt = parse_type(target)
    if kind == "f":
        return convert_float(env, value, fmt) if value.kind == "f" else round_to(env, value.exact, fmt)
    if value.kind == "f":
        return to_integer(value, width, kind == "i")
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind == "i" else (0, (1 << width) - 1)
    return Value(min(max(value.number, low), high), width, kind)


def _square_root(env: Environment, value: Value) -> Value:
    value = _operand(env, value)
    if value.is_nan or (value.negative and (value.is_infinite or value.exact[1])):
        return nan_of(value.fmt)
    if value.is_infinite or not value.exact[1]:
        return value
    return round_to(env, nf.square_root(value.exact), value.fmt)


def _reciprocal_root(env: Environment, value: Value) -> Value:
    value = _operand(env, value)
    if value.is_nan or (value.negative and (value.is_infinite or value.exact[1])):
        return nan_of(value.fmt)
    if value.is_infinite:
        return floating(0, value.fmt)
    if not value.exact[1]:
        return infinity_of(value.negative, value.fmt)
    return round_to(env, nf.divide((False, 1, 0), nf.square_root(value.exact)), value.fmt)


def _power(env: Environment, base: Value, value: Value) -> Value:
    if base.exact[1:] not in ((1, 1), (1 << base.fmt.mantissa, 1 - base.fmt.mantissa)):
        raise Unusable("only powers of two are computed")
    value = _operand(env, value)
    if value.is_nan:
        return nan_of(value.fmt)
    if value.is_infinite:
        return floating(0, value.fmt) if value.negative else value
    x = min(max(nf.to_float(value.raw, value.fmt), -1000.0), 1000.0)
    return round_to(env, nf.from_float(2.0**x), value.fmt)


def _log2(env: Environment, value: Value) -> Value:
    value = _operand(env, value)
    if value.is_nan or (value.negative and (value.is_infinite or value.exact[1])):
        return nan_of(value.fmt)
    if value.is_infinite:
        return value
    if not value.exact[1]:
        return infinity_of(True, value.fmt)
    return round_to(env, nf.from_float(math.log2(nf.to_float(value.raw, value.fmt))), value.fmt)


def _turns(function: Callable[[float], float]) -> Callable:
    """sin or cos of a number of whole turns. The turns are reduced exactly, so that f64 gives the answer."""

    def evaluate(env: Environment, value: Value) -> Value:
        if value.is_nan or value.is_infinite:
            return nan_of(value.fmt)
        x = math.fmod(nf.to_float(value.raw, value.fmt), 1.0)
        return round_to(env, nf.from_float(function(x)), value.fmt)

    return evaluate


def _sine(turns: float) -> float:
    if abs(turns) > 0.5:
        turns -= math.copysign(1.0, turns)
    if abs(turns) > 0.25:
        turns = math.copysign(0.5, turns) - turns
    return math.sin(2 * math.pi * turns)


def _cosine(turns: float) -> float:
    return _sine(0.25 - abs(math.fmod(turns, 1.0)))


def _ldexp(env: Environment, value: Value, power: Value) -> Value:
    return float_multiply(env, value, Value((False, 1, power.number), 0, "r"))


def _first_one(env: Environment, value: Value) -> Value:
    return Value((value.raw & -value.raw).bit_length() - 1, 32, "i")


FUNCTIONS: dict[str, Callable] = {
    "fma": float_fma,
    "abs": lambda env, x: (
        with_bits(x, x.raw & (x.fmt.sign - 1)) if x.kind == "f" else Value(abs(x.number), x.width, x.kind)
    ),
    "sign": lambda env, x: boolean(x.negative),
    "exponent": lambda env, x: Value(nf.biased_exponent(x.raw, x.fmt), 32, "i"),
    "frexp_exponent": _frexp_exponent,
    "mantissa": _mantissa,
    "isNAN": lambda env, x: boolean(x.is_nan),
    "isQuietNAN": lambda env, x: boolean(x.is_nan and x.raw >> (x.fmt.mantissa - 1) & 1),
    "isSignalNAN": lambda env, x: boolean(x.is_nan and not x.raw >> (x.fmt.mantissa - 1) & 1),
    "cvtToQuietNAN": lambda env, x: with_bits(x, x.raw | 1 << (x.fmt.mantissa - 1)),
    "signext": lambda env, x: Value(x.number if x.kind == "i" else _same_signed(x), 64, "i"),
    "signext_from_bit": _signext_from_bit,
    "trunc": lambda env, x: _integral(x, "trunc"),
    "floor": lambda env, x: _integral(x, "floor"),
    "round_even": lambda env, x: _integral(x, "even"),
    "sqrt": _square_root,
    "ldexp": _ldexp,
    "reciprocal_root": _reciprocal_root,
    "pow": _power,
    "log2": _log2,
    "sin_turns": _turns(_sine),
    "cos_turns": _turns(_cosine),
    "s_ff1_i32_b32": _first_one,
    "s_ff1_i32_b64": _first_one,
    "s_nop": lambda env, x: x,
    "nop": lambda env: unsigned(0),
    "v_cvt_i16_f32": lambda env, x: to_integer(x, 16, True),
    "v_cvt_u16_f32": lambda env, x: to_integer(x, 16, False),
    "HwRegWriteMask": lambda env, register, privileged: Value(-1, 32, "i"),
}


def _same_signed(value: Value) -> int:
    return Value(value.raw, value.width, "i").number


CONSTANTS = {
    "INF": floating(nf.F64.infinity, nf.F64),
    "NAN": floating(nf.F64.nan, nf.F64),
    "MAX_FLOAT_F32": floating(nf.F32.largest, nf.F32),
    "OVERFLOW_F32": floating(nf.F32.infinity, nf.F32),
    "OVERFLOW_F64": floating(nf.F64.infinity, nf.F64),
    "UNDERFLOW_F32": floating(0, nf.F32),
    "UNDERFLOW_F64": floating(0, nf.F64),
    "ROUND_TOWARD_ZERO": Value(nf.TOWARD_ZERO, 4, "u"),
    "ROUND_NEAREST_EVEN": Value(nf.NEAREST_EVEN, 4, "u"),
    "WAVE32": boolean(True),
    "WAVE64": boolean(False),
    "wave32": boolean(True),
}
