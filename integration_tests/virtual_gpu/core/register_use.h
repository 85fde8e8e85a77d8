// SPDX-License-Identifier: MIT
// Which registers an instruction reads and writes, which wait counters it moves, and what kind it is: for the
// tools that follow data through registers. Proved against execution in oracle/test_register_use.py.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>

#include "core/decode.h"

namespace virtual_gpu {

enum class Kind : uint8_t {
    kMatrix,
    kTranscendental,
    kVector,  // every other vector ALU instruction, lane moves included
    kDual,    // VOPD
    kLdsLoad,
    kLdsStore,
    kLdsAtomic,
    kLdsMove,  // permutes and swizzles: data goes through the LDS crossbar, no LDS byte is touched
    kVmemLoad,
    kVmemStore,
    kVmemAtomic,
    kScalarMemory,
    kScalar,  // scalar ALU and branches
    kWait,    // s_wait_* on counters
    kBarrier,
    kOther,
};

// The counters that s_wait_* instructions wait for.
enum class Counter : uint8_t { kLoad, kStore, kDs, kKm, kSample, kBvh, kExp };
constexpr int kCounters = 7;
constexpr uint8_t counter_bit(Counter counter) {
    return static_cast<uint8_t>(1u << static_cast<int>(counter));
}

// kAddress: a wrong value would reach other memory or other registers.
enum class Role : uint8_t { kData, kAddress };

struct VgprRange {
    uint16_t first;
    uint8_t dwords;
    Role role;
};

// A few ranges; no instruction names more than six.
struct VgprRanges {
    std::array<VgprRange, 6> range;
    uint8_t count = 0;
    void add(uint32_t first, uint32_t dwords, Role role = Role::kData);
    const VgprRange* begin() const { return range.data(); }
    const VgprRange* end() const { return range.data() + count; }
};

// Scalar registers, indexed like Wave::scalar, and SCC after them. MODE is left out.
constexpr int kSccBit = kScalars;
using ScalarSet = std::bitset<kScalars + 1>;

struct RegisterUse {
    Kind kind = Kind::kOther;
    uint8_t counters = 0;  // counter_bit()s that the instruction increments until it is done
    // For Kind::kWait: how many may still be outstanding; kNoWait where it does not wait.
    static constexpr uint8_t kNoWait = 255;
    std::array<uint8_t, kCounters> wait{kNoWait, kNoWait, kNoWait, kNoWait, kNoWait, kNoWait, kNoWait};

    // Reads include what a partial write keeps (accumulators, 16-bit halves, D16 loads) but not what lanes
    // that are off keep: a vector instruction writes its destination in active lanes only. Registers picked
    // by M0 (v_movrel*, s_movrel*) are listed as every register that they could be.
    VgprRanges vgpr_reads, vgpr_writes;
    ScalarSet scalar_reads, scalar_writes;
    ScalarSet scalar_addresses;  // those of scalar_reads with Role::kAddress
};

RegisterUse register_use(const Instruction& instruction);

}  // namespace virtual_gpu
