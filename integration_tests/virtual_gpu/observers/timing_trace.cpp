// SPDX-License-Identifier: MIT
#include "observers/timing_trace.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "control.h"
#include "core/code_object.h"

namespace virtual_gpu {
namespace {

// 32 banks of 4 bytes serve one CU's half of a WGP's LDS (RDNA4 ISA, 12.1): 128 bytes a pass.
constexpr uint32_t kBanks = 32, kPassBytes = 4 * kBanks;

// Passes for accesses of equal width, at most one a lane. Lanes go in groups that together ask for 128 bytes;
// lanes of a group that want the same dword share it, other dwords of one bank take one pass each.
LdsPasses passes_of_equal(const std::vector<MemoryAccess>& accesses) {
    const uint32_t width = std::max(accesses.front().bytes, 4u);
    const uint32_t lanes = std::min<uint32_t>(kPassBytes / width, kLanes);
    uint32_t all = 0, ideal = 0;
    for (uint32_t first = 0; first < kLanes; first += lanes) {
        std::array<std::vector<uint64_t>, kBanks> dwords;
        bool any = false;
        for (const MemoryAccess& access : accesses) {
            if (access.lane < int(first) || access.lane >= int(first + lanes)) continue;
            any = true;
            for (uint64_t dword = access.address / 4; dword <= (access.address + access.bytes - 1) / 4;
                 ++dword) {
                std::vector<uint64_t>& bank = dwords[dword % kBanks];
                if (std::find(bank.begin(), bank.end(), dword) == bank.end()) bank.push_back(dword);
            }
        }
        if (!any) continue;
        size_t worst = 1;
        for (const auto& bank : dwords) worst = std::max(worst, bank.size());
        all += static_cast<uint32_t>(worst);
        ++ideal;
    }
    return {all, all - ideal};
}

}  // namespace

LdsPasses lds_passes(const std::vector<MemoryAccess>& accesses) {
    // Two-address instructions access twice from each lane; the halves go one after the other.
    std::vector<MemoryAccess> first, second;
    for (const MemoryAccess& access : accesses)
        (first.empty() || first.back().lane != access.lane ? first : second).push_back(access);
    LdsPasses result{0, 0};
    for (const auto& half : {first, second}) {
        if (half.empty()) continue;
        const LdsPasses passes = passes_of_equal(half);
        result.all += passes.all, result.conflicts += passes.conflicts;
    }
    return result;
}

void TraceRecorder::launch_begins(const ObservedLaunch& launch) {
    auto trace = std::make_unique<LaunchTrace>();
    trace->kernel = launch.kernel.name;
    trace->workgroups = launch.workgroups[0] * launch.workgroups[1] * launch.workgroups[2];
    trace->waves_per_workgroup = launch.waves_per_workgroup;
    trace->lds_bytes = launch.lds_bytes;
    trace->vgprs = launch.kernel.vgprs;
    trace->spills = launch.kernel.vgpr_spills + launch.kernel.sgpr_spills;
    trace->workgroup_processor_mode = launch.kernel.descriptor.workgroup_processor_mode;
    program_address_ = launch.program.address;
    launches.push_back(std::move(trace));
}

void TraceRecorder::workgroup_begins(Workgroup& group, Wave* const*) {
    LaunchTrace& trace = *launches.back();
    keeps_steps_ = trace.groups.size() < groups_;
    if (keeps_steps_) trace.groups.emplace_back(group.waves);
}

void TraceRecorder::access(Wave&, const MemoryAccess& access) { accesses_.push_back(access); }

void TraceRecorder::after(Wave& wave, const Instruction& instruction, uint64_t at) {
    LaunchTrace& trace = *launches.back();
    const auto position = static_cast<uint32_t>((at - program_address_) / 4);
    auto [found, is_new] = trace.instructions.try_emplace(position);
    TracedInstruction& traced = found->second;
    if (is_new) traced = {instruction.mnemonic, register_use(instruction), instruction.immediate};
    ++traced.executed;

    uint32_t data_cycles = 0;
    if (!accesses_.empty() && accesses_.front().space == Space::kLds) {
        const LdsPasses passes = lds_passes(accesses_);
        data_cycles = passes.all;
        trace.lds_cycles += passes.all;
        trace.lds_conflict_cycles += passes.conflicts;
        for (const MemoryAccess& access : accesses_) trace.lds_bytes_moved += access.bytes;
    } else if (!accesses_.empty()) {
        std::vector<uint64_t> sectors;
        uint64_t bytes = 0;
        for (const MemoryAccess& access : accesses_) {
            bytes += access.bytes;
            for (uint64_t sector = access.address / kSectorBytes;
                 sector <= (access.address + access.bytes - 1) / kSectorBytes; ++sector)
                if (sectors.empty() || sectors.back() != sector) sectors.push_back(sector);
        }
        std::sort(sectors.begin(), sectors.end());
        sectors.erase(std::unique(sectors.begin(), sectors.end()), sectors.end());
        data_cycles = static_cast<uint32_t>(sectors.size());
        const bool reads = accesses_.front().kind != Access::kStore;
        if (traced.use.kind != Kind::kScalarMemory) {
            (reads ? trace.lane_bytes_read : trace.lane_bytes_written) += bytes;
            (reads ? trace.sector_requests_read : trace.sector_requests_written) += sectors.size();
        }
        (reads ? trace.sectors_read : trace.sectors_written).insert(sectors.begin(), sectors.end());
    } else if (traced.use.kind == Kind::kLdsMove) {
        data_cycles = 1;
        ++trace.lds_cycles;
    }
    accesses_.clear();
    if (keeps_steps_) trace.groups.back()[wave.index].push_back({position, data_cycles});
}

namespace {
std::unique_ptr<TraceRecorder> recorder;
}  // namespace
const TraceRecorder* current_recorder() { return recorder.get(); }

}  // namespace virtual_gpu

using namespace virtual_gpu;

namespace {

std::string json_of(const LaunchTrace& trace) {
    std::string text = "{\"kernel\":\"" + trace.kernel + "\"";
    const auto add = [&](const char* name, uint64_t value) {
        text += std::string(",\"") + name + "\":" + std::to_string(value);
    };
    add("workgroups", trace.workgroups);
    add("waves_per_workgroup", trace.waves_per_workgroup);
    add("lds_bytes", trace.lds_bytes);
    add("vgprs", trace.vgprs);
    add("spills", trace.spills);
    add("workgroup_processor_mode", trace.workgroup_processor_mode);
    add("lds_cycles", trace.lds_cycles);
    add("lds_conflict_cycles", trace.lds_conflict_cycles);
    add("lds_bytes_moved", trace.lds_bytes_moved);
    add("lane_bytes_read", trace.lane_bytes_read);
    add("lane_bytes_written", trace.lane_bytes_written);
    add("requested_bytes_read", trace.sector_requests_read * kSectorBytes);
    add("requested_bytes_written", trace.sector_requests_written * kSectorBytes);
    add("distinct_bytes_read", trace.sectors_read.size() * kSectorBytes);
    add("distinct_bytes_written", trace.sectors_written.size() * kSectorBytes);
    std::map<std::string_view, uint64_t> executed;
    for (const auto& [position, traced] : trace.instructions)
        executed[mnemonic_name(traced.mnemonic)] += traced.executed;
    text += ",\"executed\":{";
    for (const char* separator = ""; const auto& [name, count] : executed) {
        text += separator + ("\"" + std::string(name) + "\":") + std::to_string(count);
        separator = ",";
    }
    return text + "}}";
}

}  // namespace

VIRTUAL_GPU_API void virtual_gpu_trace_start(uint32_t groups) {
    if (recorder) remove_observer(*recorder);
    recorder = std::make_unique<TraceRecorder>(groups);
    add_observer(*recorder);
}
VIRTUAL_GPU_API void virtual_gpu_trace_stop() {
    if (recorder) remove_observer(*recorder);
}

VIRTUAL_GPU_API const char* virtual_gpu_trace_json() {
    static std::string text;
    text = "[";
    if (recorder)
        for (const auto& launch : recorder->launches) text += (text.size() > 1 ? "," : "") + json_of(*launch);
    text += "]";
    return text.c_str();
}
