// SPDX-License-Identifier: MIT
// Two-operand vector instructions. `rev` in a mnemonic swaps the operands.
#include "core/tables.h"
#include "instructions/rows.h"

namespace virtual_gpu {
namespace {

uint32_t add_clamped(uint32_t a, uint32_t b, bool clamp) { return clamp && a + b < a ? ~0u : a + b; }
uint32_t subtract_clamped(uint32_t a, uint32_t b, bool clamp) { return clamp && a < b ? 0 : a - b; }
float fma_pair_half(uint32_t a, uint32_t b, uint32_t c) {
    return fma_half(half_to_float(a & 0xffff), half_to_float(b & 0xffff), half_to_float(c & 0xffff));
}

VOP(v_cndmask_b32, kVector, d = vcc ? s1 : s0)
VOP(v_add_f64, kVector, d = s0 + s1)
VOP(v_mul_f64, kVector, d = s0 * s1)
VOP(v_min_num_f64, kVector, d = min_number(s0, s1))
VOP(v_max_num_f64, kVector, d = max_number(s0, s1))
VOP(v_add_f32, kVector, d = s0 + s1)
VOP(v_sub_f32, kVector, d = s0 - s1)
VOP(v_subrev_f32, kVector, d = s1 - s0)
VOP(v_mul_f32, kVector, d = s0 * s1)
VOP(v_mul_dx9_zero_f32, kVector, d = s0 == 0 || s1 == 0 ? 0.0f : s0 * s1)
VOP(v_min_num_f32, kVector, d = min_number(s0, s1))
VOP(v_max_num_f32, kVector, d = max_number(s0, s1))
VOP(v_fmac_f32, kVector, d = __builtin_fmaf(s0, s1, d))
VOP(v_add_f16, kVector, d = s0 + s1)
VOP(v_sub_f16, kVector, d = s0 - s1)
VOP(v_subrev_f16, kVector, d = s1 - s0)
VOP(v_mul_f16, kVector, d = s0 * s1)
VOP(v_min_num_f16, kVector, d = min_number(s0, s1))
VOP(v_max_num_f16, kVector, d = max_number(s0, s1))
VOP(v_fmac_f16, kVector, d = fma_half(s0, s1, d))
VOP(v_ldexp_f16, kVector, d = std::ldexp(s0, static_cast<int16_t>(in.source[1][0][lane])))
VOP(v_pk_fmac_f16, kVector,
    d = float_to_half(fma_pair_half(s0, s1, d), in.clamp_overflow) |
        float_to_half(fma_pair_half(s0 >> 16, s1 >> 16, d >> 16), in.clamp_overflow) << 16)
VOP(v_cvt_pk_rtz_f16_f32, kVector, d = pack_half_toward_zero(s0, s1))
VOP(v_mul_i32_i24, kVector, d = static_cast<int32_t>(low_24_signed(s0) * low_24_signed(s1)))
VOP(v_mul_hi_i32_i24, kVector, d = static_cast<int32_t>(low_24_signed(s0) * low_24_signed(s1) >> 32))
VOP(v_mul_u32_u24, kVector, d = static_cast<uint32_t>(low_24(s0) * low_24(s1)))
VOP(v_mul_hi_u32_u24, kVector, d = static_cast<uint32_t>(low_24(s0) * low_24(s1) >> 32))
VOP(v_min_i32, kVector, d = s0 < s1 ? s0 : s1)
VOP(v_max_i32, kVector, d = s0 >= s1 ? s0 : s1)
VOP(v_min_u32, kVector, d = s0 < s1 ? s0 : s1)
VOP(v_max_u32, kVector, d = s0 >= s1 ? s0 : s1)
VOP(v_lshlrev_b32, kVector, d = s1 << (s0 & 31))
VOP(v_lshrrev_b32, kVector, d = s1 >> (s0 & 31))
VOP(v_ashrrev_i32, kVector, d = s1 >> (s0 & 31))
VOP(v_lshlrev_b64, kVector, d = s1 << (s0 & 63))
VOP(v_and_b32, kVector, d = s0 & s1)
VOP(v_or_b32, kVector, d = s0 | s1)
VOP(v_xor_b32, kVector, d = s0 ^ s1)
VOP(v_xnor_b32, kVector, d = ~(s0 ^ s1))
VOP_SATURATING(v_add_nc_u32, kVector, d = add_clamped(s0, s1, in.clamp))
VOP_SATURATING(v_sub_nc_u32, kVector, d = subtract_clamped(s0, s1, in.clamp))
VOP_SATURATING(v_subrev_nc_u32, kVector, d = subtract_clamped(s1, s0, in.clamp))

// Carry in from VCC or an SGPR, carry out to VCC or an SGPR.
VOP_CARRY(v_add_co_ci_u32, kVector, uint64_t sum = static_cast<uint64_t>(s0) + s1 + vcc; flag = sum >> 32;
          d = in.clamp && flag ? ~0u : static_cast<uint32_t>(sum))
VOP_CARRY(v_sub_co_ci_u32, kVector, flag = static_cast<uint64_t>(s1) + vcc > s0;
          d = in.clamp && flag ? 0 : s0 - s1 - vcc)
VOP_CARRY(v_subrev_co_ci_u32, kVector, flag = static_cast<uint64_t>(s0) + vcc > s1;
          d = in.clamp && flag ? 0 : s1 - s0 - vcc)

// The literal is the multiplier (FMAMK) or the addend (FMAAK).
VOP(v_fmamk_f32, kVector, d = __builtin_fmaf(s0, as_float(in.literal), s1))
VOP(v_fmaak_f32, kVector, d = __builtin_fmaf(s0, s1, as_float(in.literal)))
VOP(v_fmamk_f16, kVector, d = fma_half(s0, half_to_float(in.literal & 0xffff), s1))
VOP(v_fmaak_f16, kVector, d = fma_half(s0, s1, half_to_float(in.literal & 0xffff)))

}  // namespace

void add_vop2_rows(RowTable& table) { add_rows_of_this_file(table); }

}  // namespace virtual_gpu
