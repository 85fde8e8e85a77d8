// SPDX-License-Identifier: MIT
#include "observers/sanitizer/waits.h"

#include "core/disassemble.h"

namespace virtual_gpu {
namespace {

constexpr const char* kCounterNames[] = {"loadcnt",   "storecnt", "dscnt", "kmcnt",
                                         "samplecnt", "bvhcnt",   "expcnt"};

// What a counter can count to: with so many outstanding, the next instruction is held back.
constexpr size_t kCounterLimit = 63;

template <class Set>
std::string first_of(const Set& set, const char* prefix) {
    for (size_t i = 0; i < set.size(); ++i)
        if (set[i]) return prefix + std::to_string(i);
    return "";
}

}  // namespace

void Waits::before(const Wave& wave, const Followed& followed, uint64_t at) {
    Queues& queues = waves_[wave.index];
    if (followed.use.kind == Kind::kWait) return complete(queues, followed);
    const bool uses_pending =
        (queues.vgprs & (followed.vgpr_reads | followed.vgpr_writes)).any() ||
        (queues.scalars & (followed.use.scalar_reads | followed.use.scalar_writes)).any();
    if (uses_pending) check(wave, queues, followed, at);
}

void Waits::check(const Wave& wave, const Queues& queues, const Followed& followed, uint64_t at) {
    for (size_t counter = 0; counter < kCounters; ++counter) {
        // Results of one counter come back in order, so a later load may overwrite an earlier one's
        // registers, or fill the other half of one.
        const bool same_counter = followed.use.counters == 1u << counter;
        for (const Outstanding& load : queues.outstanding[counter]) {
            VgprSet vgprs = load.vgprs & (followed.vgpr_reads | followed.vgpr_writes);
            if (same_counter && !load.out_of_order) vgprs &= ~followed.vgpr_writes;
            const ScalarSet scalars = load.scalars & (followed.use.scalar_reads | followed.use.scalar_writes);
            if (vgprs.none() && scalars.none()) continue;
            const std::string name = vgprs.any() ? first_of(vgprs, "v") : first_of(scalars, "s");
            findings_.add(Fault::kMissingWait, wave, followed.instruction, at,
                          name + " is used while " + describe(*load.instruction, load.at) +
                              " is outstanding on " + kCounterNames[counter]);
            return;
        }
    }
}

void Waits::complete(Queues& queues, const Followed& followed) {
    for (size_t counter = 0; counter < kCounters; ++counter) {
        const uint8_t limit = followed.use.wait[counter];
        if (limit == RegisterUse::kNoWait) continue;
        auto& outstanding = queues.outstanding[counter];
        // Where results come back in any order, a count above zero says nothing about which are done.
        bool in_order = true;
        for (const Outstanding& load : outstanding) in_order &= !load.out_of_order;
        if (limit && !in_order) continue;
        while (outstanding.size() > limit) outstanding.pop_front();
        queues.progress[counter].done = queues.progress[counter].issued - outstanding.size();
    }
    queues.vgprs.reset();
    queues.scalars.reset();
    for (const auto& outstanding : queues.outstanding)
        for (const Outstanding& load : outstanding)
            queues.vgprs |= load.vgprs, queues.scalars |= load.scalars;
}

void Waits::after(const Wave& wave, const Followed& followed, uint64_t at) {
    const uint8_t counters = followed.use.counters;
    if (!counters) return;
    Queues& queues = waves_[wave.index];
    const bool scalar = followed.use.kind == Kind::kScalarMemory;
    // Flat accesses go to two units at once, scalar loads to a cache that answers hits first.
    const bool out_of_order = scalar || (counters & (counters - 1));
    Outstanding load{followed.vgpr_writes, scalar ? followed.use.scalar_writes : ScalarSet(), out_of_order,
                     &followed.instruction, at};
    for (size_t counter = 0; counter < kCounters; ++counter) {
        if (!(counters >> counter & 1)) continue;
        auto& outstanding = queues.outstanding[counter];
        outstanding.push_back(load);
        ++queues.progress[counter].issued;
        if (outstanding.size() > kCounterLimit) outstanding.pop_front();
        queues.progress[counter].done = queues.progress[counter].issued - outstanding.size();
    }
    queues.vgprs |= load.vgprs;
    queues.scalars |= load.scalars;
}

}  // namespace virtual_gpu
