// SPDX-License-Identifier: MIT
// An instruction as the detectors follow it: its register use, in the forms that they test every time it
// runs.
#pragma once

#include <bitset>
#include <deque>
#include <optional>
#include <vector>

#include "core/register_use.h"

namespace virtual_gpu {

using VgprSet = std::bitset<kVgprs>;

struct Followed {
    const Instruction& instruction;
    RegisterUse use;
    VgprSet vgpr_reads, vgpr_writes;
    // Every lane that EXEC turns on gets a whole new value.
    bool writes_active_lanes = false;
    bool loads = false, stores = false;   // memory; atomics do both
    bool converts_with_overflow = false;  // its result depends on MODE.FP16_OVFL
    bool is_float = false;                // its result depends on MODE.FP_DENORM

    explicit Followed(const Instruction& decoded);
};

// The instructions of one program, looked at when they first run.
class FollowedProgram {
  public:
    explicit FollowedProgram(const Program& program) : program_(program), entries_(program.code.size()) {}
    const Followed& at(uint64_t address) {
        std::optional<Followed>& entry = entries_[(address - program_.address) / 4];
        if (!entry) entry.emplace(program_.code[(address - program_.address) / 4]);
        return *entry;
    }

  private:
    const Program& program_;
    std::vector<std::optional<Followed>> entries_;
};

}  // namespace virtual_gpu
