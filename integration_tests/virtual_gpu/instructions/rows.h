// SPDX-License-Identifier: MIT
// The macros that turn one line of an instruction table into a row.
//
//   VOP(v_exp_f32, kTranscendental, d = exp2_flushing(s0))
//
// The statement is the effect on one lane. It sees, typed by AMD's operand formats: d (holding the old
// destination), s0, s1, s2; vcc (the lane's bit of VCC or of the SGPR in its place); flag (the lane's bit of
// the mask result); lane; and `in` for the modifiers that a row interprets itself. F16 and BF16 operands are
// floats, rounded when stored.
#pragma once

#include <utility>

#include "core/vector.h"

#pragma STDC FP_CONTRACT OFF

namespace virtual_gpu {

void execute_compare(Wave& wave, const Instruction& instruction);
void execute_with_carry(Wave& wave, const Instruction& instruction);

namespace {

// Specialised once per row; each table file registers its own.
template <Mnemonic>
struct LaneEffect {};

template <Mnemonic m>
void lane_loop(const Lanes& in, LaneResults& out) {
    using Types = Operands<m>;
    using D = Value<Types::d>;
    using S0 = Value<Types::s0>;
    using S1 = Value<Types::s1>;
    using S2 = Value<Types::s2>;
    uint32_t* __restrict low = out.value[0], * __restrict high = out.value[1], * __restrict flags = out.flag;
    for (int lane = 0; lane < kLanes; ++lane) {
        bool flag = false;
        typename D::Type d = D::load(in.old[0], in.old[1], lane);
        LaneEffect<m>::apply(d, S0::load(in.source[0][0], in.source[0][1], lane),
                             S1::load(in.source[1][0], in.source[1][1], lane),
                             S2::load(in.source[2][0], in.source[2][1], lane), in.mask >> lane & 1, flag,
                             lane, in);
        D::store(d, low, high, lane, in.clamp_overflow);
        if constexpr (LaneEffect<m>::kHasFlag) flags[lane] = flag ? ~0u : 0u;
    }
}

template <Mnemonic m>
void add_row(RowTable& table) {
    if constexpr (requires { LaneEffect<m>::kIssue; })
        table[static_cast<size_t>(m)] = {LaneEffect<m>::kExecute, lane_loop<m>, LaneEffect<m>::kIssue,
                                         LaneEffect<m>::kSaturates};
}

template <size_t... i>
void add_rows_of_this_file(RowTable& table, std::index_sequence<i...>) {
    (add_row<static_cast<Mnemonic>(i)>(table), ...);
}
inline void add_rows_of_this_file(RowTable& table) {
    add_rows_of_this_file(table, std::make_index_sequence<kMnemonics>());
}

}  // namespace
}  // namespace virtual_gpu

#define LANE_ROW(mnemonic, issue, execute, has_flag, saturates, ...)                                \
    template <>                                                                                     \
    struct LaneEffect<Mnemonic::mnemonic> {                                                         \
        using Types = Operands<Mnemonic::mnemonic>;                                                 \
        static constexpr Issue kIssue = Issue::issue;                                               \
        static constexpr Execute kExecute = execute;                                                \
        static constexpr bool kHasFlag = has_flag, kSaturates = saturates;                          \
        static inline __attribute__((always_inline)) void apply(                                    \
            [[maybe_unused]] Value<Types::d>::Type& d, [[maybe_unused]] Value<Types::s0>::Type s0,  \
            [[maybe_unused]] Value<Types::s1>::Type s1, [[maybe_unused]] Value<Types::s2>::Type s2, \
            [[maybe_unused]] bool vcc, [[maybe_unused]] bool& flag, [[maybe_unused]] int lane,      \
            [[maybe_unused]] const Lanes& in) {                                                     \
            __VA_ARGS__;                                                                            \
        }                                                                                           \
    };
#define VOP(mnemonic, issue, ...) LANE_ROW(mnemonic, issue, execute_vector, false, false, __VA_ARGS__)
#define VOP_SATURATING(mnemonic, issue, ...) \
    LANE_ROW(mnemonic, issue, execute_vector, false, true, __VA_ARGS__)
#define VOP_CARRY(mnemonic, issue, ...) LANE_ROW(mnemonic, issue, execute_with_carry, true, true, __VA_ARGS__)
#define VOP_COMPARE(mnemonic, issue, ...) LANE_ROW(mnemonic, issue, execute_compare, true, true, __VA_ARGS__)
