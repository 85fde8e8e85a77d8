// SPDX-License-Identifier: MIT
// Number formats and their conversions: the only place where bits change meaning. Each function names its
// rounding, NaN and denormal rule. "Current rounding" is the host's MXCSR rounding, which the executor sets
// from MODE.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#pragma STDC FP_CONTRACT OFF

namespace virtual_gpu {

inline float as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t as_bits(float value) { return std::bit_cast<uint32_t>(value); }
inline double as_double(uint64_t bits) { return std::bit_cast<double>(bits); }
inline uint64_t as_bits(double value) { return std::bit_cast<uint64_t>(value); }

// f16 -> f32: exact; NaN payload kept and made quiet; denormals kept.
inline float half_to_float(uint32_t half) {
    return static_cast<float>(std::bit_cast<_Float16>(static_cast<uint16_t>(half)));
}

// f32 -> f16: current rounding; denormals kept. With `clamp_overflow` (MODE.FP16_OVFL) a finite value too
// large for f16 becomes +-65504 under any rounding, while infinities stay infinities.
inline uint32_t float_to_half(float value, bool clamp_overflow) {
    uint32_t half = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
    bool overflowed = (half & 0x7fff) == 0x7c00 && (as_bits(value) & 0x7fffffff) < 0x7f800000;
    return clamp_overflow && overflowed ? (half & 0x8000) | 0x7bff : half;
}

// f32 -> f16 toward zero whatever MODE says: a finite overflow becomes +-65504.
inline uint32_t float_to_half_toward_zero(float value) {
    uint32_t half = float_to_half(value, true);
    // Nearest even may have gone outward; one step back is the inner neighbour.
    bool outward = std::fabs(half_to_float(half)) > std::fabs(value);
    return outward ? half - 1 : half;
}
inline uint32_t pack_half_toward_zero(float low, float high) {
    return float_to_half_toward_zero(low) | float_to_half_toward_zero(high) << 16;
}

// bf16 -> f32: exact.
inline float bfloat_to_float(uint32_t bfloat) { return as_float(bfloat << 16); }

// f32 -> bf16: nearest even; NaN stays a quiet NaN; denormals kept.
inline uint32_t float_to_bfloat(float value) {
    uint32_t bits = as_bits(value);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return (bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded;
}

// OCP 8-bit floats: e4m3fn has no infinity and one NaN per sign, e5m2 is IEEE-like.
struct Fp8Format {
    int exponent_bits, mantissa_bits, bias;
    uint32_t largest;   // magnitude bits of the largest finite value
    uint32_t overflow;  // magnitude bits of what overflow and infinity become
};
constexpr Fp8Format kE4m3{4, 3, 7, 0x7e, 0x7f};
constexpr Fp8Format kE5m2{5, 2, 15, 0x7b, 0x7c};

// fp8 -> f32: exact; e4m3fn 0x7f/0xff are NaN; e5m2 exponent 31 is infinity or NaN.
constexpr float fp8_to_float(uint32_t bits, const Fp8Format& format) {
    uint32_t sign = (bits & 0x80) << 24, magnitude = bits & 0x7f;
    uint32_t mantissa = magnitude & ((1u << format.mantissa_bits) - 1),
             exponent = magnitude >> format.mantissa_bits;
    bool is_nan = format.mantissa_bits == 3 ? magnitude == 0x7f : magnitude > 0x7c;
    if (is_nan) return std::bit_cast<float>(sign | 0x7fc00000);
    if (magnitude > format.largest) return std::bit_cast<float>(sign | 0x7f800000);
    float value = static_cast<float>(exponent == 0 ? mantissa : mantissa | (1u << format.mantissa_bits));
    int scale = (exponent == 0 ? 1 : static_cast<int>(exponent)) - format.bias - format.mantissa_bits;
    for (; scale > 0; --scale) value *= 2;
    for (; scale < 0; ++scale) value /= 2;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

// f32 -> fp8: nearest even whatever MODE says; denormals kept. Values that round beyond the largest finite
// one, and infinities, become `format.overflow` (e4m3fn: NaN, e5m2: infinity); with `clamp_overflow`
// (MODE.FP16_OVFL) they become the largest finite value. NaN stays NaN in both modes.
inline uint32_t float_to_fp8(float value, const Fp8Format& format, bool clamp_overflow) {
    uint32_t bits = as_bits(value), sign = (bits >> 24) & 0x80, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return sign | 0x7f;
    // Adding and subtracting 2^(23 + unit) would depend on the host's rounding, so round the bits.
    int exponent = static_cast<int>(magnitude >> 23) - 127;
    int smallest = 1 - format.bias;
    int drop = 23 - format.mantissa_bits + (exponent < smallest ? smallest - exponent : 0);
    if (drop > 25) return sign;
    uint32_t mantissa = (magnitude & 0x7fffff) | (magnitude >= 0x800000 ? 0x800000 : 0);
    uint32_t kept = mantissa >> drop, rest = mantissa & ((1u << drop) - 1), half = 1u << (drop - 1);
    kept += rest > half || (rest == half && (kept & 1));
    uint32_t biased = exponent < smallest ? 0 : static_cast<uint32_t>(exponent - smallest);
    uint32_t result = (biased << format.mantissa_bits) + kept;  // a mantissa carry moves into the exponent
    if (magnitude == 0x7f800000 || result > format.largest)
        result = clamp_overflow ? format.largest : format.overflow;
    return sign | result;
}

// f32 -> fp8 with stochastic rounding: `noise` is added below the kept mantissa, wrapping within the mantissa
// as AMD's pseudo-code states, and the sum is then converted like float_to_fp8.
inline uint32_t float_to_fp8_stochastic(float value, uint32_t noise, const Fp8Format& format,
                                        bool clamp_overflow) {
    uint32_t bits = as_bits(value);
    uint32_t shifted = noise >> (format.mantissa_bits == 3 ? 12 : 11);
    return float_to_fp8(as_float((bits & 0xff800000) | ((bits + shifted) & 0x7fffff)), format,
                        clamp_overflow);
}

// float -> integer: truncation, saturation, NaN -> 0.
template <class Integer, class Float>
Integer to_integer(Float value) {
    constexpr Float low = static_cast<Float>(std::numeric_limits<Integer>::min());
    constexpr Float beyond = static_cast<Float>(std::numeric_limits<Integer>::max() / 2 + 1) * 2;
    if (value != value) return 0;
    if (value >= beyond) return std::numeric_limits<Integer>::max();
    if (value <= low) return std::numeric_limits<Integer>::min();
    return static_cast<Integer>(value);
}

// float -> 16-bit normalised integer: scaled exactly, nearest even, saturated, NaN -> 0.
inline uint32_t to_signed_norm(float value) {
    double clamped = value != value ? 0.0 : value < -1.0f ? -1.0 : value > 1.0f ? 1.0 : value;
    return static_cast<uint16_t>(static_cast<int16_t>(__builtin_roundeven(clamped * 32767.0)));
}
inline uint32_t to_unsigned_norm(float value) {
    double clamped = !(value > 0.0f) ? 0.0 : value > 1.0f ? 1.0 : value;
    return static_cast<uint16_t>(__builtin_roundeven(clamped * 65535.0));
}

// The low 24 bits of a register, sign-extended or not: operands of the 24-bit multiplies.
inline int64_t low_24_signed(uint32_t value) { return static_cast<int32_t>(value << 8) >> 8; }
inline uint64_t low_24(uint32_t value) { return value & 0xffffff; }

template <class Float>
Float quiet(Float value) {
    return value +
           value;  // IEEE 754: any operation on a signalling NaN gives the quiet one, with its payload
}
inline bool sign_of(float value) { return as_bits(value) >> 31; }
inline bool sign_of(double value) { return as_bits(value) >> 63; }

// minimumNumber / maximumNumber: a NaN loses to a number; -0 < +0.
template <class Float>
Float min_number(Float a, Float b) {
    Float r = a < b || (a == b && sign_of(a)) ? a : b;
    r = a != a ? b : r;
    return b != b ? (a != a ? quiet(a) : a) : r;
}
template <class Float>
Float max_number(Float a, Float b) {
    Float r = a > b || (a == b && !sign_of(a)) ? a : b;
    r = a != a ? b : r;
    return b != b ? (a != a ? quiet(a) : a) : r;
}
// minimum / maximum: a NaN wins (the first one, made quiet); -0 < +0.
template <class Float>
Float minimum(Float a, Float b) {
    Float r = a < b || (a == b && sign_of(a)) ? a : b;
    r = b != b ? quiet(b) : r;
    return a != a ? quiet(a) : r;
}
template <class Float>
Float maximum(Float a, Float b) {
    Float r = a > b || (a == b && !sign_of(a)) ? a : b;
    r = b != b ? quiet(b) : r;
    return a != a ? quiet(a) : r;
}

// a * b + c of f16 values, as a float that rounds to f16 as the exact result would: the double sum is rounded
// to odd, so that its later rounding is the only one.
inline float fma_half(float a, float b, float c) {
    double product = static_cast<double>(a) * b, addend = c, sum = product + addend;
    double back = sum - product, error = (product - (sum - back)) + (addend - back);
    uint64_t bits = as_bits(sum);
    bool inexact = error != 0 && std::isfinite(sum);
    if (inexact && !(bits & 1)) bits += (error > 0) == (sum > 0) ? 1 : -1;
    // To float, again to odd: 24 bits are more than twice f16's 11 plus two.
    double odd = as_double(bits);
    float narrow = static_cast<float>(odd);
    if (std::isfinite(narrow) && static_cast<double>(narrow) != odd && !(as_bits(narrow) & 1))
        narrow = as_float(as_bits(narrow) + ((static_cast<double>(narrow) < odd) == (narrow > 0) ? 1 : -1));
    return narrow;
}

// Flushes a denormal to a zero of its sign.
inline float flush(float value) {
    uint32_t bits = as_bits(value);
    return as_float((bits & 0x7f800000) == 0 ? bits & 0x80000000 : bits);
}

// Transcendental functions of f32. The hardware promises 1 ulp and flushes denormal inputs and results
// whatever MODE says; here the double result is rounded to nearest, which is the correctly rounded value in
// all but a few cases in 2^20.

// 2^x: the power-of-two part is exact, the rest a Taylor series in double (relative error below 2^-50).
inline double exp2_double(double x) {
    constexpr double kCoefficients[] = {1.0,
                                        0.69314718055994530942,
                                        0.24022650695910071233,
                                        0.055504108664821579953,
                                        0.0096181291076284771619,
                                        0.0013333558146428443423,
                                        0.00015403530393381609954,
                                        1.5252733804059840280e-5,
                                        1.3215486790144309488e-6,
                                        1.0178086009239699728e-7,
                                        7.0549116208011233299e-9,
                                        4.4455382718708114976e-10,
                                        2.5678435993488205142e-11};
    double whole = __builtin_roundeven(x), fraction = x - whole, sum = 0;
    for (int i = 12; i >= 0; --i) sum = sum * fraction + kCoefficients[i];
    int64_t exponent = static_cast<int32_t>(whole);
    return as_double(as_bits(sum) + static_cast<uint64_t>(exponent << 52));
}
inline float exp2_flushing(float x) {
    double clamped = x > 200.0f ? 200.0 : x < -200.0f ? -200.0 : static_cast<double>(flush(x));
    float result = flush(static_cast<float>(exp2_double(clamped == clamped ? clamped : 0.0)));
    return x != x ? quiet(x) : result;
}
inline float log2_flushing(float x) { return static_cast<float>(std::log2(static_cast<double>(flush(x)))); }
inline float reciprocal_flushing(float x) {
    return flush(static_cast<float>(1.0 / static_cast<double>(flush(x))));
}
inline float sqrt_flushing(float x) { return __builtin_sqrtf(flush(x)); }
inline float reciprocal_sqrt_flushing(float x) {
    return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(flush(x))));
}
// Sine and cosine of x turns: the argument is reduced exactly before it meets pi.
inline double turns_to_radians(float x) {
    double turns = static_cast<double>(x);
    return (turns - __builtin_roundeven(turns)) * 6.283185307179586476925;
}
inline float sin_turns(float x) {
    return std::isinf(x) ? as_float(0xffc00000)
                         : flush(static_cast<float>(std::sin(turns_to_radians(flush(x)))));
}
inline float cos_turns(float x) {
    return std::isinf(x) ? as_float(0xffc00000)
                         : flush(static_cast<float>(std::cos(turns_to_radians(flush(x)))));
}

// Mantissa in [0.5, 1) and exponent of a finite number; infinities and NaN keep their value and exponent 0.
template <class Float>
Float mantissa_of(Float value) {
    int exponent;
    return std::isfinite(value) ? std::frexp(value, &exponent) : value;
}
template <class Float>
int exponent_of(Float value) {
    int exponent = 0;
    if (std::isfinite(value)) std::frexp(value, &exponent);
    return exponent;
}
inline int biased_exponent(float value) { return (as_bits(value) >> 23) & 0xff; }
inline int biased_exponent(double value) { return (as_bits(value) >> 52) & 0x7ff; }

}  // namespace virtual_gpu
