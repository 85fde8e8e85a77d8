// SPDX-License-Identifier: MIT
// Results that are what they are because of MODE: found by executing the instruction under the other mode.
#pragma once

#include <vector>

#include "observers/sanitizer/definedness.h"
#include "observers/sanitizer/findings.h"
#include "observers/sanitizer/followed.h"

namespace virtual_gpu {

class Modes {
  public:
    Modes(Findings& findings, const Definedness& definedness)
        : findings_(findings), definedness_(definedness) {}
    void before(Wave& wave, const Followed& followed, uint64_t at);

  private:
    bool differs_under(Wave& wave, const Followed& followed, uint32_t mode);
    void copy_results(const Wave& wave, const Followed& followed, std::vector<uint32_t>& out) const;

    Findings& findings_;
    const Definedness& definedness_;
    std::vector<uint32_t> first_, second_;
};

}  // namespace virtual_gpu
