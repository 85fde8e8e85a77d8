// SPDX-License-Identifier: MIT
// The halves of dual-issue instructions. They have no modifiers.
#include "core/tables.h"
#include "instructions/rows.h"

namespace virtual_gpu {
namespace {

#define DUAL(mnemonic, ...) LANE_ROW(mnemonic, kVector, execute_dual, false, false, __VA_ARGS__)

DUAL(v_dual_fmac_f32, d = __builtin_fmaf(s0, s1, d))
DUAL(v_dual_fmaak_f32, d = __builtin_fmaf(s0, s1, as_float(in.literal)))
DUAL(v_dual_fmamk_f32, d = __builtin_fmaf(s0, as_float(in.literal), s1))
DUAL(v_dual_mul_f32, d = s0 * s1)
DUAL(v_dual_add_f32, d = s0 + s1)
DUAL(v_dual_sub_f32, d = s0 - s1)
DUAL(v_dual_subrev_f32, d = s1 - s0)
DUAL(v_dual_mul_dx9_zero_f32, d = s0 == 0 || s1 == 0 ? 0.0f : s0 * s1)
DUAL(v_dual_mov_b32, d = s0)
DUAL(v_dual_cndmask_b32, d = vcc ? s1 : s0)
DUAL(v_dual_max_num_f32, d = max_number(s0, s1))
DUAL(v_dual_min_num_f32, d = min_number(s0, s1))
DUAL(v_dual_dot2acc_f32_f16, d += half_to_float(s0 & 0xffff) * half_to_float(s1 & 0xffff);
     d += half_to_float(s0 >> 16) * half_to_float(s1 >> 16))
DUAL(v_dual_dot2acc_f32_bf16, d += bfloat_to_float(s0 & 0xffff) * bfloat_to_float(s1 & 0xffff);
     d += bfloat_to_float(s0 >> 16) * bfloat_to_float(s1 >> 16))
DUAL(v_dual_add_nc_u32, d = s0 + s1)
DUAL(v_dual_lshlrev_b32, d = s1 << (s0 & 31))
DUAL(v_dual_and_b32, d = s0 & s1)

}  // namespace

void add_vopd_rows(RowTable& table) { add_rows_of_this_file(table); }

}  // namespace virtual_gpu
