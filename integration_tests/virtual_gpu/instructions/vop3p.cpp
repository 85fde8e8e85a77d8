// SPDX-License-Identifier: MIT
// Packed 16-bit arithmetic, dot products and mixed-precision FMA.
#include "core/tables.h"
#include "instructions/rows.h"

namespace virtual_gpu {
namespace {

template <class Effect>
uint32_t each_half(bool clamp_overflow, Effect effect, uint32_t a, uint32_t b, uint32_t c = 0) {
    auto one = [&](int shift) {
        auto half = [shift](uint32_t bits) { return half_to_float(bits >> shift & 0xffff); };
        return float_to_half(effect(half(a), half(b), half(c)), clamp_overflow);
    };
    return one(0) | one(16) << 16;
}
template <class T, class Effect>
uint32_t each_integer(bool clamp, Effect effect, uint32_t a, uint32_t b, uint32_t c = 0) {
    constexpr int low = std::numeric_limits<T>::min(), high = std::numeric_limits<T>::max();
    auto one = [&](int shift) {
        auto element = [shift](uint32_t bits) { return static_cast<int64_t>(static_cast<T>(bits >> shift)); };
        int64_t value = effect(element(a), element(b), element(c));
        if (clamp) value = value < low ? low : value > high ? high : value;
        return static_cast<uint32_t>(value) & 0xffff;
    };
    return one(0) | one(16) << 16;
}

#define PK_F16(mnemonic, expression)                                                           \
    VOP(mnemonic, kVector,                                                                     \
        d = each_half(                                                                         \
            in.clamp_overflow,                                                                 \
            []([[maybe_unused]] float a, [[maybe_unused]] float b, [[maybe_unused]] float c) { \
                return expression;                                                             \
            },                                                                                 \
            s0, s1))
#define PK_INTEGER(mnemonic, type, expression) \
    VOP_SATURATING(                            \
        mnemonic, kVector,                     \
        d = each_integer<type>(                \
            in.clamp, [](int64_t a, int64_t b, int64_t) -> int64_t { return expression; }, s0, s1))
#define PK_INTEGER3(mnemonic, type, expression) \
    VOP_SATURATING(                             \
        mnemonic, kVector,                      \
        d = each_integer<type>(                 \
            in.clamp, [](int64_t a, int64_t b, int64_t c) -> int64_t { return expression; }, s0, s1, s2))

PK_F16(v_pk_add_f16, a + b)
PK_F16(v_pk_mul_f16, a* b)
PK_F16(v_pk_min_num_f16, min_number(a, b))
PK_F16(v_pk_max_num_f16, max_number(a, b))
PK_F16(v_pk_minimum_f16, minimum(a, b))
PK_F16(v_pk_maximum_f16, maximum(a, b))
VOP(v_pk_fma_f16, kVector, d = each_half(in.clamp_overflow, fma_half, s0, s1, s2))

PK_INTEGER3(v_pk_mad_i16, int16_t, a* b + c)
PK_INTEGER3(v_pk_mad_u16, uint16_t, a* b + c)
PK_INTEGER(v_pk_mul_lo_u16, uint16_t, a* b)
PK_INTEGER(v_pk_add_i16, int16_t, a + b)
PK_INTEGER(v_pk_sub_i16, int16_t, a - b)
PK_INTEGER(v_pk_add_u16, uint16_t, a + b)
PK_INTEGER(v_pk_sub_u16, uint16_t, a - b)
PK_INTEGER(v_pk_max_i16, int16_t, a >= b ? a : b)
PK_INTEGER(v_pk_min_i16, int16_t, a < b ? a : b)
PK_INTEGER(v_pk_max_u16, uint16_t, a >= b ? a : b)
PK_INTEGER(v_pk_min_u16, uint16_t, a < b ? a : b)
PK_INTEGER(v_pk_lshlrev_b16, uint16_t, b << (a & 15))
PK_INTEGER(v_pk_lshrrev_b16, uint16_t, b >> (a & 15))
PK_INTEGER(v_pk_ashrrev_i16, int16_t, b >> (a & 15))

// Sum of `count` products of `bits`-wide integers; NEG flags an operand as signed.
int64_t dot(uint32_t a, uint32_t b, int bits, bool a_signed, bool b_signed) {
    auto element = [bits](uint32_t word, int i, bool is_signed) {
        uint32_t top = word << (32 - bits * (i + 1));
        return is_signed ? static_cast<int64_t>(static_cast<int32_t>(top) >> (32 - bits))
                         : static_cast<int64_t>(top >> (32 - bits));
    };
    int64_t sum = 0;
    for (int i = 0; i < 32 / bits; ++i) sum += element(a, i, a_signed) * element(b, i, b_signed);
    return sum;
}
int32_t saturate_signed(int64_t value, bool clamp) {
    if (clamp && value > INT32_MAX) return INT32_MAX;
    if (clamp && value < INT32_MIN) return INT32_MIN;
    return static_cast<int32_t>(value);
}
uint32_t saturate_unsigned(int64_t value, bool clamp) {
    return clamp && value > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(value);
}
// Products of 16-bit and 8-bit floats are exact in f32; each addition rounds.
float dot2_half(uint32_t a, uint32_t b, float c) {
    c += half_to_float(a & 0xffff) * half_to_float(b & 0xffff);
    return c + half_to_float(a >> 16) * half_to_float(b >> 16);
}
float dot2_bfloat(uint32_t a, uint32_t b, float c) {
    c += bfloat_to_float(a & 0xffff) * bfloat_to_float(b & 0xffff);
    return c + bfloat_to_float(a >> 16) * bfloat_to_float(b >> 16);
}
float dot4_fp8(uint32_t a, uint32_t b, float c, const std::array<float, 256>& a_table,
               const std::array<float, 256>& b_table) {
    for (int shift = 0; shift < 32; shift += 8) c += a_table[a >> shift & 0xff] * b_table[b >> shift & 0xff];
    return c;
}

VOP_SATURATING(v_dot4_i32_iu8, kVector,
               d = saturate_signed(dot(s0, s1, 8, in.neg & 1, in.neg & 2) + s2, in.clamp))
VOP_SATURATING(v_dot4_u32_u8, kVector, d = saturate_unsigned(dot(s0, s1, 8, false, false) + s2, in.clamp))
VOP_SATURATING(v_dot8_i32_iu4, kVector,
               d = saturate_signed(dot(s0, s1, 4, in.neg & 1, in.neg & 2) + s2, in.clamp))
VOP_SATURATING(v_dot8_u32_u4, kVector, d = saturate_unsigned(dot(s0, s1, 4, false, false) + s2, in.clamp))
VOP(v_dot2_f32_f16, kVector, d = dot2_half(s0, s1, s2))
VOP(v_dot2_f32_bf16, kVector, d = dot2_bfloat(s0, s1, s2))
VOP(v_dot4_f32_fp8_bf8, kVector, d = dot4_fp8(s0, s1, s2, kE4m3ToFloat, kE5m2ToFloat))
VOP(v_dot4_f32_bf8_fp8, kVector, d = dot4_fp8(s0, s1, s2, kE5m2ToFloat, kE4m3ToFloat))
VOP(v_dot4_f32_fp8_fp8, kVector, d = dot4_fp8(s0, s1, s2, kE4m3ToFloat, kE4m3ToFloat))
VOP(v_dot4_f32_bf8_bf8, kVector, d = dot4_fp8(s0, s1, s2, kE5m2ToFloat, kE5m2ToFloat))

// An operand of the mixed FMA: op_sel_hi makes it an f16, op_sel picks the half; NEG_HI means absolute value.
float mixed(const Lanes& in, int i, uint32_t bits) {
    bool is_half = in.op_sel_hi >> i & 1, high = in.op_sel >> i & 1;
    float value = is_half ? half_to_float(high ? bits >> 16 : bits & 0xffff) : as_float(bits);
    uint32_t pattern = as_bits(value);
    if (in.neg_hi >> i & 1) pattern &= 0x7fffffff;
    if (in.neg >> i & 1) pattern ^= 0x80000000;
    return as_float(pattern);
}
float fma_mixed(const Lanes& in, uint32_t a, uint32_t b, uint32_t c) {
    return __builtin_fmaf(mixed(in, 0, a), mixed(in, 1, b), mixed(in, 2, c));
}
VOP(v_fma_mix_f32, kVector, d = fma_mixed(in, s0, s1, s2))
VOP(v_fma_mixlo_f16, kVector, d = fma_mixed(in, s0, s1, s2))
VOP(v_fma_mixhi_f16, kVector, d = fma_mixed(in, s0, s1, s2))

}  // namespace

void add_vop3p_rows(RowTable& table) { add_rows_of_this_file(table); }

}  // namespace virtual_gpu
