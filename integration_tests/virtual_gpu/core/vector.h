// SPDX-License-Identifier: MIT
// How vector ALU rows see registers: sources as 32-lane arrays, results as 32-lane arrays, one loop per row.
#pragma once

#include <bit>

#include "core/decode.h"
#include "core/numeric.h"

namespace virtual_gpu {

constexpr int kMaxDwords = 2;  // of one lane's operand

// Inputs of one vector instruction. Pointers go to VGPRs, or to buffers where an operand needed preparation.
struct Lanes {
    const uint32_t* source[3][kMaxDwords];
    const uint32_t* old[kMaxDwords];  // the destination before the instruction
    uint32_t mask;                    // VCC or the SGPR that stands for it
    uint32_t literal;
    bool clamp;
    bool clamp_overflow;                     // MODE.FP16_OVFL
    uint8_t neg, neg_hi, op_sel, op_sel_hi;  // for rows that interpret VOP3P modifiers themselves
};

struct LaneResults {
    alignas(64) uint32_t value[kMaxDwords][kLanes];
    alignas(64) uint32_t flag[kLanes];  // all ones or zero: carries and comparisons
};

struct None {};

// How an operand of a format is loaded from a lane and stored to one.
template <Format>
struct Value {  // 32-bit patterns, packed ones included
    using Type = uint32_t;
    static Type load(const uint32_t* low, const uint32_t*, int lane) { return low[lane]; }
    static void store(Type value, uint32_t* low, uint32_t*, int lane, bool) { low[lane] = value; }
};
template <>
struct Value<Format::Absent> {
    using Type = None;
    static Type load(const uint32_t*, const uint32_t*, int) { return {}; }
    static void store(Type, uint32_t*, uint32_t*, int, bool) {}
};
template <class T>
struct IntegerValue {
    using Type = T;
    static Type load(const uint32_t* low, const uint32_t*, int lane) { return static_cast<T>(low[lane]); }
    static void store(Type value, uint32_t* low, uint32_t*, int lane, bool) {
        low[lane] = static_cast<std::make_unsigned_t<T>>(value);
    }
};
template <>
struct Value<Format::I32> : IntegerValue<int32_t> {};
template <>
struct Value<Format::I16> : IntegerValue<int16_t> {};
template <>
struct Value<Format::U16> : IntegerValue<uint16_t> {};
template <>
struct Value<Format::B16> : IntegerValue<uint16_t> {};
template <>
struct Value<Format::PK2_FP8> : IntegerValue<uint16_t> {};
template <>
struct Value<Format::PK2_BF8> : IntegerValue<uint16_t> {};
template <>
struct Value<Format::PK2_U8> : IntegerValue<uint16_t> {};
template <>
struct Value<Format::FP8> : IntegerValue<uint8_t> {};
template <>
struct Value<Format::BF8> : IntegerValue<uint8_t> {};
template <>
struct Value<Format::I24> : IntegerValue<int32_t> {
    static Type load(const uint32_t* low, const uint32_t*, int lane) {
        return static_cast<int32_t>(low[lane] << 8) >> 8;
    }
};
template <>
struct Value<Format::U24> : IntegerValue<uint32_t> {
    static Type load(const uint32_t* low, const uint32_t*, int lane) { return low[lane] & 0xffffff; }
};
template <>
struct Value<Format::F32> {
    using Type = float;
    static Type load(const uint32_t* low, const uint32_t*, int lane) { return as_float(low[lane]); }
    static void store(Type value, uint32_t* low, uint32_t*, int lane, bool) { low[lane] = as_bits(value); }
};
template <>
struct Value<Format::F16> {
    using Type = float;
    static Type load(const uint32_t* low, const uint32_t*, int lane) { return half_to_float(low[lane]); }
    static void store(Type value, uint32_t* low, uint32_t*, int lane, bool clamp_overflow) {
        low[lane] = float_to_half(value, clamp_overflow);
    }
};
template <>
struct Value<Format::BF16> {
    using Type = float;
    static Type load(const uint32_t* low, const uint32_t*, int lane) { return bfloat_to_float(low[lane]); }
    static void store(Type value, uint32_t* low, uint32_t*, int lane, bool) {
        low[lane] = float_to_bfloat(value);
    }
};
template <class T>
struct WideValue {
    using Type = T;
    static Type load(const uint32_t* low, const uint32_t* high, int lane) {
        return std::bit_cast<T>(static_cast<uint64_t>(high[lane]) << 32 | low[lane]);
    }
    static void store(Type value, uint32_t* low, uint32_t* high, int lane, bool) {
        uint64_t bits = std::bit_cast<uint64_t>(value);
        low[lane] = static_cast<uint32_t>(bits);
        high[lane] = static_cast<uint32_t>(bits >> 32);
    }
};
template <>
struct Value<Format::F64> : WideValue<double> {};
template <>
struct Value<Format::I64> : WideValue<int64_t> {};
template <>
struct Value<Format::U64> : WideValue<uint64_t> {};
template <>
struct Value<Format::B64> : WideValue<uint64_t> {};
template <>
struct Value<Format::PK2_F32> : WideValue<uint64_t> {};

void execute_vector(Wave& wave, const Instruction& instruction);
void execute_dual(Wave& wave, const Instruction& instruction);

// Sets the lanes of a VGPR that are in `mask`.
inline void write_vgpr(Wave& wave, uint32_t index, const uint32_t* values, uint32_t mask) {
    uint32_t* out = wave.vgpr[index];
    if (mask == ~0u) {
        __builtin_memcpy(out, values, sizeof(uint32_t) * kLanes);
        return;
    }
    for (int lane = 0; lane < kLanes; ++lane) out[lane] = mask >> lane & 1 ? values[lane] : out[lane];
}
// A VGPR number that an operand of several dwords runs into; the register file ends at v255.
uint32_t checked_vgpr(uint32_t index);

uint32_t read_scalar32(const Wave& wave, const Source& source);
uint64_t read_scalar64(const Wave& wave, const Source& source);
void write_scalar32(Wave& wave, uint32_t code, uint32_t value);
void write_scalar64(Wave& wave, uint32_t code, uint64_t value);

// Host rounding for the duration of one instruction, when MODE asks for anything but nearest even.
class RoundingScope {
  public:
    RoundingScope(uint32_t mode, Format result) {
        uint32_t rounding = result == Format::F32 ? mode & 3 : mode >> 2 & 3;
        active_ = rounding != 0;
        if (active_) set(rounding);
    }
    ~RoundingScope() {
        if (active_) set(0);
    }
    RoundingScope(const RoundingScope&) = delete;
    RoundingScope& operator=(const RoundingScope&) = delete;

  private:
    // MODE: 0 nearest, 1 up, 2 down, 3 zero. MXCSR: 0 nearest, 1 down, 2 up, 3 zero.
    static void set(uint32_t rounding) {
        static constexpr uint32_t kHost[] = {0, 2, 1, 3};
        __builtin_ia32_ldmxcsr((__builtin_ia32_stmxcsr() & ~0x6000u) | kHost[rounding] << 13);
    }
    bool active_;
};

}  // namespace virtual_gpu
