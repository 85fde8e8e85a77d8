// SPDX-License-Identifier: MIT
// One-operand vector instructions.
#include "core/tables.h"
#include "instructions/rows.h"

namespace virtual_gpu {
namespace {

int count_leading_zeros(uint32_t bits) { return bits ? __builtin_clz(bits) : -1; }
int count_trailing_zeros(uint32_t bits) { return bits ? __builtin_ctz(bits) : -1; }
// Position of the first bit that differs from the sign bit, -1 when none does.
int count_leading_signs(uint32_t bits) {
    uint32_t differs = bits ^ static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31);
    return differs ? __builtin_clz(differs) : -1;
}
uint32_t reverse_bits(uint32_t bits) { return __builtin_bitreverse32(bits); }
uint32_t saturate_to_u8(uint32_t bits) {
    int value = static_cast<int16_t>(bits);
    return value < 0 ? 0 : value > 255 ? 255 : static_cast<uint32_t>(value);
}
uint64_t pair_of(float low, float high) { return static_cast<uint64_t>(as_bits(high)) << 32 | as_bits(low); }

VOP(v_mov_b32, kVector, d = s0)
VOP(v_mov_b16, kVector, d = s0)
VOP(v_not_b32, kVector, d = ~s0)
VOP(v_not_b16, kVector, d = static_cast<uint16_t>(~s0))
VOP(v_bfrev_b32, kVector, d = reverse_bits(s0))
VOP(v_clz_i32_u32, kVector, d = count_leading_zeros(s0))
VOP(v_ctz_i32_b32, kVector, d = count_trailing_zeros(s0))
VOP(v_cls_i32, kVector, d = count_leading_signs(s0))
VOP(v_sat_pk_u8_i16, kVector, d = static_cast<uint16_t>(saturate_to_u8(s0) | saturate_to_u8(s0 >> 16) << 8))

VOP(v_cvt_f32_i32, kVector, d = static_cast<float>(s0))
VOP(v_cvt_f32_u32, kVector, d = static_cast<float>(s0))
VOP(v_cvt_i32_f32, kVector, d = to_integer<int32_t>(s0))
VOP(v_cvt_u32_f32, kVector, d = to_integer<uint32_t>(s0))
VOP(v_cvt_nearest_i32_f32, kVector, d = to_integer<int32_t>(__builtin_floorf(s0 + 0.5f)))
VOP(v_cvt_floor_i32_f32, kVector, d = to_integer<int32_t>(__builtin_floorf(s0)))
VOP(v_cvt_f32_ubyte0, kVector, d = static_cast<float>(s0 & 0xff))
VOP(v_cvt_f32_ubyte1, kVector, d = static_cast<float>(s0 >> 8 & 0xff))
VOP(v_cvt_f32_ubyte2, kVector, d = static_cast<float>(s0 >> 16 & 0xff))
VOP(v_cvt_f32_ubyte3, kVector, d = static_cast<float>(s0 >> 24))
VOP(v_cvt_off_f32_i4, kVector,
    d = static_cast<float>(static_cast<int32_t>(static_cast<uint32_t>(s0) << 28) >> 28) / 16.0f)
VOP(v_cvt_i32_i16, kVector, d = s0)
VOP(v_cvt_u32_u16, kVector, d = s0)

VOP(v_cvt_f16_f32, kVector, d = s0)
VOP(v_cvt_f32_f16, kVector, d = s0)
VOP(v_cvt_f16_u16, kVector, d = static_cast<float>(s0))
VOP(v_cvt_f16_i16, kVector, d = static_cast<float>(s0))
VOP(v_cvt_u16_f16, kVector, d = to_integer<uint16_t>(s0))
VOP(v_cvt_i16_f16, kVector, d = to_integer<int16_t>(s0))
VOP(v_cvt_norm_i16_f16, kVector, d = static_cast<int16_t>(to_signed_norm(s0)))
VOP(v_cvt_norm_u16_f16, kVector, d = static_cast<uint16_t>(to_unsigned_norm(s0)))

VOP(v_cvt_f64_i32, kVector, d = s0)
VOP(v_cvt_f64_u32, kVector, d = s0)
VOP(v_cvt_f64_f32, kVector, d = s0)
VOP(v_cvt_f32_f64, kVector, d = static_cast<float>(s0))
VOP(v_cvt_i32_f64, kVector, d = to_integer<int32_t>(s0))
VOP(v_cvt_u32_f64, kVector, d = to_integer<uint32_t>(s0))

VOP(v_cvt_f32_fp8, kVector, d = kE4m3ToFloat[s0])
VOP(v_cvt_f32_bf8, kVector, d = kE5m2ToFloat[s0])
VOP(v_cvt_pk_f32_fp8, kVector, d = pair_of(kE4m3ToFloat[s0 & 0xff], kE4m3ToFloat[s0 >> 8]))
VOP(v_cvt_pk_f32_bf8, kVector, d = pair_of(kE5m2ToFloat[s0 & 0xff], kE5m2ToFloat[s0 >> 8]))

VOP(v_trunc_f32, kVector, d = __builtin_truncf(s0))
VOP(v_ceil_f32, kVector, d = __builtin_ceilf(s0))
VOP(v_rndne_f32, kVector, d = __builtin_roundevenf(s0))
VOP(v_floor_f32, kVector, d = __builtin_floorf(s0))
VOP(v_fract_f32, kVector, d = minimum(s0 - __builtin_floorf(s0), 0x1.fffffep-1f))
VOP(v_trunc_f64, kVector, d = __builtin_trunc(s0))
VOP(v_ceil_f64, kVector, d = __builtin_ceil(s0))
VOP(v_rndne_f64, kVector, d = __builtin_roundeven(s0))
VOP(v_floor_f64, kVector, d = __builtin_floor(s0))
VOP(v_fract_f64, kVector, d = minimum(s0 - __builtin_floor(s0), 0x1.fffffffffffffp-1))
VOP(v_trunc_f16, kVector, d = __builtin_truncf(s0))
VOP(v_ceil_f16, kVector, d = __builtin_ceilf(s0))
VOP(v_rndne_f16, kVector, d = __builtin_roundevenf(s0))
VOP(v_floor_f16, kVector, d = __builtin_floorf(s0))
VOP(v_fract_f16, kVector, d = minimum(s0 - __builtin_floorf(s0), 0x1.ffcp-1f))

VOP(v_exp_f32, kTranscendental, d = exp2_flushing(s0))
VOP(v_log_f32, kTranscendental, d = log2_flushing(s0))
VOP(v_rcp_f32, kTranscendental, d = reciprocal_flushing(s0))
VOP(v_rcp_iflag_f32, kTranscendental, d = reciprocal_flushing(s0))
VOP(v_rsq_f32, kTranscendental, d = reciprocal_sqrt_flushing(s0))
VOP(v_sqrt_f32, kTranscendental, d = sqrt_flushing(s0))
VOP(v_sin_f32, kTranscendental, d = sin_turns(s0))
VOP(v_cos_f32, kTranscendental, d = cos_turns(s0))
VOP(v_rcp_f64, kTranscendental, d = 1.0 / s0)
VOP(v_rsq_f64, kTranscendental, d = 1.0 / __builtin_sqrt(s0))
VOP(v_sqrt_f64, kTranscendental, d = __builtin_sqrt(s0))
VOP(v_rcp_f16, kTranscendental, d = 1.0f / s0)
VOP(v_rsq_f16, kTranscendental, d = static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(s0))))
VOP(v_sqrt_f16, kTranscendental, d = __builtin_sqrtf(s0))
VOP(v_log_f16, kTranscendental, d = static_cast<float>(std::log2(static_cast<double>(s0))))
VOP(v_exp_f16, kTranscendental, d = exp2_flushing(s0))
VOP(v_sin_f16, kTranscendental, d = sin_turns(s0))
VOP(v_cos_f16, kTranscendental, d = cos_turns(s0))

VOP(v_frexp_exp_i32_f32, kVector, d = exponent_of(s0))
VOP(v_frexp_mant_f32, kVector, d = mantissa_of(s0))
VOP(v_frexp_exp_i32_f64, kVector, d = exponent_of(s0))
VOP(v_frexp_mant_f64, kVector, d = mantissa_of(s0))
VOP(v_frexp_exp_i16_f16, kVector, d = static_cast<int16_t>(exponent_of(s0)))
VOP(v_frexp_mant_f16, kVector, d = mantissa_of(s0))

}  // namespace

void add_vop1_rows(RowTable& table) { add_rows_of_this_file(table); }

}  // namespace virtual_gpu
