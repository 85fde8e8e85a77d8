// SPDX-License-Identifier: MIT
// Which bits of registers, LDS and scratch hold something that was put there, bit by bit.
//
// Nothing here knows what an instruction computes. Where an input has undefined bits, the instruction is
// executed again with those bits changed, and what comes out different is undefined: a masked lane, a product
// with zero or the other half of a register do not spread it, so there are no false reports. A bit that
// decides only for values that none of the changes hits may pass unseen at one instruction.
//
// Reported are undefined bits in an address, a branch, EXEC or MODE, and those stored to global memory.
#pragma once

#include <memory>
#include <vector>

#include "core/observer.h"
#include "observers/sanitizer/findings.h"
#include "observers/sanitizer/followed.h"

namespace virtual_gpu {

class Definedness {
  public:
    explicit Definedness(Findings& findings) : findings_(findings) {}
    void begin_workgroup(const Workgroup& group, Wave* const* waves);
    void before(Wave& wave, const Followed& followed, uint64_t at);
    void access(const Wave& wave, const MemoryAccess& access);
    void after(Wave& wave, const Followed& followed, uint64_t at);
    // The undefined bits of a VGPR's lane, for detectors that compare results.
    uint32_t undefined_vgpr(const Wave& wave, uint32_t index, int lane) const {
        return shadows_[wave.index]->vgpr[index][lane];
    }

  private:
    // A set bit is undefined.
    struct Shadow {
        uint32_t vgpr[kVgprs][kLanes];
        uint32_t lanes[kVgprs];  // lanes of each VGPR with an undefined bit
        uint32_t scalar[kScalars + 1];
        ScalarSet scalars;  // those with an undefined bit
        std::vector<uint8_t> scratch;
        void set_scalar(size_t index, uint32_t bits) {
            scalar[index] = bits;
            scalars[index] = bits != 0;
        }
    };
    // What an instruction may change, so that it can be executed again.
    struct State {
        std::vector<uint32_t> vgprs;  // kLanes a register, in the order of touched_
        uint32_t scalar[kScalars];
        bool scc;
        uint32_t mode;
        uint64_t pc;
    };
    struct Touched {
        MemoryAccess access;
        uint8_t before[64], after[64], undefined[64], differs[64];
    };

    bool any_undefined(const Shadow& shadow, const VgprRanges& vgprs, const ScalarSet& scalars) const;
    void define_active_lanes(const Wave& wave, Shadow& shadow, const Followed& followed);
    void check_addresses(Wave& wave, Shadow& shadow, const Followed& followed, uint64_t at);
    void save(const Wave& wave, State& state) const;
    void restore(Wave& wave, const State& state) const;
    void change_inputs(Wave& wave, const Shadow& shadow, const Followed& followed, int variant);
    void execute_changed(Wave& wave, Shadow& shadow, const Followed& followed);
    void collect_differences(const Wave& wave, const Followed& followed);
    void define_results(const Wave& wave, Shadow& shadow, const Followed& followed);
    void report(Wave& wave, Shadow& shadow, const Followed& followed, uint64_t at);
    uint8_t* shadow_of(const Wave& wave, Shadow& shadow, const MemoryAccess& access);

    Findings& findings_;
    std::vector<std::unique_ptr<Shadow>> shadows_;
    std::vector<uint8_t> lds_;

    // Of the instruction under way.
    bool saved_ = false, undefined_input_ = false, undefined_output_ = false, undefined_memory_ = false;
    uint32_t exec_ = 0;
    std::vector<uint16_t> touched_vgprs_;
    State before_, after_;
    std::vector<Touched> touched_;
    std::vector<uint32_t> vgpr_differs_;
    uint32_t scalar_differs_[kScalars + 1];
    bool pc_differs_ = false, mode_differs_ = false;
};

}  // namespace virtual_gpu
