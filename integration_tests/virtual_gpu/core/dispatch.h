// SPDX-License-Identifier: MIT
// One kernel launch: arguments, work-groups, waves, barriers. Knows code objects and execution; knows no HIP.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/code_object.h"
#include "core/execute.h"

namespace virtual_gpu {

constexpr uint32_t kMaxWorkgroupSize = 1024;
constexpr uint32_t kMaxLdsBytes = 65536;

// Uninitialised registers, LDS and scratch hold this. Both halves are NaN as f32, f16 and bf16, the high byte
// is NaN as e4m3, and twice in a row it is no address: what relies on zeros shows.
constexpr uint32_t kUninitialised = 0xfffbfffbu;

struct LaunchGeometry {
    uint32_t grid[3] = {1, 1, 1};   // work-items, as in an AQL packet: the last work-group may be partial
    uint32_t block[3] = {1, 1, 1};  // work-items of a work-group
    uint32_t dynamic_lds_bytes = 0;
};

struct LaunchResult {
    InstructionCounts instructions;
    // In some work-group, not all waves signalled the same number of barriers.
    // Hardware lets waves that ended early drop out of later barriers, so this
    // is no fault; it is a bug in a kernel that means all waves to meet.
    bool uneven_barriers = false;
    double seconds = 0;
};

// The argument segment of a launch: `explicit_arguments` (as laid out by
// the compiler), then the hidden arguments.
std::vector<uint8_t> make_kernarg_segment(const Kernel& kernel, const LaunchGeometry& geometry,
                                          const std::vector<uint8_t>& explicit_arguments);

// The bytes of the segment that the caller must provide: everything before the first hidden argument.
uint32_t explicit_argument_bytes(const Kernel& kernel);

// How launches interleave their waves from now on. Seed 0: waves take long turns in order. Any other seed
// draws the order of work-groups, the order of waves in each round and the length of every turn.
void set_schedule_seed(uint64_t seed);

// Runs the launch to its end. Throws KernelFault or NotModelled, with kernel, work-group and wave in the
// text.
LaunchResult run_kernel(const CodeObject& object, const Kernel& kernel, const LaunchGeometry& geometry,
                        const std::vector<uint8_t>& explicit_arguments);

}  // namespace virtual_gpu
