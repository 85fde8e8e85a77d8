// SPDX-License-Identifier: MIT
// Vector comparisons. v_cmp writes a lane mask to VCC or SGPRs, v_cmpx to EXEC; the decoder picks the
// destination.
#include "core/tables.h"
#include "instructions/rows.h"

namespace virtual_gpu {
namespace {

// The class bits that V_CMP_CLASS tests, from the operand's sign, exponent and mantissa.
uint32_t class_bit(bool sign, bool all_ones, bool zero_exponent, bool zero_mantissa, bool quiet_bit) {
    if (all_ones && !zero_mantissa) return quiet_bit ? 1 : 0;
    if (all_ones) return sign ? 2 : 9;
    if (!zero_exponent) return sign ? 3 : 8;
    if (!zero_mantissa) return sign ? 4 : 7;
    return sign ? 5 : 6;
}
uint32_t class_of_half(uint32_t bits) {
    uint32_t exponent = bits & 0x7c00, mantissa = bits & 0x3ff;
    return class_bit(bits & 0x8000, exponent == 0x7c00, exponent == 0, mantissa == 0, mantissa & 0x200);
}
uint32_t class_of(float value) {
    uint32_t bits = as_bits(value), exponent = bits & 0x7f800000, mantissa = bits & 0x7fffff;
    return class_bit(bits >> 31, exponent == 0x7f800000, exponent == 0, mantissa == 0, mantissa & 0x400000);
}
uint32_t class_of(double value) {
    uint64_t bits = as_bits(value), exponent = bits << 1 >> 53, mantissa = bits << 12;
    return class_bit(bits >> 63, exponent == 0x7ff, exponent == 0, mantissa == 0, mantissa >> 63);
}

#define COMPARE(condition, type, expression)                            \
    VOP_COMPARE(v_cmp_##condition##_##type, kVector, flag = expression) \
    VOP_COMPARE(v_cmpx_##condition##_##type, kVector, flag = expression)

#define COMPARE_FLOATS(type)                  \
    COMPARE(lt, type, s0 < s1)                \
    COMPARE(eq, type, s0 == s1)               \
    COMPARE(le, type, s0 <= s1)               \
    COMPARE(gt, type, s0 > s1)                \
    COMPARE(lg, type, s0<s1 || s0> s1)        \
    COMPARE(ge, type, s0 >= s1)               \
    COMPARE(o, type, s0 == s0 && s1 == s1)    \
    COMPARE(u, type, s0 != s0 || s1 != s1)    \
    COMPARE(nge, type, !(s0 >= s1))           \
    COMPARE(nlg, type, !(s0 < s1 || s0 > s1)) \
    COMPARE(ngt, type, !(s0 > s1))            \
    COMPARE(nle, type, !(s0 <= s1))           \
    COMPARE(neq, type, !(s0 == s1))           \
    COMPARE(nlt, type, !(s0 < s1))

#define COMPARE_INTEGERS(type)  \
    COMPARE(lt, type, s0 < s1)  \
    COMPARE(eq, type, s0 == s1) \
    COMPARE(le, type, s0 <= s1) \
    COMPARE(gt, type, s0 > s1)  \
    COMPARE(ne, type, s0 != s1) \
    COMPARE(ge, type, s0 >= s1)

COMPARE_FLOATS(f16)
COMPARE_FLOATS(f32)
COMPARE_FLOATS(f64)
COMPARE_INTEGERS(i16)
COMPARE_INTEGERS(u16)
COMPARE_INTEGERS(i32)
COMPARE_INTEGERS(u32)
COMPARE_INTEGERS(i64)
COMPARE_INTEGERS(u64)
COMPARE(class, f16, in.source[1][0][lane] >> class_of_half(in.source[0][0][lane]) & 1)
COMPARE(class, f32, in.source[1][0][lane] >> class_of(s0) & 1)
COMPARE(class, f64, in.source[1][0][lane] >> class_of(s0) & 1)

}  // namespace

void add_vopc_rows(RowTable& table) { add_rows_of_this_file(table); }

}  // namespace virtual_gpu
