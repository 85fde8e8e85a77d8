// SPDX-License-Identifier: MIT
// What a tool sees of the executing waves: the sanitizer and the timing model are observers.
//
// While there is an observer, one launch runs at a time, its work-groups one after the other on the
// calling thread and the waves of a work-group in turns, so an observer needs no locks. Without one, the cost
// is a pointer test per turn and per memory access.
#pragma once

#include <cstdint>

#include "core/memory_kinds.h"
#include "core/wave.h"

namespace virtual_gpu {

struct Instruction;
struct Kernel;
class Program;

// What is known of a launch before it runs.
struct ObservedLaunch {
    const Kernel& kernel;
    const Program& program;
    uint32_t workgroups[3];
    uint32_t waves_per_workgroup;  // of a full work-group
    uint32_t lds_bytes;
};

// One lane's access, before it happens; it has passed the bounds check. An instruction that moves several
// dwords as one piece gives one access a lane; two-address LDS instructions give two.
struct MemoryAccess {
    Space space;
    Access kind;
    int lane;          // kScalarLane: one access of the wave
    uint64_t address;  // global: guest address; LDS and scratch: offset into the work-group's or lane's bytes
    uint32_t bytes;
    uint8_t* host;  // where those bytes are
};

class Observer {
  public:
    virtual ~Observer() = default;
    virtual void launch_begins(const ObservedLaunch&) {}
    // Also after a fault, which `fault` then describes; nullptr otherwise.
    virtual void launch_ends([[maybe_unused]] const char* fault) {}
    // All waves of the work-group have their initial registers. `waves` is Workgroup::waves long.
    virtual void workgroup_begins(Workgroup&, [[maybe_unused]] Wave* const* waves) {}
    virtual void workgroup_ends(Workgroup&) {}
    // `at` is the instruction's guest address. `after` is not called when the instruction faults. A wave that
    // blocks at s_barrier_wait sees neither before the barrier is complete.
    virtual void before(Wave&, const Instruction&, [[maybe_unused]] uint64_t at) {}
    virtual void after(Wave&, const Instruction&, [[maybe_unused]] uint64_t at) {}
    virtual void access(Wave&, const MemoryAccess&) {}
    // The wave has signalled barrier `generation` of its work-group, or has passed the wait for it.
    virtual void barrier_signalled(Wave&, [[maybe_unused]] uint32_t generation) {}
    virtual void barrier_passed(Wave&, [[maybe_unused]] uint32_t generation) {}
};

// Observers see every launch from when they are added until they are removed, in the order in which they were
// added. Adding one again, or removing one that is not there, changes nothing. Not while a kernel runs; the
// caller keeps them alive.
void add_observer(Observer& observer);
void remove_observer(Observer& observer);
// What launches tell: the only observer, one that passes everything on to several, or nullptr.
Observer* installed_observers();

}  // namespace virtual_gpu
