// SPDX-License-Identifier: MIT
// Moves between lanes, between vector and scalar registers, and through register numbers in M0.
#include <cstring>

#include "core/faults.h"
#include "core/tables.h"
#include "core/vector.h"

namespace virtual_gpu {
namespace {

using LaneArray = uint32_t[kLanes];

const uint32_t* vgpr_source(const Wave& wave, const Source& source) {
    if (source.kind != Source::kVgpr) throw NotModelled("the source must be a VGPR");
    return wave.vgpr[source.index];
}

void read_first_lane(Wave& wave, const Instruction& instruction) {
    uint32_t exec = wave.scalar[kExecLo];
    const Source& source = instruction.source[0];
    uint32_t value = source.kind == Source::kVgpr ? wave.vgpr[source.index][exec ? __builtin_ctz(exec) : 0]
                                                  : read_scalar32(wave, source);
    write_scalar32(wave, instruction.destination, value);
}
void read_lane(Wave& wave, const Instruction& instruction) {
    uint32_t lane = read_scalar32(wave, instruction.source[1]) & 31;
    write_scalar32(wave, instruction.destination, vgpr_source(wave, instruction.source[0])[lane]);
}
void write_lane(Wave& wave, const Instruction& instruction) {
    uint32_t lane = read_scalar32(wave, instruction.source[1]) & 31;
    wave.vgpr[instruction.destination][lane] = read_scalar32(wave, instruction.source[0]);
}

// Lane `i` takes lane selector(i) of its own row of 16, or of the other row.
// op_sel[0] also fetches inactive lanes; without it they give 0 where op_sel[1]
// (bound control) is set, and leave the destination alone where it is not.
template <class Selector>
void permute_rows(Wave& wave, const Instruction& instruction, bool other_row, Selector selector) {
    LaneArray from, out;
    std::memcpy(from, vgpr_source(wave, instruction.source[0]), sizeof from);
    uint32_t exec = wave.scalar[kExecLo], mask = exec;
    bool fetch_inactive = instruction.op_sel & 1, bound_control = instruction.op_sel & 2;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
        uint32_t row = (lane & 16) ^ (other_row ? 16 : 0), source = row + selector(lane);
        bool readable = fetch_inactive || (exec >> source & 1);
        out[lane] = readable ? from[source] : 0;
        if (!readable && !bound_control) mask &= ~(1u << lane);
    }
    write_vgpr(wave, instruction.destination, out, mask);
}
template <bool other_row>
void permute_rows_by_scalars(Wave& wave, const Instruction& instruction) {
    uint64_t selectors = static_cast<uint64_t>(read_scalar32(wave, instruction.source[2])) << 32 |
                         read_scalar32(wave, instruction.source[1]);
    permute_rows(wave, instruction, other_row,
                 [=](uint32_t lane) { return selectors >> (4 * (lane & 15)) & 15; });
}
template <bool other_row>
void permute_rows_by_vgpr(Wave& wave, const Instruction& instruction) {
    LaneArray selectors;
    std::memcpy(selectors, vgpr_source(wave, instruction.source[1]), sizeof selectors);
    permute_rows(wave, instruction, other_row, [&](uint32_t lane) { return selectors[lane] & 15; });
}

void swap(Wave& wave, const Instruction& instruction) {
    LaneArray first, second;
    std::memcpy(first, wave.vgpr[instruction.destination], sizeof first);
    std::memcpy(second, vgpr_source(wave, instruction.source[0]), sizeof second);
    write_vgpr(wave, instruction.destination, second, wave.scalar[kExecLo]);
    write_vgpr(wave, instruction.source[0].index, first, wave.scalar[kExecLo]);
}
void swap_halves(Wave& wave, const Instruction& instruction) {
    const Source& source = instruction.source[0];
    vgpr_source(wave, source);
    uint32_t to = instruction.destination_shift, from = source.shift;
    for (uint32_t mask = wave.scalar[kExecLo]; mask; mask &= mask - 1) {
        int lane = __builtin_ctz(mask);
        uint32_t &d = wave.vgpr[instruction.destination][lane], &s = wave.vgpr[source.index][lane];
        uint32_t a = d >> to & 0xffff, b = s >> from & 0xffff;
        d = (d & ~(0xffffu << to)) | b << to;
        s = (s & ~(0xffffu << from)) | a << from;
    }
}

void move_relative(Wave& wave, const Instruction& instruction, uint32_t source_step,
                   uint32_t destination_step) {
    const Source& source = instruction.source[0];
    LaneArray values;
    if (source.kind == Source::kVgpr) {
        std::memcpy(values, wave.vgpr[checked_vgpr(source.index + source_step)], sizeof values);
    } else {
        uint32_t value = read_scalar32(wave, source);
        for (uint32_t& lane : values) lane = value;
    }
    write_vgpr(wave, checked_vgpr(instruction.destination + destination_step), values, wave.scalar[kExecLo]);
}
void move_from_relative(Wave& wave, const Instruction& instruction) {
    vgpr_source(wave, instruction.source[0]);
    move_relative(wave, instruction, wave.scalar[kM0], 0);
}
void move_to_relative(Wave& wave, const Instruction& instruction) {
    move_relative(wave, instruction, 0, wave.scalar[kM0]);
}
void move_both_relative(Wave& wave, const Instruction& instruction) {
    vgpr_source(wave, instruction.source[0]);
    move_relative(wave, instruction, wave.scalar[kM0], wave.scalar[kM0]);
}
// Two steps in one M0: bits [9:0] for the source, [25:16] for the destination.
void move_two_steps(Wave& wave, const Instruction& instruction) {
    vgpr_source(wave, instruction.source[0]);
    move_relative(wave, instruction, wave.scalar[kM0] & 1023, wave.scalar[kM0] >> 16 & 1023);
}

uint32_t checked_scalar(uint32_t code) {
    if (code >= kNull) throw KernelFault("a relative scalar move leaves the scalar registers");
    return code;
}
template <int dwords>
void scalar_from_relative(Wave& wave, const Instruction& instruction) {
    uint32_t from = instruction.source[0].index + wave.scalar[kM0];
    uint32_t low = wave.scalar[checked_scalar(from)], high = wave.scalar[checked_scalar(from + dwords - 1)];
    write_scalar32(wave, instruction.destination, low);
    if (dwords == 2) write_scalar32(wave, instruction.destination + 1, high);
}
template <int dwords>
void scalar_to_relative(Wave& wave, const Instruction& instruction) {
    uint64_t value = read_scalar64(wave, instruction.source[0]);
    uint32_t to = checked_scalar(instruction.destination + wave.scalar[kM0]);
    wave.scalar[to] = static_cast<uint32_t>(value);
    if (dwords == 2) wave.scalar[checked_scalar(to + 1)] = static_cast<uint32_t>(value >> 32);
}

// Transcendentals on scalar operands.
template <float (*effect)(float)>
void scalar_float(Wave& wave, const Instruction& instruction) {
    float result = effect(as_float(read_scalar32(wave, instruction.source[0])));
    write_scalar32(wave, instruction.destination, as_bits(result));
}
template <float (*effect)(float)>
void scalar_half(Wave& wave, const Instruction& instruction) {
    float result = effect(half_to_float(read_scalar32(wave, instruction.source[0]) & 0xffff));
    write_scalar32(wave, instruction.destination, float_to_half(result, wave.mode >> 23 & 1));
}
template <Execute execute>
void without_modifiers(Wave& wave, const Instruction& instruction) {
    if (instruction.neg | instruction.abs | instruction.omod | instruction.clamp | instruction.op_sel)
        throw NotModelled("modifiers of scalar transcendentals are not modelled");
    execute(wave, instruction);
}
float reciprocal_half(float x) { return 1.0f / x; }
float sqrt_half(float x) { return __builtin_sqrtf(x); }
float reciprocal_sqrt_half(float x) {
    return static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(x)));
}
float log2_half(float x) { return static_cast<float>(std::log2(static_cast<double>(x))); }

void nothing(Wave&, const Instruction&) {}

}  // namespace

void add_lane_move_rows(RowTable& table) {
    auto add = [&table](Mnemonic mnemonic, Execute execute, Issue issue = Issue::kVector) {
        table[static_cast<size_t>(mnemonic)] = {execute, nullptr, issue, false};
    };
    using enum Mnemonic;
    add(v_readfirstlane_b32, read_first_lane);
    add(v_readlane_b32, read_lane);
    add(v_writelane_b32, write_lane);
    add(v_permlane16_b32, permute_rows_by_scalars<false>);
    add(v_permlanex16_b32, permute_rows_by_scalars<true>);
    add(v_permlane16_var_b32, permute_rows_by_vgpr<false>);
    add(v_permlanex16_var_b32, permute_rows_by_vgpr<true>);
    add(v_permlane64_b32, nothing);  // does nothing in wave32
    add(v_swap_b32, swap);
    add(v_swap_b16, swap_halves);
    add(v_movrels_b32, move_from_relative);
    add(v_movreld_b32, move_to_relative);
    add(v_movrelsd_b32, move_both_relative);
    add(v_movrelsd_2_b32, move_two_steps);
    add(s_movrels_b32, scalar_from_relative<1>, Issue::kScalar);
    add(s_movrels_b64, scalar_from_relative<2>, Issue::kScalar);
    add(s_movreld_b32, scalar_to_relative<1>, Issue::kScalar);
    add(s_movreld_b64, scalar_to_relative<2>, Issue::kScalar);
    add(v_s_exp_f32, without_modifiers<scalar_float<exp2_flushing>>, Issue::kTranscendental);
    add(v_s_log_f32, without_modifiers<scalar_float<log2_flushing>>, Issue::kTranscendental);
    add(v_s_rcp_f32, without_modifiers<scalar_float<reciprocal_flushing>>, Issue::kTranscendental);
    add(v_s_rsq_f32, without_modifiers<scalar_float<reciprocal_sqrt_flushing>>, Issue::kTranscendental);
    add(v_s_sqrt_f32, without_modifiers<scalar_float<sqrt_flushing>>, Issue::kTranscendental);
    add(v_s_exp_f16, without_modifiers<scalar_half<exp2_flushing>>, Issue::kTranscendental);
    add(v_s_log_f16, without_modifiers<scalar_half<log2_half>>, Issue::kTranscendental);
    add(v_s_rcp_f16, without_modifiers<scalar_half<reciprocal_half>>, Issue::kTranscendental);
    add(v_s_rsq_f16, without_modifiers<scalar_half<reciprocal_sqrt_half>>, Issue::kTranscendental);
    add(v_s_sqrt_f16, without_modifiers<scalar_half<sqrt_half>>, Issue::kTranscendental);
}

}  // namespace virtual_gpu
