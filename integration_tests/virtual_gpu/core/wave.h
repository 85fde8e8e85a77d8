// SPDX-License-Identifier: MIT
// The state of one wave32 and of the work-group it belongs to.
#pragma once

#include <cstdint>
#include <vector>

#include "core/memory.h"

namespace virtual_gpu {

constexpr int kLanes = 32;
constexpr int kVgprs = 256;

// Scalar registers are kept in one array, indexed by the 7-bit scalar operand code of the ISA.
constexpr int kVccLo = 106;
constexpr int kTtmp0 = 108;
constexpr int kNull = 124;
constexpr int kM0 = 125;
constexpr int kExecLo = 126;
constexpr int kScalars = 128;

// High 32 bits of flat addresses that mean LDS and scratch. Any values no host allocation can have.
constexpr uint64_t kSharedAperture = 0xfffd000000000000ull;
constexpr uint64_t kPrivateAperture = 0xfffe000000000000ull;

class Observer;

// Everything the waves of one work-group share.
struct Workgroup {
    uint32_t id[3] = {};
    uint32_t waves = 0;               // that it started with
    std::vector<uint8_t> lds;         // static + dynamic bytes of this launch; accesses beyond its size fault
    uint32_t waves_in_barrier = 0;    // waves that have not ended
    uint32_t signalled = 0;           // how many of them have signalled the current barrier
    uint32_t barrier_generation = 0;  // completed barriers
    uint64_t instructions = 0;        // executed, all waves
};

struct Wave {
    alignas(64) uint32_t vgpr[kVgprs][kLanes];
    uint32_t scalar[kScalars];  // s0..s105, VCC, TTMP0..15, NULL (reads 0), M0, EXEC
    bool scc = false;
    uint32_t mode = 0;            // MODE: FP_ROUND[3:0], FP_DENORM[7:4], ..., FP16_OVFL bit 23
    uint64_t pc = 0;              // guest address of the next instruction
    uint64_t executed = 0;        // instructions so far: what this device has for SHADER_CYCLES
    uint32_t index = 0;           // wave in its work-group
    uint32_t barrier_target = 0;  // generation that this wave's last s_barrier_signal belongs to
    uint32_t scratch_bytes_per_lane = 0;
    std::vector<uint8_t> scratch;  // kLanes * scratch_bytes_per_lane, one lane after another
    AllocationHint hint;
    Workgroup* workgroup = nullptr;
    Observer* observer = nullptr;  // sees instructions and accesses, see observer.h
};

}  // namespace virtual_gpu
