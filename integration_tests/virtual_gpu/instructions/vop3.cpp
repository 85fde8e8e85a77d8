// SPDX-License-Identifier: MIT
// Three-operand vector instructions and those that exist only in the 64-bit encodings.
#include "core/tables.h"
#include "instructions/rows.h"

namespace virtual_gpu {
namespace {

template <class T>
T smaller(T a, T b) {
    return a < b ? a : b;
}
template <class T>
T larger(T a, T b) {
    return a >= b ? a : b;
}
template <class T>
T median(T a, T b, T c) {
    T top = larger(larger(a, b), c);
    return top == a ? larger(b, c) : top == b ? larger(a, c) : larger(a, b);
}
float median_number(float a, float b, float c) {
    if (a != a || b != b || c != c) return min_number(min_number(a, b), c);
    float top = max_number(max_number(a, b), c);
    return top == a ? max_number(b, c) : top == b ? max_number(a, c) : max_number(a, b);
}

// An integer result: wrapped, or with CLAMP saturated to the destination.
template <class T>
T narrow(int64_t value, bool clamp) {
    constexpr int64_t low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
    if (clamp) value = value < low ? low : value > high ? high : value;
    return static_cast<T>(value);
}
int32_t add_signed(int32_t a, int32_t b, bool clamp) {
    return narrow<int32_t>(static_cast<int64_t>(a) + b, clamp);
}
int32_t subtract_signed(int32_t a, int32_t b, bool clamp) {
    return narrow<int32_t>(static_cast<int64_t>(a) - b, clamp);
}

int32_t sign_extend_field(int32_t value, uint32_t width) {
    return width == 0 ? 0
                      : static_cast<int32_t>(static_cast<uint32_t>(value) << (32 - width)) >> (32 - width);
}
uint32_t select_byte(uint64_t data, uint32_t selector) {
    selector &= 0xff;
    if (selector >= 13) return 0xff;
    if (selector == 12) return 0;
    if (selector >= 8) return data >> ((selector - 8) * 16 + 15) & 1 ? 0xff : 0;
    return data >> (selector * 8) & 0xff;
}
uint32_t permute_bytes(uint32_t high, uint32_t low, uint32_t selectors) {
    uint64_t data = static_cast<uint64_t>(high) << 32 | low;
    uint32_t result = 0;
    for (int byte = 0; byte < 4; ++byte) result |= select_byte(data, selectors >> (byte * 8)) << (byte * 8);
    return result;
}
uint32_t absolute_difference(uint32_t a, uint32_t b) { return a > b ? a - b : b - a; }
uint32_t sum_of_byte_differences(uint32_t a, uint32_t b, uint32_t sum, bool masked) {
    for (int shift = 0; shift < 32; shift += 8) {
        uint32_t reference = b >> shift & 0xff;
        sum += masked && reference == 0 ? 0 : absolute_difference(a >> shift & 0xff, reference);
    }
    return sum;
}
uint64_t four_sums(uint64_t a, uint32_t b, uint64_t sums, bool masked) {
    uint64_t result = 0;
    for (int i = 0; i < 4; ++i) {
        uint32_t sum = sum_of_byte_differences(static_cast<uint32_t>(a >> (8 * i)), b,
                                               static_cast<uint32_t>(sums >> (16 * i) & 0xffff), masked);
        result |= static_cast<uint64_t>(sum & 0xffff) << (16 * i);
    }
    return result;
}
uint32_t average_bytes(uint32_t a, uint32_t b, uint32_t round) {
    uint32_t result = 0;
    for (int shift = 0; shift < 32; shift += 8)
        result |= (((a >> shift & 0xff) + (b >> shift & 0xff) + (round >> shift & 1)) >> 1) << shift;
    return result;
}
uint32_t replace_byte(uint32_t bits, uint32_t position, uint32_t byte) {
    uint32_t shift = (position & 3) * 8;
    return (bits & ~(0xffu << shift)) | byte << shift;
}

template <class Float>
Float fix_quotient(Float quotient, Float denominator, Float numerator, int tiny) {
    bool negative = sign_of(denominator) != sign_of(numerator);
    const Float infinity = std::numeric_limits<Float>::infinity();
    Float result;
    if (numerator != numerator) return quiet(numerator);
    if (denominator != denominator) return quiet(denominator);
    bool both_zero = denominator == 0 && numerator == 0;
    bool both_infinite = std::isinf(denominator) && std::isinf(numerator);
    if (both_zero || both_infinite) return -std::numeric_limits<Float>::quiet_NaN();
    if (denominator == 0 || std::isinf(numerator))
        result = infinity;
    else if (std::isinf(denominator) || numerator == 0)
        result = 0;
    else if (tiny && biased_exponent(numerator) - biased_exponent(denominator) < tiny)
        result = 0;
    else
        // The steps before give inf - inf where a quotient of finite numbers is beyond the range.
        result = quotient != quotient && tiny ? infinity : std::fabs(quotient);
    return negative ? -result : result;
}

// v_div_fmas undoes what v_div_scale did: a large numerator means that the
// denominator was scaled up, a small one that the numerator was. AMD's text prints
// 2^32; only 2^64 (f64: 2^128) matches v_div_scale and gives exact quotients.
template <class Float>
Float unscale_quotient(Float quotient, Float numerator, int step, bool scaled) {
    return scaled ? std::ldexp(quotient, std::fabs(numerator) >= 2 ? step : -step) : quotient;
}
template <class Float>
bool is_denormal(Float value) {
    return value != 0 && std::fabs(value) < std::numeric_limits<Float>::min();
}

// V_DIV_SCALE: moves a division away from overflow and underflow; `flag` asks
// V_DIV_FMAS to undo it. AMD's pseudo-code compares 1/denominator with a
// double denormal also for f32; the algorithm needs the operand's own format.
template <class Float>
Float scale_for_division(Float value, Float denominator, Float numerator, int near_overflow, int tiny,
                         int step, bool& flag) {
    flag = false;
    if (numerator == 0 || denominator == 0) return std::numeric_limits<Float>::quiet_NaN();
    bool reciprocal_denormal = is_denormal(static_cast<Float>(1) / denominator);
    bool quotient_denormal = is_denormal(numerator / denominator);
    if (biased_exponent(numerator) - biased_exponent(denominator) >= near_overflow) {
        flag = true;
        return value == denominator ? std::ldexp(value, step) : value;
    }
    if (is_denormal(denominator)) return std::ldexp(value, step);
    if (reciprocal_denormal && quotient_denormal) {
        flag = true;
        return value == denominator ? std::ldexp(value, -step) : value;
    }
    if (reciprocal_denormal) return std::ldexp(value, -step);
    if (quotient_denormal) {
        flag = true;
        return value == numerator ? std::ldexp(value, step) : value;
    }
    if (biased_exponent(numerator) <= tiny) return std::ldexp(value, step);
    return value;
}

int cube_face(float x, float y, float z) {
    float ax = std::fabs(x), ay = std::fabs(y), az = std::fabs(z);
    if (az >= ax && az >= ay) return z < 0 ? 5 : 4;
    if (ay >= ax) return y < 0 ? 3 : 2;
    return x < 0 ? 1 : 0;
}
float cube_s(float x, float y, float z) {
    const float by_face[] = {-z, z, x, x, x, -x};
    return by_face[cube_face(x, y, z)];
}
float cube_t(float x, float y, float z) {
    const float by_face[] = {-y, -y, z, -z, -y, -y};
    return by_face[cube_face(x, y, z)];
}
float cube_major(float x, float y, float z) {
    const float by_axis[] = {x, y, z};
    return by_axis[cube_face(x, y, z) / 2] * 2.0f;
}
float multiply_lit(float a, float b, float c) {
    const float lowest = std::numeric_limits<float>::lowest();
    return b == lowest || std::isinf(b) * (b < 0) || b != b || c <= 0 || c != c ? lowest : a * b;
}

float round_to_half(float value) { return half_to_float(float_to_half(value, false)); }
float round_to_bfloat(float value) { return bfloat_to_float(float_to_bfloat(value)); }
// Each product and each sum is rounded to the destination's format, as AMD's pseudo-code has it.
float dot2_half(uint32_t a, uint32_t b, float c) {
    c = round_to_half(c + round_to_half(half_to_float(a & 0xffff) * half_to_float(b & 0xffff)));
    return c + round_to_half(half_to_float(a >> 16) * half_to_float(b >> 16));
}
float dot2_bfloat(uint32_t a, uint32_t b, float c) {
    c = round_to_bfloat(c + round_to_bfloat(bfloat_to_float(a & 0xffff) * bfloat_to_float(b & 0xffff)));
    return c + round_to_bfloat(bfloat_to_float(a >> 16) * bfloat_to_float(b >> 16));
}
uint32_t pack(uint32_t low, uint32_t high) { return (low & 0xffff) | high << 16; }
uint32_t raw_half(const Lanes& in, int i, int lane) { return in.source[i][0][lane] & 0xffff; }

VOP(v_fma_f32, kVector, d = __builtin_fmaf(s0, s1, s2))
VOP(v_fma_dx9_zero_f32, kVector, d = s0 == 0 || s1 == 0 ? s2 : __builtin_fmaf(s0, s1, s2))
VOP(v_fma_f64, kVector, d = __builtin_fma(s0, s1, s2))
VOP(v_fma_f16, kVector, d = fma_half(s0, s1, s2))
VOP(v_mad_i32_i24, kVector,
    d = static_cast<int32_t>(static_cast<uint32_t>(s0) * static_cast<uint32_t>(s1) +
                             static_cast<uint32_t>(s2)))
VOP(v_mad_u32_u24, kVector, d = s0 * s1 + s2)
VOP(v_bfe_u32, kVector, d = (s0 >> (s1 & 31)) & ((1u << (s2 & 31)) - 1))
VOP(v_bfe_i32, kVector, d = sign_extend_field(static_cast<int32_t>(s0) >> (s1 & 31), s2 & 31))
VOP(v_bfi_b32, kVector, d = (s0 & s1) | (~s0 & s2))
VOP(v_lerp_u8, kVector, d = average_bytes(s0, s1, s2))
VOP(v_alignbit_b32, kVector, d = static_cast<uint32_t>((static_cast<uint64_t>(s0) << 32 | s1) >> (s2 & 31)))
VOP(v_alignbyte_b32, kVector,
    d = static_cast<uint32_t>((static_cast<uint64_t>(s0) << 32 | s1) >> ((s2 & 3) * 8)))
VOP(v_mullit_f32, kVector, d = multiply_lit(s0, s1, s2))
VOP(v_cubeid_f32, kVector, d = static_cast<float>(cube_face(s0, s1, s2)))
VOP(v_cubesc_f32, kVector, d = cube_s(s0, s1, s2))
VOP(v_cubetc_f32, kVector, d = cube_t(s0, s1, s2))
VOP(v_cubema_f32, kVector, d = cube_major(s0, s1, s2))
VOP(v_min3_i32, kVector, d = smaller(smaller(s0, s1), s2))
VOP(v_min3_u32, kVector, d = smaller(smaller(s0, s1), s2))
VOP(v_max3_i32, kVector, d = larger(larger(s0, s1), s2))
VOP(v_max3_u32, kVector, d = larger(larger(s0, s1), s2))
VOP(v_med3_i32, kVector, d = median(s0, s1, s2))
VOP(v_med3_u32, kVector, d = median(s0, s1, s2))
VOP(v_min3_i16, kVector, d = smaller(smaller(s0, s1), s2))
VOP(v_min3_u16, kVector, d = smaller(smaller(s0, s1), s2))
VOP(v_max3_i16, kVector, d = larger(larger(s0, s1), s2))
VOP(v_max3_u16, kVector, d = larger(larger(s0, s1), s2))
VOP(v_med3_i16, kVector, d = median(s0, s1, s2))
VOP(v_med3_u16, kVector, d = median(s0, s1, s2))
VOP(v_min3_num_f32, kVector, d = min_number(min_number(s0, s1), s2))
VOP(v_max3_num_f32, kVector, d = max_number(max_number(s0, s1), s2))
VOP(v_med3_num_f32, kVector, d = median_number(s0, s1, s2))
VOP(v_minimum3_f32, kVector, d = minimum(minimum(s0, s1), s2))
VOP(v_maximum3_f32, kVector, d = maximum(maximum(s0, s1), s2))
VOP(v_min3_num_f16, kVector, d = min_number(min_number(s0, s1), s2))
VOP(v_max3_num_f16, kVector, d = max_number(max_number(s0, s1), s2))
VOP(v_med3_num_f16, kVector, d = median_number(s0, s1, s2))
VOP(v_minimum3_f16, kVector, d = minimum(minimum(s0, s1), s2))
VOP(v_maximum3_f16, kVector, d = maximum(maximum(s0, s1), s2))
VOP(v_maxmin_u32, kVector, d = smaller(larger(s0, s1), s2))
VOP(v_minmax_u32, kVector, d = larger(smaller(s0, s1), s2))
VOP(v_maxmin_i32, kVector, d = smaller(larger(s0, s1), s2))
VOP(v_minmax_i32, kVector, d = larger(smaller(s0, s1), s2))
VOP(v_minmax_num_f32, kVector, d = max_number(min_number(s0, s1), s2))
VOP(v_maxmin_num_f32, kVector, d = min_number(max_number(s0, s1), s2))
VOP(v_minmax_num_f16, kVector, d = max_number(min_number(s0, s1), s2))
VOP(v_maxmin_num_f16, kVector, d = min_number(max_number(s0, s1), s2))
VOP(v_minimummaximum_f32, kVector, d = maximum(minimum(s0, s1), s2))
VOP(v_maximumminimum_f32, kVector, d = minimum(maximum(s0, s1), s2))
VOP(v_minimummaximum_f16, kVector, d = maximum(minimum(s0, s1), s2))
VOP(v_maximumminimum_f16, kVector, d = minimum(maximum(s0, s1), s2))
VOP(v_minimum_f32, kVector, d = minimum(s0, s1))
VOP(v_maximum_f32, kVector, d = maximum(s0, s1))
VOP(v_minimum_f16, kVector, d = minimum(s0, s1))
VOP(v_maximum_f16, kVector, d = maximum(s0, s1))
VOP(v_minimum_f64, kVector, d = minimum(s0, s1))
VOP(v_maximum_f64, kVector, d = maximum(s0, s1))
VOP(v_sad_u8, kVector, d = sum_of_byte_differences(s0, s1, s2, false))
VOP(v_sad_hi_u8, kVector, d = (sum_of_byte_differences(s0, s1, 0, false) << 16) + s2)
VOP(v_sad_u16, kVector,
    d = s2 + absolute_difference(s0 & 0xffff, s1 & 0xffff) + absolute_difference(s0 >> 16, s1 >> 16))
VOP(v_sad_u32, kVector, d = s2 + absolute_difference(s0, s1))
VOP(v_msad_u8, kVector, d = sum_of_byte_differences(s0, s1, s2, true))
VOP(v_qsad_pk_u16_u8, kVector, d = four_sums(s0, s1, s2, false))
VOP(v_mqsad_pk_u16_u8, kVector, d = four_sums(s0, s1, s2, true))
VOP(v_cvt_pk_u8_f32, kVector, d = replace_byte(s2, s1, to_integer<uint8_t>(s0)))
VOP(v_div_fixup_f32, kVector, d = fix_quotient(s0, s1, s2, -150))
VOP(v_div_fixup_f64, kVector, d = fix_quotient(s0, s1, s2, -1075))
VOP(v_div_fixup_f16, kVector, d = fix_quotient(s0, s1, s2, 0))
VOP(v_div_fmas_f32, kVector, d = unscale_quotient(__builtin_fmaf(s0, s1, s2), s2, 64, vcc))
VOP(v_div_fmas_f64, kVector, d = unscale_quotient(__builtin_fma(s0, s1, s2), s2, 128, vcc))
VOP(v_xor3_b32, kVector, d = s0 ^ s1 ^ s2)
VOP(v_or3_b32, kVector, d = s0 | s1 | s2)
VOP(v_and_or_b32, kVector, d = (s0 & s1) | s2)
VOP(v_perm_b32, kVector, d = permute_bytes(s0, s1, s2))
VOP(v_xad_u32, kVector, d = (s0 ^ s1) + s2)
VOP(v_lshl_add_u32, kVector, d = (s0 << (s1 & 31)) + s2)
VOP(v_add_lshl_u32, kVector, d = (s0 + s1) << (s2 & 31))
VOP(v_lshl_or_b32, kVector, d = (s0 << (s1 & 31)) | s2)
VOP(v_add3_u32, kVector, d = s0 + s1 + s2)
VOP(v_cndmask_b16, kVector, d = vcc ? s1 : s0)
VOP(v_mad_u32_u16, kVector, d = static_cast<uint32_t>(s0) * s1 + s2)
VOP(v_mad_i32_i16, kVector,
    d = static_cast<int32_t>(static_cast<uint32_t>(s0 * s1) + static_cast<uint32_t>(s2)))
VOP_SATURATING(v_mad_u16, kVector, d = narrow<uint16_t>(static_cast<int64_t>(s0) * s1 + s2, in.clamp))
VOP_SATURATING(v_mad_i16, kVector, d = narrow<int16_t>(static_cast<int64_t>(s0) * s1 + s2, in.clamp))
VOP_SATURATING(v_add_nc_u16, kVector, d = narrow<uint16_t>(s0 + s1, in.clamp))
VOP_SATURATING(v_sub_nc_u16, kVector, d = narrow<uint16_t>(s0 - s1, in.clamp))
VOP_SATURATING(v_add_nc_i16, kVector, d = narrow<int16_t>(s0 + s1, in.clamp))
VOP_SATURATING(v_sub_nc_i16, kVector, d = narrow<int16_t>(s0 - s1, in.clamp))
VOP_SATURATING(v_add_nc_i32, kVector, d = add_signed(s0, s1, in.clamp))
VOP_SATURATING(v_sub_nc_i32, kVector, d = subtract_signed(s0, s1, in.clamp))
VOP(v_mul_lo_u16, kVector, d = static_cast<uint16_t>(static_cast<uint32_t>(s0) * s1))
VOP(v_max_u16, kVector, d = larger(s0, s1))
VOP(v_max_i16, kVector, d = larger(s0, s1))
VOP(v_min_u16, kVector, d = smaller(s0, s1))
VOP(v_min_i16, kVector, d = smaller(s0, s1))
VOP(v_lshlrev_b16, kVector, d = static_cast<uint16_t>(s1 << (s0 & 15)))
VOP(v_lshrrev_b16, kVector, d = static_cast<uint16_t>(s1 >> (s0 & 15)))
VOP(v_ashrrev_i16, kVector, d = static_cast<int16_t>(s1 >> (s0 & 15)))
VOP(v_and_b16, kVector, d = s0 & s1)
VOP(v_or_b16, kVector, d = s0 | s1)
VOP(v_xor_b16, kVector, d = s0 ^ s1)
VOP(v_dot2_f16_f16, kVector, d = dot2_half(s0, s1, s2))
VOP(v_dot2_bf16_bf16, kVector, d = dot2_bfloat(s0, s1, s2))
VOP(v_pack_b32_f16, kVector, d = pack(raw_half(in, 0, lane), raw_half(in, 1, lane)))
VOP(v_cvt_pk_i16_f32, kVector,
    d = pack(static_cast<uint16_t>(to_integer<int16_t>(s0)), static_cast<uint16_t>(to_integer<int16_t>(s1))))
VOP(v_cvt_pk_u16_f32, kVector, d = pack(to_integer<uint16_t>(s0), to_integer<uint16_t>(s1)))
VOP(v_cvt_pk_norm_i16_f16, kVector, d = pack(to_signed_norm(s0), to_signed_norm(s1)))
VOP(v_cvt_pk_norm_u16_f16, kVector, d = pack(to_unsigned_norm(s0), to_unsigned_norm(s1)))
VOP(v_cvt_pk_norm_i16_f32, kVector, d = pack(to_signed_norm(s0), to_signed_norm(s1)))
VOP(v_cvt_pk_norm_u16_f32, kVector, d = pack(to_unsigned_norm(s0), to_unsigned_norm(s1)))
VOP(v_cvt_pk_u16_u32, kVector, d = pack(smaller(s0, 0xffffu), smaller(s1, 0xffffu)))
VOP(v_cvt_pk_i16_i32, kVector,
    d = pack(static_cast<uint32_t>(narrow<int16_t>(s0, true)),
             static_cast<uint32_t>(narrow<int16_t>(s1, true))))
VOP(v_ldexp_f32, kVector, d = std::ldexp(s0, s1))
VOP(v_ldexp_f64, kVector, d = std::ldexp(s0, s1))
VOP(v_bfm_b32, kVector, d = ((1u << (s0 & 31)) - 1) << (s1 & 31))
VOP(v_bcnt_u32_b32, kVector, d = s1 + static_cast<uint32_t>(__builtin_popcount(s0)))
VOP(v_mbcnt_lo_u32_b32, kVector, d = s1 + static_cast<uint32_t>(__builtin_popcount(s0 & ((1u << lane) - 1))))
VOP(v_mbcnt_hi_u32_b32, kVector, d = s1)  // lanes 32..63 do not exist in wave32
VOP(v_mul_lo_u32, kVector, d = s0 * s1)
VOP(v_mul_hi_u32, kVector, d = static_cast<uint32_t>((static_cast<uint64_t>(s0) * s1) >> 32))
VOP(v_mul_hi_i32, kVector, d = static_cast<int32_t>((static_cast<int64_t>(s0) * s1) >> 32))
VOP(v_lshrrev_b64, kVector, d = s1 >> (s0 & 63))
VOP(v_ashrrev_i64, kVector, d = s1 >> (s0 & 63))
VOP(v_cvt_pk_fp8_f32, kVector,
    d = static_cast<uint16_t>(float_to_fp8(s0, kE4m3, in.clamp_overflow) |
                              float_to_fp8(s1, kE4m3, in.clamp_overflow) << 8))
VOP(v_cvt_pk_bf8_f32, kVector,
    d = static_cast<uint16_t>(float_to_fp8(s0, kE5m2, in.clamp_overflow) |
                              float_to_fp8(s1, kE5m2, in.clamp_overflow) << 8))
VOP(v_cvt_sr_fp8_f32, kVector,
    d = static_cast<uint8_t>(float_to_fp8_stochastic(s0, s1, kE4m3, in.clamp_overflow)))
VOP(v_cvt_sr_bf8_f32, kVector,
    d = static_cast<uint8_t>(float_to_fp8_stochastic(s0, s1, kE5m2, in.clamp_overflow)))

VOP_CARRY(v_add_co_u32, kVector, flag = s0 + s1 < s0; d = in.clamp && flag ? ~0u : s0 + s1)
VOP_CARRY(v_sub_co_u32, kVector, flag = s1 > s0; d = in.clamp && flag ? 0 : s0 - s1)
VOP_CARRY(v_subrev_co_u32, kVector, flag = s0 > s1; d = in.clamp && flag ? 0 : s1 - s0)
VOP_CARRY(v_mad_co_u64_u32, kVector, flag = __builtin_add_overflow(static_cast<uint64_t>(s0) * s1, s2, &d))
// The mask result is bit 64 of the 65-bit sum: its sign.
VOP_CARRY(v_mad_co_i64_i32, kVector,
          flag = __builtin_add_overflow(static_cast<int64_t>(s0) * s1, s2, &d) ? d >= 0 : d < 0)
VOP_CARRY(v_div_scale_f32, kVector, d = scale_for_division(s0, s1, s2, 96, 23, 64, flag))
VOP_CARRY(v_div_scale_f64, kVector, d = scale_for_division(s0, s1, s2, 768, 53, 128, flag))

}  // namespace

void add_vop3_rows(RowTable& table) { add_rows_of_this_file(table); }

}  // namespace virtual_gpu
