// SPDX-License-Identifier: MIT
// Accesses to one byte that nothing orders: between the waves of a work-group, and between work-groups.
//
// Inside a work-group, A of wave a comes before B of wave b if A was complete (waited for) when a signalled a
// barrier whose wait b had passed before B. Between work-groups only atomics order: what a group did before
// an atomic access comes before what another does after a later atomic access to the same address.
#pragma once

#include <array>
#include <memory>
#include <unordered_map>
#include <vector>

#include "core/observer.h"
#include "observers/sanitizer/findings.h"
#include "observers/sanitizer/followed.h"
#include "observers/sanitizer/waits.h"

namespace virtual_gpu {

class Races {
  public:
    Races(Findings& findings, const Waits& waits) : findings_(findings), waits_(waits) {}
    void begin_launch();
    void begin_workgroup(const Workgroup& group);
    void signalled(const Wave& wave, uint32_t generation);
    void passed(const Wave& wave, uint32_t generation);
    void ended(const Wave& wave);
    void access(const Wave& wave, const Followed& followed, uint64_t at, const MemoryAccess& access);

  private:
    // A position in the order of one wave's accesses: how many it had issued on the counter.
    struct Event {
        uint32_t issued = 0;
        uint32_t group = 0;  // running number of the work-group in the launch; 0: none
        uint16_t epoch = 0;  // of the work-group, see GroupClock
        uint8_t wave = 0;
        Counter counter : 7 = Counter::kLoad;
        bool atomic : 1 = false;
    };
    static_assert(sizeof(Event) == 12);
    struct Accesses {
        Event write, read;
        bool many_readers = false;  // other work-groups have read it too
    };
    struct LdsByte {
        uint64_t write = 0;  // issued, plus 1; 0: never
        uint32_t readers = 0;
        uint8_t writer = 0;
        bool atomic = false;
    };
    // Most accesses are whole dwords; bytes are told apart where one is not.
    struct Page {
        uint64_t launch = 0;
        std::vector<Accesses> dwords;
        std::unordered_map<uint64_t, std::array<Accesses, 4>> split;
    };
    // What a wave had completed when it signalled a barrier.
    struct Signal {
        uint32_t generation;
        uint64_t done[kCounters];
    };
    struct WaveOrder {
        std::vector<Signal> signals;
        uint32_t passed = 0;  // generations below this one
        uint32_t ended_at = UINT32_MAX;
    };
    // How far a work-group knows the others: one number for each that released something to it.
    using GroupClock = std::unordered_map<uint32_t, uint32_t>;

    bool ordered(uint32_t first_wave, uint64_t issued, Counter counter, uint32_t second_wave) const;
    bool ordered(const Event& event, const Event& now) const;
    void lds(const Wave& wave, const Followed& followed, uint64_t at, const MemoryAccess& access);
    void global(const Wave& wave, const Followed& followed, uint64_t at, const MemoryAccess& access);
    void report_global(const Wave& wave, const Followed& followed, uint64_t at, uint64_t address,
                       const Event& before, const Event& now, const char* what);
    void synchronise(uint64_t address);
    Page& page_at(uint64_t address);
    bool global_bytes(const Wave& wave, const Followed& followed, uint64_t at, uint64_t address, bool writes,
                      const Event& now, Accesses& accesses);

    Findings& findings_;
    const Waits& waits_;
    std::vector<WaveOrder> waves_;
    std::vector<LdsByte> lds_;
    std::vector<uint64_t> lds_reads_;  // [byte][wave]: issued, plus 1
    std::unordered_map<uint64_t, Page> pages_;
    uint64_t launch_ = 0;
    uint32_t group_ = 0, epoch_ = 1;
    GroupClock clock_;                                   // of the running work-group
    std::unordered_map<uint64_t, GroupClock> released_;  // by address of an atomic
    std::unordered_map<uint32_t, std::string> group_names_;
};

}  // namespace virtual_gpu
