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
    bool awaits_vector = false, awaits_scalar = false;  // s_wait_alu
    bool delayed = false;      // s_delay_alu holds it back until its operands are there
    uint32_t cycles = 1;       // of the vector pipe
    uint32_t unit_cycles = 0;  // of the transcendental unit
    uint32_t latency = 0;
    uint32_t dwords = 1;  // that an LDS instruction returns or takes, a lane
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

uint32_t dwords_of(const VgprRanges& ranges) {
    uint32_t count = 0;
    for (const VgprRange& range : ranges) count += range.dwords;
    return count;
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
    if (name == "s_wait_alu") {
        // Fields of zero wait: VA_VDST, VA_SDST, VA_SSRC and VA_VCC for vector instructions, SA_SDST for
        // scalar ones.
        const auto field = [&](int low, int bits) { return traced.immediate >> low & ((1 << bits) - 1); };
        timed.awaits_vector = !field(12, 4) || !field(9, 3) || !field(8, 1) || !field(1, 1);
        timed.awaits_scalar = !field(0, 1);
    }
    const bool wide = name.ends_with("_f16") || name.ends_with("_bf16");
    switch (timed.kind) {
        case Kind::kMatrix:
            timed.cycles = wide ? p.wide_matrix_issue : p.matrix_issue;
            timed.latency = wide ? p.wide_matrix_latency : p.matrix_latency;
            break;
        case Kind::kTranscendental:
            timed.unit_cycles =
                name.starts_with("v_s_") ? p.scalar_transcendental_unit : p.transcendental_unit;
            timed.latency = p.transcendental_latency;
            break;
        case Kind::kScalar:
            timed.latency = p.scalar_latency;
            break;
        case Kind::kLdsLoad:
        case Kind::kLdsMove:
            timed.dwords = dwords_of(traced.use.vgpr_writes);
            break;
        default:
            if (name.starts_with("v_lshl") || name.starts_with("v_lshr") || name.starts_with("v_ashr"))
                timed.cycles = name.ends_with("64") ? p.wide_shift_issue : 1;
            if (name == "v_mad_co_u64_u32" || name == "v_mad_co_i64_i32")
                timed.cycles = p.wide_multiply_issue;
            timed.latency = p.vector_latency;
    }
    return timed;
}

enum class Waiting : uint8_t { kNothing, kRegisters, kCounters, kBarrier };

struct TimedGroup;

struct TimedWave {
    TimedWave(const std::vector<TraceStep>& recorded, TimedGroup& of, uint32_t place, uint64_t now)
        : steps(&recorded), group(&of), index(place), not_before(now) {}

    const std::vector<TraceStep>* steps;
    TimedGroup* group;
    uint32_t index;  // in its work-group
    size_t next = 0;
    uint64_t not_before;          // its last issue has left its instruction buffer
    uint64_t vector_drained = 0;  // its vector instructions so far have written their results
    uint64_t scalar_drained = 0;  // and its scalar instructions
    std::array<uint64_t, kRegisters>
        register_ready{};                             // for issue: what scalar instructions and memory wrote
    std::array<uint64_t, kRegisters> vector_ready{};  // for execution: what vector instructions wrote
    std::array<std::deque<uint64_t>, kCounters> outstanding;  // when each will be done, in order of issue
    uint32_t signalled = 0, passed = 0;                       // barriers
    // Of the next instruction, once it has been looked at.
    bool looked_at = false;
    uint64_t ready = 0, operands = 0;
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
    uint64_t issue_busy_until = 0;  // no vector instruction can be issued before
    uint64_t pipe_busy_until = 0;   // or begin to execute
    uint64_t unit_busy_until = 0;   // or a transcendental one
    bool last_was_matrix = false;
    std::deque<uint64_t> queue;  // when each issued vector instruction leaves the pipe
    uint64_t looked_at = 0;      // the last cycle in which it was asked to issue
    Waiting oldest_waits_for = Waiting::kNothing;
    bool has_waves = false;
};

class Wgp {
  public:
    Wgp(const LaunchTrace& trace, const Parameters& parameters, virtual_gpu_schedule_step tell = nullptr)
        : trace_(trace), p_(parameters), tell_(tell) {
        timed_.resize(trace.instructions.empty() ? 0 : trace.instructions.rbegin()->first + 1);
        for (const auto& [position, traced] : trace.instructions)
            timed_[position] = time_instruction(traced, p_);
        mark_delayed();
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
    // s_delay_alu (RDNA4 ISA guide) names one or two of the instructions that follow it: the next one, and
    // one that stands `skip` instructions after that.
    void mark_delayed() {
        for (auto at = trace_.instructions.begin(); at != trace_.instructions.end(); ++at) {
            if (mnemonic_name(at->second.mnemonic) != std::string_view("s_delay_alu")) continue;
            const uint32_t first = at->second.immediate & 15, skip = at->second.immediate >> 4 & 7,
                           second = at->second.immediate >> 7 & 15;
            auto named = std::next(at);
            for (uint32_t i = 0; i <= skip && named != trace_.instructions.end(); ++i, ++named)
                if ((i == 0 && first) || (i == skip && second)) timed_[named->first].delayed = true;
        }
    }

    void start(uint32_t index, uint64_t now) {
        const auto& recorded = trace_.groups[index % trace_.groups.size()];
        TimedGroup& group = groups_.emplace_back();
        // In CU mode a work-group stays on one CU and the next one goes to the other.
        const bool spread = trace_.workgroup_processor_mode;
        const int first = spread ? 0 : int(index % kCus) * kSimdsPerCu, width = spread ? kSimds : kSimdsPerCu;
        for (size_t i = 0; i < recorded.size(); ++i) {
            group.waves.emplace_back(recorded[i], group, static_cast<uint32_t>(i), now);
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
            if (instruction.port == kVectorPort) {
                if (const uint64_t free = vector_port_free(simd, instruction, now); free > now) {
                    next = std::min(next, free);
                    continue;
                }
            }
            taken[instruction.port] = true;
            execute(*wave, step, instruction, simd, index / kSimdsPerCu, now);
            next = now + 1;
        }
        simd.has_waves = oldest;
        return next;
    }

    // When the SIMD can issue a vector instruction. Matrix instructions enter the queue in a cycle each;
    // others keep the issue stage for as long as they will take in the pipe.
    uint64_t vector_port_free(Simd& simd, const Timed& instruction, uint64_t now) const {
        while (!simd.queue.empty() && simd.queue.front() <= now) simd.queue.pop_front();
        uint64_t free = simd.issue_busy_until;
        if (simd.queue.size() >= p_.vector_queue) free = std::max(free, simd.queue.front());
        if (instruction.unit_cycles && simd.unit_busy_until > now + p_.vector_pipeline)
            free = std::max(free, simd.unit_busy_until - p_.vector_pipeline);
        return free;
    }

    // Adds the cycles in which the SIMD's vector pipe has nothing to do. What is issued now begins later, by
    // the length of the pipeline.
    void account_idle(Simd& simd, uint64_t now) {
        const uint64_t from = std::max(simd.looked_at + p_.vector_pipeline, simd.pipe_busy_until);
        simd.looked_at = now;
        if (from >= now + p_.vector_pipeline) return;
        uint64_t& reason = !simd.has_waves                                ? result_.idle_empty
                           : simd.oldest_waits_for == Waiting::kRegisters ? result_.idle_registers
                           : simd.oldest_waits_for == Waiting::kCounters  ? result_.idle_counters
                           : simd.oldest_waits_for == Waiting::kBarrier   ? result_.idle_barrier
                                                                          : result_.idle_other;
        reason += now + p_.vector_pipeline - from;
    }

    // When the wave's next instruction has its operands and counters: all of them are under way already.
    void look_at(TimedWave& wave, const Timed& instruction) {
        wave.looked_at = true;
        wave.waiting = Waiting::kNothing;
        wave.ready = wave.not_before;
        const auto wait_until = [&](uint64_t cycle, Waiting reason) {
            if (cycle > wave.ready) wave.ready = cycle, wave.waiting = reason;
        };
        wave.operands = 0;
        for (uint16_t index : instruction.reads) {
            wait_until(wave.register_ready[index], Waiting::kRegisters);
            wave.operands = std::max(wave.operands, wave.vector_ready[index]);
        }
        // A vector instruction is issued without them and waits in the pipe, unless s_delay_alu holds it
        // back.
        if (instruction.port == kVectorPort && instruction.delayed && wave.operands > p_.vector_pipeline)
            wait_until(wave.operands - p_.vector_pipeline, Waiting::kRegisters);
        if (instruction.port == kScalarPort && wave.operands)
            wait_until(wave.operands - p_.vector_latency + p_.vector_drain, Waiting::kRegisters);
        // LDS and memory read registers where vector instructions write them, without a check of which.
        if (instruction.port == kLdsPort || instruction.port == kMemoryPort || instruction.awaits_vector)
            wait_until(wave.vector_drained, Waiting::kRegisters);
        if (instruction.awaits_scalar) wait_until(wave.scalar_drained, Waiting::kRegisters);
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
        uint64_t done = now + instruction.latency, executed = 0;
        wave.not_before = now + 1;
        switch (instruction.port) {
            case kVectorPort:
                executed = begin_in_pipe(simd, instruction, wave.operands, now);
                done = executed + instruction.latency;
                wave.vector_drained = std::max(
                    wave.vector_drained,
                    executed + (instruction.kind == Kind::kMatrix ? p_.matrix_drain : p_.vector_drain));
                break;
            case kScalarPort:
                wave.scalar_drained = now + p_.scalar_drain;
                break;
            case kLdsPort: {
                const uint64_t cycles = uint64_t(step.data_cycles) * p_.lds_pass_cycles;
                lds_busy_until_[cu] = std::max(lds_busy_until_[cu], now) + cycles;
                done = lds_busy_until_[cu] + p_.lds_latency + instruction.dwords * p_.lds_dword_latency;
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
        for (uint16_t index : instruction.writes) {
            wave.register_ready[index] = instruction.port == kVectorPort ? 0 : done;
            wave.vector_ready[index] = instruction.port == kVectorPort ? done : 0;
        }
        for (size_t counter = 0; counter < kCounters; ++counter)
            if (instruction.counters >> counter & 1) add_outstanding(wave.outstanding[counter], done);
        if (instruction.barrier_signal) signal_barrier(wave, now);
        if (instruction.barrier_wait) ++wave.passed;
        if (tell_ && &simd == &simds_[0]) tell_(wave.index, step.instruction, now, executed);
        wave.looked_at = false;
        ++wave.next;
        if (wave.ended()) ++wave.group->ended;
    }

    // Enters a vector instruction into the SIMD's pipe, in order of issue; returns when it begins to execute.
    uint64_t begin_in_pipe(Simd& simd, const Timed& instruction, uint64_t operands, uint64_t now) {
        const bool matrix = instruction.kind == Kind::kMatrix;
        uint64_t begins = std::max(now + p_.vector_pipeline, simd.pipe_busy_until);
        const auto wait_until = [&](uint64_t cycle, uint64_t& reason) {
            if (cycle > begins) reason += cycle - begins, begins = cycle;
        };
        if (matrix && !simd.last_was_matrix)
            wait_until(simd.pipe_busy_until + p_.matrix_entry, result_.idle_entry);
        wait_until(operands, result_.idle_operands);
        if (instruction.unit_cycles || (matrix && p_.matrix_waits_for_transcendental))
            wait_until(simd.unit_busy_until, result_.idle_transcendental);
        if (instruction.unit_cycles) simd.unit_busy_until = begins + instruction.unit_cycles;
        simd.issue_busy_until = now + (matrix ? 1 : instruction.cycles);
        simd.pipe_busy_until = begins + instruction.cycles;
        simd.last_was_matrix = matrix;
        simd.queue.push_back(simd.pipe_busy_until);
        (matrix ? result_.matrix_cycles : result_.vector_cycles) += instruction.cycles;
        return begins;
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
    const virtual_gpu_schedule_step tell_;
    std::vector<Timed> timed_;  // by dword position
    std::list<TimedGroup> groups_;
    std::array<Simd, kSimds> simds_;
    std::array<uint64_t, kCus> lds_busy_until_{}, memory_busy_until_{};
    Result result_{};
};

// A launch of which a work-group was recorded; nullptr without one.
const LaunchTrace* recorded(uint32_t launch) {
    const TraceRecorder* recorder = current_recorder();
    if (!recorder || launch >= recorder->launches.size() || recorder->launches[launch]->groups.empty())
        return nullptr;
    return recorder->launches[launch].get();
}

}  // namespace
}  // namespace virtual_gpu

VIRTUAL_GPU_API int virtual_gpu_trace_simulate(uint32_t launch, uint32_t resident, uint32_t total,
                                               const virtual_gpu_timing_parameters* parameters,
                                               virtual_gpu_timing_result* result) {
    const virtual_gpu::LaunchTrace* trace = virtual_gpu::recorded(launch);
    if (!trace || !resident) return 1;
    return virtual_gpu::Wgp(*trace, *parameters).run(resident, total, *result) ? 0 : 1;
}

VIRTUAL_GPU_API int virtual_gpu_trace_schedule(uint32_t launch,
                                               const virtual_gpu_timing_parameters* parameters,
                                               virtual_gpu_schedule_step step) {
    const virtual_gpu::LaunchTrace* trace = virtual_gpu::recorded(launch);
    virtual_gpu_timing_result result;
    return trace && virtual_gpu::Wgp(*trace, *parameters, step).run(1, 1, result) ? 0 : 1;
}

#define VIRTUAL_GPU_NAME(name) #name " "
VIRTUAL_GPU_API const char* virtual_gpu_timing_parameter_names() {
    return VIRTUAL_GPU_TIMING_PARAMETERS(VIRTUAL_GPU_NAME);
}
VIRTUAL_GPU_API const char* virtual_gpu_timing_result_names() {
    return VIRTUAL_GPU_TIMING_RESULTS(VIRTUAL_GPU_NAME);
}
