// SPDX-License-Identifier: MIT
// What the waves of a launch executed, kept for the timing model: an observer of the executor.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/observer.h"
#include "core/register_use.h"

namespace virtual_gpu {

// One executed instruction of a wave. `data_cycles` is what it asks of the data path it uses: for LDS the
// passes over the banks, conflicts included; for vector memory the 64-byte sectors it touches.
struct TraceStep {
    uint32_t instruction;  // dword position in the program
    uint32_t data_cycles;
};

struct TracedInstruction {
    Mnemonic mnemonic;
    RegisterUse use;
    int32_t immediate = 0;  // what s_wait_alu waits for
    uint64_t executed = 0;
};

constexpr uint32_t kSectorBytes = 64;  // what one cycle of a CU's vector memory path moves

struct LaunchTrace {
    std::string kernel;
    uint32_t workgroups = 0, waves_per_workgroup = 0, lds_bytes = 0, vgprs = 0, spills = 0;
    bool workgroup_processor_mode = false;  // a work-group spreads over both CUs of a WGP
    std::map<uint32_t, TracedInstruction> instructions;

    // Waves of the first work-groups, one list of steps a wave.
    std::vector<std::vector<std::vector<TraceStep>>> groups;

    // Of the whole launch.
    uint64_t lds_cycles = 0, lds_conflict_cycles = 0, lds_bytes_moved = 0;
    uint64_t lane_bytes_read = 0, lane_bytes_written = 0;            // what lanes asked of global memory
    uint64_t sector_requests_read = 0, sector_requests_written = 0;  // sectors, counted per instruction
    std::unordered_set<uint64_t> sectors_read, sectors_written;      // distinct: what DRAM moves at least
};

// Records every launch while it is installed; keeps the steps of the first `groups` work-groups of each.
class TraceRecorder : public Observer {
  public:
    explicit TraceRecorder(uint32_t groups) : groups_(groups) {}
    void launch_begins(const ObservedLaunch& launch) override;
    void workgroup_begins(Workgroup& group, Wave* const* waves) override;
    void after(Wave& wave, const Instruction& instruction, uint64_t at) override;
    void access(Wave& wave, const MemoryAccess& access) override;

    std::vector<std::unique_ptr<LaunchTrace>> launches;

  private:
    uint32_t groups_;
    uint64_t program_address_ = 0;
    bool keeps_steps_ = false;            // of the work-group that runs
    std::vector<MemoryAccess> accesses_;  // of the instruction in flight
};

// Passes over the LDS banks that one instruction's accesses need, and how many of them conflicts cost.
struct LdsPasses {
    uint32_t all, conflicts;
};
LdsPasses lds_passes(const std::vector<MemoryAccess>& accesses);

// The recorder that virtual_gpu_trace_start installed last; nullptr before that.
const TraceRecorder* current_recorder();

}  // namespace virtual_gpu
