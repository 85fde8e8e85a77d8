// SPDX-License-Identifier: MIT
// Registers whose load is still outstanding, wave by wave, as the wait counters order them.
#pragma once

#include <deque>
#include <vector>

#include "observers/sanitizer/findings.h"
#include "observers/sanitizer/followed.h"

namespace virtual_gpu {

// How many memory instructions a wave has issued on a counter, and how many of the first of them are done.
struct Progress {
    uint64_t issued = 0, done = 0;
};

class Waits {
  public:
    explicit Waits(Findings& findings) : findings_(findings) {}
    void begin(uint32_t waves) { waves_.assign(waves, {}); }
    // A wait completes accesses, a register use that comes too early is reported.
    void before(const Wave& wave, const Followed& followed, uint64_t at);
    void after(const Wave& wave, const Followed& followed, uint64_t at);
    const Progress& progress(const Wave& wave, Counter counter) const {
        return waves_[wave.index].progress[static_cast<size_t>(counter)];
    }

  private:
    struct Outstanding {
        VgprSet vgprs;
        ScalarSet scalars;
        bool out_of_order;
        const Instruction* instruction;
        uint64_t at;
    };
    struct Queues {
        std::deque<Outstanding> outstanding[kCounters];
        VgprSet vgprs;  // of all of them
        ScalarSet scalars;
        Progress progress[kCounters];
    };

    void complete(Queues& queues, const Followed& followed);
    void check(const Wave& wave, const Queues& queues, const Followed& followed, uint64_t at);

    Findings& findings_;
    std::vector<Queues> waves_;
};

}  // namespace virtual_gpu
