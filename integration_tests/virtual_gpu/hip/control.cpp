// SPDX-License-Identifier: MIT
// What tests ask of the device beyond HIP: which device to be, what was launched, which call to fail.
#include <cstdio>
#include <string>

#include "core/json.h"
#include "core/memory.h"
#include "hip/hip_state.h"
#include "observers/sanitizer/sanitizer.h"

using namespace virtual_gpu;

namespace {

// The caller reads the text before its thread asks for another one.
const char* keep(std::string text) {
    thread_local std::string kept;
    kept = std::move(text);
    return kept.c_str();
}

std::string json_triple(const uint32_t (&values)[3]) {
    return "[" + std::to_string(values[0]) + "," + std::to_string(values[1]) + "," +
           std::to_string(values[2]) + "]";
}

std::string json_counts(const InstructionCounts& counts) {
    std::string result;
    for (const InstructionCounter& counter : kInstructionCounters)
        result += (result.empty() ? "{\"" : ",\"") + std::string(counter.name) +
                  "\":" + std::to_string(counts.*counter.count);
    return result + "}";
}

std::string json_record(const LaunchRecord& record) {
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.9f", record.result.seconds);
    return "{\"kernel\":" + json_string(record.kernel) + ",\"grid\":" + json_triple(record.grid) +
           ",\"block\":" + json_triple(record.block) +
           ",\"dynamic_lds_bytes\":" + std::to_string(record.dynamic_lds_bytes) +
           ",\"stream\":" + std::to_string(record.stream) + ",\"device\":" + std::to_string(record.device) +
           ",\"uneven_barriers\":" + (record.result.uneven_barriers ? "true" : "false") +
           ",\"instructions\":" + json_counts(record.result.instructions) + ",\"seconds\":" + seconds + "}";
}

}  // namespace

// Becomes `devices` devices of architecture `arch` (as gcnArchName gives
// it, features included). Device 0 is current.
VIRTUAL_GPU_API void virtual_gpu_configure(const char* arch, int devices) {
    std::lock_guard lock(runtime().mutex);
    runtime().arch = arch;
    runtime().devices = devices;
    current_device() = 0;
}

// Forgets records, findings, the last fault, injected failures and this thread's last error.
VIRTUAL_GPU_API void virtual_gpu_reset_records() {
    reset_findings();
    std::lock_guard lock(runtime().mutex);
    runtime().records.clear();
    runtime().last_fault.clear();
    runtime().failures_to_inject.clear();
    last_error() = hipSuccess;
}

// The completed launches since the last reset, a JSON array in order of completion.
VIRTUAL_GPU_API const char* virtual_gpu_records_json() {
    std::lock_guard lock(runtime().mutex);
    std::string result = "[";
    for (const LaunchRecord& record : runtime().records)
        result += (result.size() > 1 ? "," : "") + json_record(record);
    return keep(result + "]");
}

// Why the last call failed, in words; empty when no call has failed since the last reset.
VIRTUAL_GPU_API const char* virtual_gpu_last_fault() {
    std::lock_guard lock(runtime().mutex);
    return keep(runtime().last_fault);
}

// The next call of the HIP function `name` does nothing and returns `error`. Calls add up.
VIRTUAL_GPU_API void virtual_gpu_fail_next(const char* name, int error) {
    std::lock_guard lock(runtime().mutex);
    runtime().failures_to_inject.emplace(name, hipError_t(error));
}

// Starts or stops the sanitizer.
VIRTUAL_GPU_API void virtual_gpu_sanitize(int on) { sanitize(on != 0); }
// What it found since the last reset, as JSON.
VIRTUAL_GPU_API const char* virtual_gpu_findings_json() { return keep(findings_json()); }
// The classes that it tells apart, separated by spaces.
VIRTUAL_GPU_API const char* virtual_gpu_fault_classes() { return keep(fault_classes()); }

// How launches interleave their waves; 0: in order.
VIRTUAL_GPU_API void virtual_gpu_set_schedule_seed(uint64_t seed) { set_schedule_seed(seed); }

// From now on launches are checked and then neither run nor recorded; 0 ends that. For measuring hosts.
VIRTUAL_GPU_API void virtual_gpu_accept_only(int on) { runtime().accepts_only = on != 0; }

// Host memory that HIP did not allocate, made accessible to kernels.
VIRTUAL_GPU_API void virtual_gpu_add_allocation(const void* memory, uint64_t bytes, const char* name) {
    add_allocation(reinterpret_cast<uint64_t>(memory), bytes, name);
}
VIRTUAL_GPU_API int virtual_gpu_remove_allocation(const void* memory) {
    return remove_allocation(reinterpret_cast<uint64_t>(memory));
}
