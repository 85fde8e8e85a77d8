// SPDX-License-Identifier: MIT
// What each file of rows registers, and lookup tables that rows share.
#pragma once

#include <array>

#include "core/decode.h"
#include "core/numeric.h"

namespace virtual_gpu {

void add_vop1_rows(RowTable& table);
void add_vop2_rows(RowTable& table);
void add_vop3_rows(RowTable& table);
void add_vop3p_rows(RowTable& table);
void add_vopc_rows(RowTable& table);
void add_vopd_rows(RowTable& table);
void add_lane_move_rows(RowTable& table);
void add_matrix_rows(RowTable& table);
void add_scalar_rows(RowTable& table);
void add_scalar_memory_rows(RowTable& table);
void add_program_rows(RowTable& table);
void add_lds_rows(RowTable& table);
void add_global_rows(RowTable& table);

constexpr std::array<float, 256> fp8_table(const Fp8Format& format) {
    std::array<float, 256> table{};
    for (uint32_t bits = 0; bits < 256; ++bits) table[bits] = fp8_to_float(bits, format);
    return table;
}
inline constexpr std::array<float, 256> kE4m3ToFloat = fp8_table(kE4m3);
inline constexpr std::array<float, 256> kE5m2ToFloat = fp8_table(kE5m2);

}  // namespace virtual_gpu
