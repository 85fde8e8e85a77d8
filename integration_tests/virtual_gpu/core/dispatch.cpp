// SPDX-License-Identifier: MIT
#include "core/dispatch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "core/faults.h"
#include "core/memory.h"
#include "core/observer.h"

namespace virtual_gpu {
namespace {

// Enough for a long straight run, short enough that waves which poll memory for each other make progress.
constexpr uint64_t kInstructionsPerTurn = 20000;

// Turns of a drawn schedule: mostly a few instructions, so that waves cross each other between any two, and
// sometimes long enough for one wave to run far ahead.
constexpr uint64_t kShortTurn = 40, kLongTurn = 4000;
constexpr uint32_t kLongTurnEvery = 16;

// What HIP reserves for a kernel whose stack size the compiler could not bound (hipLimitStackSize's default).
constexpr uint32_t kDynamicStackBytes = 1024;

constexpr uint32_t kKernargAlignment = 16;

// The barrier target of a wave that has not signalled: no generation is above it, so a wait blocks.
constexpr uint32_t kNeverSignalled = UINT32_MAX;

// The packet that hardware dispatches from (HSA's kernel dispatch
// packet); kernels read it through the dispatch pointer.
struct DispatchPacket {
    uint16_t header, setup;
    uint16_t workgroup_size[3], reserved0;
    uint32_t grid_size[3];
    uint32_t private_segment_bytes, group_segment_bytes;
    uint64_t kernel_object, kernarg_address, reserved2, completion_signal;
};
static_assert(sizeof(DispatchPacket) == 64);

// Keeps a range tracked for the duration of a launch.
class TrackedRange {
  public:
    TrackedRange(const void* address, uint64_t bytes, std::string name)
        : address_(reinterpret_cast<uint64_t>(address)) {
        add_allocation(address_, bytes, std::move(name));
    }
    ~TrackedRange() { remove_allocation(address_); }
    TrackedRange(const TrackedRange&) = delete;
    TrackedRange& operator=(const TrackedRange&) = delete;

  private:
    uint64_t address_;
};

uint32_t divide_up(uint32_t value, uint32_t by) { return value / by + (value % by != 0); }

std::atomic<uint64_t> schedule_seed{0};

// Which wave runs when, within one work-group.
class Schedule {
  public:
    Schedule(uint64_t seed, uint64_t workgroup, uint32_t waves)
        : drawn_(seed != 0), random_(seed * 0x9e3779b97f4a7c15ull + workgroup), order_(waves) {
        std::iota(order_.begin(), order_.end(), 0u);
    }
    // The waves in the order of the next round.
    const std::vector<uint32_t>& round() {
        if (drawn_) std::shuffle(order_.begin(), order_.end(), random_);
        return order_;
    }
    uint64_t turn() {
        if (!drawn_) return kInstructionsPerTurn;
        return 1 + random_() % (random_() % kLongTurnEvery ? kShortTurn : kLongTurn);
    }

  private:
    bool drawn_;
    std::mt19937_64 random_;
    std::vector<uint32_t> order_;
};

// The `index`-th work-group to run, of `total`: a permutation of them.
uint64_t drawn_workgroup(uint64_t seed, uint64_t index, uint64_t total) {
    if (!seed) return index;
    std::mt19937_64 random(seed);
    uint64_t step = random() % total + 1;
    while (std::gcd(step, total) != 1) step = step % total + 1;
    return static_cast<uint64_t>((static_cast<unsigned __int128>(step) * index + random() % total) % total);
}

// The value of a hidden argument. Services that need a host thread (printf, hostcall, device malloc) read
// zero: their first use faults on address 0.
uint64_t hidden_value(const KernelArgument& argument, const LaunchGeometry& geometry) {
    const int axis = argument.kind.empty() ? 0 : argument.kind.back() - 'x';
    const auto is = [&](const char* prefix) {
        return argument.kind.rfind(prefix, 0) == 0 && axis >= 0 && axis < 3;
    };
    if (is("hidden_block_count_")) return geometry.grid[axis] / geometry.block[axis];
    if (is("hidden_group_size_")) return geometry.block[axis];
    if (is("hidden_remainder_")) return geometry.grid[axis] % geometry.block[axis];
    if (argument.kind == "hidden_grid_dims") return geometry.grid[2] > 1 ? 3 : geometry.grid[1] > 1 ? 2 : 1;
    if (argument.kind == "hidden_dynamic_lds_size") return geometry.dynamic_lds_bytes;
    if (argument.kind == "hidden_private_base") return kPrivateAperture >> 32;
    if (argument.kind == "hidden_shared_base") return kSharedAperture >> 32;
    return 0;
}

// One launch, shared by the threads that run it.
class Launch {
  public:
    Launch(const CodeObject& object, const Kernel& kernel, const LaunchGeometry& geometry,
           const std::vector<uint8_t>& explicit_arguments)
        : program_(object.program()),
          kernel_(kernel),
          geometry_(geometry),
          kernarg_(make_kernarg_segment(kernel, geometry, explicit_arguments)),
          kernarg_range_(kernarg_.data(), kernarg_.size(), "arguments of " + kernel.name),
          packet_range_(&packet_, sizeof packet_, "dispatch packet of " + kernel.name) {
        if (kernel.descriptor.wants_queue_ptr)
            throw NotModelled("kernel " + kernel.name + " asks for the queue pointer");
        for (int axis = 0; axis < 3; ++axis)
            groups_[axis] = divide_up(geometry.grid[axis], geometry.block[axis]);
        lds_bytes_ = kernel.descriptor.group_segment_bytes + geometry.dynamic_lds_bytes;
        scratch_bytes_ = kernel.descriptor.private_segment_bytes;
        if (kernel.descriptor.uses_dynamic_stack)
            scratch_bytes_ = std::max(scratch_bytes_, kDynamicStackBytes);
        scratch_bytes_ = (scratch_bytes_ + 3) / 4 * 4;
        fill_packet();
    }

    LaunchResult run() {
        // An observer sees one launch at a time.
        static std::mutex observed;
        std::unique_lock<std::mutex> alone;
        if (observer_) alone = std::unique_lock(observed);
        const auto start = std::chrono::steady_clock::now();
        const uint64_t total = uint64_t(groups_[0]) * groups_[1] * groups_[2];
        const uint64_t threads = observer_ ? 1 : std::min<uint64_t>(thread_limit(), total);
        if (observer_)
            observer_->launch_begins(
                {kernel_,
                 program_,
                 {groups_[0], groups_[1], groups_[2]},
                 divide_up(geometry_.block[0] * geometry_.block[1] * geometry_.block[2], kLanes),
                 lds_bytes_});
        std::vector<std::thread> helpers;
        for (uint64_t i = 1; i < threads; ++i) helpers.emplace_back([&] { work(total); });
        work(total);
        for (std::thread& helper : helpers) helper.join();
        if (observer_) observer_->launch_ends(fault_ ? text_of(fault_).c_str() : nullptr);
        if (fault_) std::rethrow_exception(fault_);
        result_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        return result_;
    }

  private:
    static std::string text_of(const std::exception_ptr& fault) {
        try {
            std::rethrow_exception(fault);
        } catch (const std::exception& error) {
            return error.what();
        }
    }

    static unsigned thread_limit() {
        const char* limit = std::getenv("VIRTUAL_GPU_THREADS");
        const int wanted = limit ? std::atoi(limit) : int(std::thread::hardware_concurrency());
        return wanted > 0 ? unsigned(wanted) : 1;
    }

    void fill_packet() {
        packet_ = {};
        packet_.setup = 3;
        for (int axis = 0; axis < 3; ++axis) {
            packet_.workgroup_size[axis] = uint16_t(geometry_.block[axis]);
            packet_.grid_size[axis] = geometry_.grid[axis];
        }
        packet_.private_segment_bytes = scratch_bytes_;
        packet_.group_segment_bytes = lds_bytes_;
        packet_.kernarg_address = reinterpret_cast<uint64_t>(kernarg_.data());
    }

    void work(uint64_t total) {
        const InstructionCounts before = thread_instruction_counts();
        std::vector<std::unique_ptr<Wave>> waves;
        bool uneven = false;
        try {
            for (uint64_t next; (next = next_++) < total && !stop_;) {
                const uint64_t index = drawn_workgroup(seed_, next, total);
                const uint32_t id[3] = {uint32_t(index % groups_[0]),
                                        uint32_t(index / groups_[0] % groups_[1]),
                                        uint32_t(index / groups_[0] / groups_[1])};
                uneven |= run_workgroup(id, index, waves);
            }
        } catch (...) {
            std::lock_guard lock(mutex_);
            if (!fault_) fault_ = std::current_exception();
            stop_ = true;
        }
        const InstructionCounts& after = thread_instruction_counts();
        std::lock_guard lock(mutex_);
        result_.uneven_barriers |= uneven;
        for (const InstructionCounter& counter : kInstructionCounters)
            result_.instructions.*counter.count += after.*counter.count - before.*counter.count;
    }

    // Returns whether the waves met different numbers of barriers. `waves` is reused from group to group.
    bool run_workgroup(const uint32_t (&id)[3], uint64_t index, std::vector<std::unique_ptr<Wave>>& waves) {
        uint32_t block[3], items = 1;
        for (int axis = 0; axis < 3; ++axis) {
            block[axis] =
                std::min(geometry_.block[axis], geometry_.grid[axis] - id[axis] * geometry_.block[axis]);
            items *= block[axis];
        }
        Workgroup group;
        group.lds.resize(lds_bytes_);
        fill_poison(group.lds);
        const uint32_t count = divide_up(items, kLanes);
        group.waves = group.waves_in_barrier = count;
        std::copy_n(id, 3, group.id);
        while (waves.size() < count) waves.push_back(std::make_unique<Wave>());
        for (uint32_t i = 0; i < count; ++i) start_wave(*waves[i], group, i, id, block, items);
        if (observer_) {
            std::vector<Wave*> started(count);
            for (uint32_t i = 0; i < count; ++i) started[i] = waves[i].get();
            observer_->workgroup_begins(group, started.data());
        }
        Schedule schedule(seed_, index, count);
        run_waves(group, waves, schedule, count, id);
        if (observer_) observer_->workgroup_ends(group);
        for (uint32_t i = 1; i < count; ++i)
            if (waves[i]->barrier_target != waves[0]->barrier_target) return true;
        return false;
    }

    void run_waves(Workgroup& group, std::vector<std::unique_ptr<Wave>>& waves, Schedule& schedule,
                   uint32_t count, const uint32_t (&id)[3]) {
        std::vector<bool> ended(count);
        uint32_t live = count;
        while (live && !stop_) {
            bool progress = false;
            for (const uint32_t i : schedule.round()) {
                if (ended[i]) continue;
                // A wave in a loop may come back to the same wait; then it has signalled once more.
                const uint64_t pc = waves[i]->pc;
                const uint32_t target = waves[i]->barrier_target;
                const Stop stop = run_one(*waves[i], schedule.turn(), id);
                progress |=
                    stop != Stop::kBarrier || waves[i]->pc != pc || waves[i]->barrier_target != target;
                if (stop != Stop::kEnd) continue;
                ended[i] = true;
                // A wave that ends no longer counts in barriers: the others may now be complete.
                group.waves_in_barrier = --live;
                if (live && group.signalled >= live) {
                    group.signalled = 0;
                    ++group.barrier_generation;
                }
            }
            if (!progress) throw KernelFault(barrier_text(waves, ended) + place(id));
        }
    }

    Stop run_one(Wave& wave, uint64_t instructions, const uint32_t (&id)[3]) {
        const auto where = [&] {
            char offset[24];
            std::snprintf(offset, sizeof offset, "+0x%llx",
                          static_cast<unsigned long long>(wave.pc - kernel_.descriptor.entry));
            return place(id) + ", wave " + std::to_string(wave.index) + ", at " + kernel_.name + offset;
        };
        try {
            return run_wave(wave, program_, instructions);
        } catch (const IllegalAccess& fault) {
            throw IllegalAccess(fault.what() + where());
        } catch (const KernelFault& fault) {
            throw KernelFault(fault.what() + where());
        } catch (const NotModelled& gap) {
            throw NotModelled(gap.what() + where());
        }
    }

    std::string barrier_text(const std::vector<std::unique_ptr<Wave>>& waves,
                             const std::vector<bool>& ended) const {
        std::string text = "barrier can never complete: waves";
        for (size_t i = 0; i < ended.size(); ++i)
            if (!ended[i]) text += " " + std::to_string(waves[i]->index);
        return text + " wait and no other wave can signal";
    }

    std::string place(const uint32_t (&id)[3]) const {
        return "; kernel " + kernel_.name + ", work-group (" + std::to_string(id[0]) + ", " +
               std::to_string(id[1]) + ", " + std::to_string(id[2]) + ")";
    }

    template <typename T>
    static void fill_poison(std::vector<T>& bytes) {
        for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = T(kUninitialised >> 8 * (i % 4));
    }

    void start_wave(Wave& wave, Workgroup& group, uint32_t index, const uint32_t (&id)[3],
                    const uint32_t (&block)[3], uint32_t items) {
        std::fill_n(&wave.vgpr[0][0], kVgprs * kLanes, kUninitialised);
        std::fill_n(wave.scalar, kScalars, kUninitialised);
        wave.scalar[kNull] = 0;
        wave.scc = false;
        wave.mode = kernel_.descriptor.mode;
        wave.pc = kernel_.descriptor.entry;
        wave.index = index;
        wave.barrier_target = kNeverSignalled;
        wave.scratch_bytes_per_lane = scratch_bytes_;
        wave.scratch.resize(size_t(kLanes) * scratch_bytes_);
        fill_poison(wave.scratch);
        wave.hint = {};
        wave.workgroup = &group;
        wave.observer = observer_;

        const uint32_t first = index * kLanes;
        const uint32_t lanes = std::min<uint32_t>(kLanes, items - first);
        wave.scalar[kExecLo] = lanes == kLanes ? 0xffffffffu : (1u << lanes) - 1;
        wave.scalar[kExecLo + 1] = 0;  // no lanes 32 to 63: clang reads all 64 bits for __ballot
        const uint32_t dimensions = kernel_.descriptor.work_item_id_dimensions;
        for (uint32_t lane = 0; lane < lanes; ++lane) {
            const uint32_t item = first + lane;
            const uint32_t x = item % block[0], y = item / block[0] % block[1],
                           z = item / block[0] / block[1];
            // Dimensions that the kernel does not ask for read zero, as long as
            // every work-group has size 1 there.
            wave.vgpr[0][lane] = x | (dimensions > 1 ? y << 10 : 0) | (dimensions > 2 ? z << 20 : 0);
        }
        start_scalars(wave, id);
    }

    // User SGPRs in the order of the HSA ABI, then the architected work-group and wave ids in TTMP registers.
    void start_scalars(Wave& wave, const uint32_t (&id)[3]) const {
        const KernelDescriptor& descriptor = kernel_.descriptor;
        uint32_t next = 0;
        const auto push64 = [&](uint64_t value) {
            wave.scalar[next++] = uint32_t(value);
            wave.scalar[next++] = uint32_t(value >> 32);
        };
        if (descriptor.wants_dispatch_ptr) push64(reinterpret_cast<uint64_t>(&packet_));
        if (descriptor.wants_kernarg_ptr) push64(packet_.kernarg_address);
        if (descriptor.wants_dispatch_id) push64(0);
        if (descriptor.wants_private_segment_size) wave.scalar[next++] = scratch_bytes_;

        const bool* wants = descriptor.wants_workgroup_id;
        if (wants[0]) wave.scalar[kTtmp0 + 9] = id[0];
        if (wants[1] || wants[2])
            wave.scalar[kTtmp0 + 7] = (wants[1] ? id[1] : 0) | (wants[2] ? id[2] << 16 : 0);
        wave.scalar[kTtmp0 + 8] = wave.index << 25;
    }

    const Program& program_;
    const Kernel& kernel_;
    const LaunchGeometry geometry_;
    std::vector<uint8_t> kernarg_;
    DispatchPacket packet_;
    TrackedRange kernarg_range_, packet_range_;
    uint32_t groups_[3];
    uint32_t lds_bytes_ = 0, scratch_bytes_ = 0;
    Observer* const observer_ = installed_observers();
    const uint64_t seed_ = schedule_seed;

    std::atomic<uint64_t> next_{0};
    std::atomic<bool> stop_{false};
    std::mutex mutex_;  // guards the two below
    std::exception_ptr fault_;
    LaunchResult result_;
};

}  // namespace

uint32_t explicit_argument_bytes(const Kernel& kernel) {
    uint32_t bytes = 0;
    for (const KernelArgument& argument : kernel.arguments)
        if (!argument.hidden()) bytes = std::max(bytes, argument.offset + argument.size);
    return bytes;
}

std::vector<uint8_t> make_kernarg_segment(const Kernel& kernel, const LaunchGeometry& geometry,
                                          const std::vector<uint8_t>& explicit_arguments) {
    // Compilers may load whole aligned 16-byte words of the segment.
    const uint32_t bytes = divide_up(std::max(kernel.descriptor.kernarg_bytes, 1u), kKernargAlignment);
    std::vector<uint8_t> segment(size_t(bytes) * kKernargAlignment);
    std::copy_n(explicit_arguments.begin(),
                std::min<size_t>(explicit_arguments.size(), kernel.descriptor.kernarg_bytes),
                segment.begin());
    for (const KernelArgument& argument : kernel.arguments) {
        if (!argument.hidden()) continue;
        const uint64_t value = hidden_value(argument, geometry);
        std::memcpy(segment.data() + argument.offset, &value, std::min<size_t>(argument.size, sizeof value));
    }
    return segment;
}

void set_schedule_seed(uint64_t seed) { schedule_seed = seed; }

LaunchResult run_kernel(const CodeObject& object, const Kernel& kernel, const LaunchGeometry& geometry,
                        const std::vector<uint8_t>& explicit_arguments) {
    return Launch(object, kernel, geometry, explicit_arguments).run();
}

}  // namespace virtual_gpu
