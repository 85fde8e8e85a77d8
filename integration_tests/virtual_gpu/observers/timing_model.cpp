// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <deque>
#include <limits>
#include <list>
#include <string_view>

#include "control.h"
#include "observers/timing_trace.h"

namespace virtual_gpu {
namespace {

using Parameters = virtual_gpu_timing_parameters;
using Result = virtual_gpu_timing_result;

constexpr int kSimds = 4, kCus = 2, kSimdsPerCu = kSimds / kCus;
constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
constexpr size_t kRegisters = kVgprs + kScalars + 1;  // VGPRs, then scalars and SCC

// What a SIMD can start in one cycle: one instruction a port, each from another wave.
enum Port : uint8_t { kVectorPort, kScalarPort, kLdsPort, kMemoryPort, kScalarMemoryPort, kNoPort };

// An instruction as the model needs it.
struct Timed {
    Kind kind = Kind::kOther;
    Port port = kNoPort;
    bool barrier_signal = false, barrier_wait = false, branch = false;
    uint32_t issue = 1, latency = 0;
    uint8_t counters = 0;
    std::array<uint8_t, kCounters> wait{};
    std::vector<uint16_t> reads, writes;
};

Port port_of(Kind kind) {
    switch (kind) {
        case Kind::kMatrix:
        case Kind::kTranscendental:
        case Kind::kVector:
        case Kind::kDual:
            return kVectorPort;
        case Kind::kLdsLoad:
        case Kind::kLdsStore:
        case Kind::kLdsAtomic:
        case Kind::kLdsMove:
            return kLdsPort;
        case Kind::kVmemLoad:
        case Kind::kVmemStore:
        case Kind::kVmemAtomic:
            return kMemoryPort;
        case Kind::kScalarMemory:
            return kScalarMemoryPort;
        case Kind::kScalar:
            return kScalarPort;
        default:
            return kNoPort;  // waits, barriers and hints end in the wave's instruction buffer
    }
}

void add_registers(std::vector<uint16_t>& list, const VgprRanges& vgprs, const ScalarSet& scalars) {
    for (const VgprRange& range : vgprs)
        for (uint16_t i = 0; i < range.dwords; ++i) list.push_back(static_cast<uint16_t>(range.first + i));
    for (size_t i = 0; i < scalars.size(); ++i)
        if (scalars[i]) list.push_back(static_cast<uint16_t>(kVgprs + i));
}

Timed time_instruction(const TracedInstruction& traced, const Parameters& p) {
    const std::string_view name = mnemonic_name(traced.mnemonic);
    Timed timed;
    timed.kind = traced.use.kind;
    timed.port = port_of(timed.kind);
    timed.counters = traced.use.counters;
    timed.wait = traced.use.wait;
    add_registers(timed.reads, traced.use.vgpr_reads, traced.use.scalar_reads);
    add_registers(timed.writes, traced.use.vgpr_writes, traced.use.scalar_writes);
    timed.barrier_signal = name.starts_with("s_barrier_signal");
    timed.barrier_wait = name == "s_barrier_wait";
    timed.branch = name.starts_with("s_branch") || name.starts_with("s_cbranch");
    const bool wide = name.ends_with("_f16") || name.ends_with("_bf16");
    switch (timed.kind) {
        case Kind::kMatrix:
            timed.issue = wide ? p.wide_matrix_issue : p.matrix_issue;
            timed.latency = wide ? p.wide_matrix_latency : p.matrix_latency;
            break;
        case Kind::kTranscendental:
            timed.issue = p.transcendental_issue;
            timed.latency = p.transcendental_latency;
            break;
        case Kind::kScalar:
            timed.latency = p.scalar_latency;
            break;
        default:
            timed.latency = p.vector_latency;
    }
    return timed;
}

enum class Waiting : uint8_t { kNothing, kRegisters, kCounters, kBarrier };

struct TimedGroup;

struct TimedWave {
    TimedWave(const std::vector<TraceStep>& recorded, TimedGroup& of, uint64_t now)
        : steps(&recorded), group(&of), not_before(now) {}

    const std::vector<TraceStep>* steps;
    TimedGroup* group;
    size_t next = 0;
    uint64_t not_before;  // its last issue has left its instruction buffer
    std::array<uint64_t, kRegisters> register_ready{};
    std::array<std::deque<uint64_t>, kCounters> outstanding;  // when each will be done, in order of issue
    uint32_t signalled = 0, passed = 0;                       // barriers
    // Of the next instruction, once it has been looked at.
    bool looked_at = false;
    uint64_t ready = 0;
    Waiting waiting = Waiting::kNothing;

    bool ended() const { return next == steps->size(); }
};

struct TimedGroup {
    std::deque<TimedWave> waves;
    size_t ended = 0;
    std::vector<size_t> signals;        // by barrier
    std::vector<uint64_t> last_signal;  // by barrier
};

struct Simd {
    std::vector<TimedWave*> waves;  // oldest first
    uint64_t vector_busy_until = 0;
    uint64_t looked_at = 0;  // the last cycle in which it was asked to issue
    Waiting oldest_waits_for = Waiting::kNothing;
    bool has_waves = false;
};

class Wgp {
  public:
    Wgp(const LaunchTrace& trace, const Parameters& parameters) : trace_(trace), p_(parameters) {
        timed_.resize(trace.instructions.empty() ? 0 : trace.instructions.rbegin()->first + 1);
        for (const auto& [position, traced] : trace.instructions)
            timed_[position] = time_instruction(traced, p_);
    }

    // False when the waves can never end.
    bool run(uint32_t resident, uint32_t total, Result& result) {
        std::deque<uint64_t> starts;
        for (uint32_t i = 0; i < std::min(resident, total); ++i)
            starts.push_back(uint64_t(i) * p_.launch_interval);
        uint64_t now = 0;
        for (uint32_t started = 0, finished = 0; finished < total;) {
            while (!starts.empty() && starts.front() <= now) {
                starts.pop_front();
                start(started++, now);
            }
            uint64_t next = starts.empty() ? kNever : starts.front();
            for (int simd = 0; simd < kSimds; ++simd) next = std::min(next, issue(simd, now));
            const uint32_t ended = remove_ended_groups();
            finished += ended;
            for (uint32_t i = 0; i < ended && started + starts.size() < total; ++i) {
                starts.push_back(now + 1);
                next = now + 1;
            }
            if (finished == total) break;
            if (next == kNever) return false;
            now = next;
        }
        result_.cycles = now + 1;
        result = result_;
        return true;
    }

  private:
    void start(uint32_t index, uint64_t now) {
        const auto& recorded = trace_.groups[index % trace_.groups.size()];
        TimedGroup& group = groups_.emplace_back();
        // In CU mode a work-group stays on one CU and the next one goes to the other.
        const bool spread = trace_.workgroup_processor_mode;
        const int first = spread ? 0 : int(index % kCus) * kSimdsPerCu, width = spread ? kSimds : kSimdsPerCu;
        for (size_t i = 0; i < recorded.size(); ++i) {
            group.waves.emplace_back(recorded[i], group, now);
            simds_[first + int(i) % width].waves.push_back(&group.waves.back());
        }
    }

    uint32_t remove_ended_groups() {
        const auto has_ended = [](const TimedGroup& group) { return group.ended == group.waves.size(); };
        uint32_t count = 0;
        for (auto group = groups_.begin(); group != groups_.end();) {
            if (!has_ended(*group)) {
                ++group;
                continue;
            }
            for (Simd& simd : simds_)
                std::erase_if(simd.waves, [&](const TimedWave* wave) { return wave->group == &*group; });
            group = groups_.erase(group);
            ++count;
        }
        return count;
    }

    // Starts what one SIMD can start in this cycle; returns the next cycle in which to ask again.
    uint64_t issue(int index, uint64_t now) {
        Simd& simd = simds_[index];
        account_idle(simd, now);
        uint64_t next = kNever;
        bool taken[kNoPort + 1] = {};
        const TimedWave* oldest = nullptr;
        for (TimedWave* wave : simd.waves) {
            if (wave->ended()) continue;
            const TraceStep& step = (*wave->steps)[wave->next];
            const Timed& instruction = timed_[step.instruction];
            if (!wave->looked_at) look_at(*wave, instruction);
            if (!oldest) oldest = wave, simd.oldest_waits_for = wave->waiting;
            const uint64_t ready = instruction.barrier_wait ? barrier_opens(*wave) : wave->ready;
            if (ready > now) {
                next = std::min(next, ready);
                continue;
            }
            if (instruction.port != kNoPort && taken[instruction.port]) {
                next = std::min(next, now + 1);
                continue;
            }
            if (instruction.port == kVectorPort && simd.vector_busy_until > now) {
                next = std::min(next, simd.vector_busy_until);
                continue;
            }
            taken[instruction.port] = true;
            execute(*wave, step, instruction, simd, index / kSimdsPerCu, now);
            next = now + 1;
        }
        simd.has_waves = oldest;
        return next;
    }

    // Adds the cycles since the SIMD was last asked in which its vector unit had nothing to do.
    void account_idle(Simd& simd, uint64_t now) {
        const uint64_t from = std::max(simd.looked_at, simd.vector_busy_until);
        simd.looked_at = now;
        if (from >= now) return;
        uint64_t& reason = !simd.has_waves                                ? result_.idle_empty
                           : simd.oldest_waits_for == Waiting::kRegisters ? result_.idle_registers
                           : simd.oldest_waits_for == Waiting::kCounters  ? result_.idle_counters
                           : simd.oldest_waits_for == Waiting::kBarrier   ? result_.idle_barrier
                                                                          : result_.idle_other;
        reason += now - from;
    }

    // When the wave's next instruction has its operands and counters: all of them are under way already.
    void look_at(TimedWave& wave, const Timed& instruction) {
        wave.looked_at = true;
        wave.waiting = Waiting::kNothing;
        wave.ready = wave.not_before;
        const auto wait_until = [&](uint64_t cycle, Waiting reason) {
            if (cycle > wave.ready) wave.ready = cycle, wave.waiting = reason;
        };
        for (uint16_t index : instruction.reads) wait_until(wave.register_ready[index], Waiting::kRegisters);
        if (instruction.barrier_wait) wave.waiting = Waiting::kBarrier;
        if (instruction.kind != Kind::kWait) return;
        for (size_t counter = 0; counter < kCounters; ++counter) {
            if (instruction.wait[counter] == RegisterUse::kNoWait) continue;
            std::deque<uint64_t>& queue = wave.outstanding[counter];
            for (; queue.size() > instruction.wait[counter]; queue.pop_front())
                wait_until(queue.front(), Waiting::kCounters);
        }
    }

    // kNever while a wave that has not ended still has to signal.
    uint64_t barrier_opens(const TimedWave& wave) const {
        const TimedGroup& group = *wave.group;
        if (group.signals.size() <= wave.passed) return kNever;
        if (group.signals[wave.passed] + group.ended < group.waves.size()) return kNever;
        return std::max(wave.ready, group.last_signal[wave.passed] + p_.barrier_latency);
    }

    void execute(TimedWave& wave, const TraceStep& step, const Timed& instruction, Simd& simd, int cu,
                 uint64_t now) {
        uint64_t done = now + instruction.latency;
        wave.not_before = now + 1;
        if (instruction.port == kLdsPort || instruction.port == kMemoryPort)
            simd.vector_busy_until = std::max(simd.vector_busy_until, now) + p_.access_vector_slots;
        switch (instruction.port) {
            case kVectorPort:
                simd.vector_busy_until = now + instruction.issue;
                (instruction.kind == Kind::kMatrix ? result_.matrix_cycles : result_.vector_cycles) +=
                    instruction.issue;
                break;
            case kLdsPort: {
                const uint64_t cycles = uint64_t(step.data_cycles) * p_.lds_pass_cycles;
                lds_busy_until_[cu] = std::max(lds_busy_until_[cu], now) + cycles;
                done = lds_busy_until_[cu] + p_.lds_latency;
                result_.lds_cycles += cycles;
                break;
            }
            case kMemoryPort: {
                const uint64_t cycles = uint64_t(step.data_cycles) * p_.memory_sector_cycles;
                memory_busy_until_[cu] = std::max(memory_busy_until_[cu], now) + cycles;
                done = memory_busy_until_[cu] + p_.memory_latency;
                result_.memory_cycles += cycles;
                break;
            }
            case kScalarMemoryPort:
                done = now + p_.scalar_memory_latency;
                break;
            default:
                break;
        }
        if (instruction.branch) wave.not_before = now + p_.branch_latency;
        for (uint16_t index : instruction.writes) wave.register_ready[index] = done;
        for (size_t counter = 0; counter < kCounters; ++counter)
            if (instruction.counters >> counter & 1) add_outstanding(wave.outstanding[counter], done);
        if (instruction.barrier_signal) signal_barrier(wave, now);
        if (instruction.barrier_wait) ++wave.passed;
        wave.looked_at = false;
        ++wave.next;
        if (wave.ended()) ++wave.group->ended;
    }

    // Counters go down in order: an access that is done waits for those before it.
    static void add_outstanding(std::deque<uint64_t>& queue, uint64_t done) {
        queue.push_back(queue.empty() ? done : std::max(done, queue.back()));
    }

    static void signal_barrier(TimedWave& wave, uint64_t now) {
        TimedGroup& group = *wave.group;
        if (group.signals.size() <= wave.signalled) {
            group.signals.push_back(0);
            group.last_signal.push_back(0);
        }
        ++group.signals[wave.signalled];
        group.last_signal[wave.signalled] = now;
        ++wave.signalled;
    }

    const LaunchTrace& trace_;
    const Parameters p_;
    std::vector<Timed> timed_;  // by dword position
    std::list<TimedGroup> groups_;
    std::array<Simd, kSimds> simds_;
    std::array<uint64_t, kCus> lds_busy_until_{}, memory_busy_until_{};
    Result result_{};
};

}  // namespace
}  // namespace virtual_gpu

VIRTUAL_GPU_API int virtual_gpu_trace_simulate(uint32_t launch, uint32_t resident, uint32_t total,
                                               const virtual_gpu_timing_parameters* parameters,
                                               virtual_gpu_timing_result* result) {
    using namespace virtual_gpu;
    const TraceRecorder* recorder = current_recorder();
    if (!recorder || launch >= recorder->launches.size()) return 1;
    const LaunchTrace& trace = *recorder->launches[launch];
    if (trace.groups.empty() || !resident) return 1;
    return Wgp(trace, *parameters).run(resident, total, *result) ? 0 : 1;
}

#define VIRTUAL_GPU_NAME(name) #name " "
VIRTUAL_GPU_API const char* virtual_gpu_timing_parameter_names() {
    return VIRTUAL_GPU_TIMING_PARAMETERS(VIRTUAL_GPU_NAME);
}
VIRTUAL_GPU_API const char* virtual_gpu_timing_result_names() {
    return VIRTUAL_GPU_TIMING_RESULTS(VIRTUAL_GPU_NAME);
}
