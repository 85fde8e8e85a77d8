// SPDX-License-Identifier: MIT
// What the sanitizer found: one finding per class, kernel and instruction, with how often.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "core/decode.h"
#include "core/wave.h"

namespace virtual_gpu {

enum class Fault : uint8_t {
    kMissingWait,
    kUndefinedAddress,
    kUndefinedBranch,
    kUndefinedExec,
    kUndefinedMode,
    kUndefinedResult,
    kLdsRace,
    kGlobalRace,
    kBarrierDivergence,
    kMisaligned,
    kDenormalMode,
    kOverflowMode,
};
constexpr const char* kFaultNames[] = {"missing-wait",   "undefined-address", "undefined-branch",
                                       "undefined-exec", "undefined-mode",    "undefined-result",
                                       "lds-race",       "global-race",       "barrier-divergence",
                                       "misaligned",     "denormal-mode",     "overflow-mode"};

struct Finding {
    Fault fault;
    std::string kernel;
    std::string text;  // what happened, where it happened first
    uint64_t count = 1;
};

class Findings {
  public:
    // The kernel that the next findings belong to, and where its code begins.
    void begin_launch(std::string kernel, uint64_t code);
    void add(Fault fault, const Wave& wave, const Instruction& instruction, uint64_t at,
             const std::string& text);
    // A finding that belongs to no instruction.
    void add(Fault fault, const Workgroup& group, const std::string& text);
    std::vector<Finding> all() const;
    void clear();

  private:
    void insert(Fault fault, uint64_t at, std::string text);

    mutable std::mutex mutex_;  // reports may be asked for from another thread than the launch's
    std::string kernel_;
    uint64_t code_ = 0;
    std::vector<Finding> list_;
    std::map<std::tuple<Fault, std::string, uint64_t>, size_t> known_;
};

}  // namespace virtual_gpu
