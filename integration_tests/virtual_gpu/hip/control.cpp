// SPDX-License-Identifier: MIT
// What control.h offers of the HIP side.
#include "control.h"

#include <cstdio>
#include <string>

#include "core/decode.h"
#include "core/disassemble.h"
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

VIRTUAL_GPU_API void virtual_gpu_configure(const char* arch, int devices) {
    std::lock_guard lock(runtime().mutex);
    runtime().arch = arch;
    runtime().devices = devices;
    current_device() = 0;
}

VIRTUAL_GPU_API void virtual_gpu_reset_records() {
    reset_findings();
    std::lock_guard lock(runtime().mutex);
    runtime().records.clear();
    runtime().last_fault.clear();
    runtime().failures_to_inject.clear();
    last_error() = hipSuccess;
}

VIRTUAL_GPU_API const char* virtual_gpu_records_json() {
    std::lock_guard lock(runtime().mutex);
    std::string result = "[";
    for (const LaunchRecord& record : runtime().records)
        result += (result.size() > 1 ? "," : "") + json_record(record);
    return keep(result + "]");
}

VIRTUAL_GPU_API const char* virtual_gpu_last_fault() {
    std::lock_guard lock(runtime().mutex);
    return keep(runtime().last_fault);
}

VIRTUAL_GPU_API void virtual_gpu_fail_next(const char* name, int error) {
    std::lock_guard lock(runtime().mutex);
    runtime().failures_to_inject.emplace(name, hipError_t(error));
}

VIRTUAL_GPU_API void virtual_gpu_sanitize(int on) { sanitize(on != 0); }
VIRTUAL_GPU_API const char* virtual_gpu_findings_json() { return keep(findings_json()); }
VIRTUAL_GPU_API const char* virtual_gpu_fault_classes() { return keep(fault_classes()); }

VIRTUAL_GPU_API void virtual_gpu_set_schedule_seed(uint64_t seed) { set_schedule_seed(seed); }

VIRTUAL_GPU_API void virtual_gpu_accept_only(int on) { runtime().accepts_only = on != 0; }

VIRTUAL_GPU_API void virtual_gpu_add_allocation(const void* memory, uint64_t bytes, const char* name) {
    add_allocation(reinterpret_cast<uint64_t>(memory), bytes, name);
}
VIRTUAL_GPU_API int virtual_gpu_remove_allocation(const void* memory) {
    return remove_allocation(reinterpret_cast<uint64_t>(memory));
}

namespace {

bool is_padding(const Instruction& instruction) {
    return !instruction.dwords || instruction.mnemonic == Mnemonic::s_code_end ||
           instruction.mnemonic == Mnemonic::s_nop;
}

// Code from a kernel's entry to the next one's, less the padding behind it.
std::string json_listing(const CodeObject& object, const Kernel& kernel, size_t first, size_t end) {
    const Program& program = object.program();
    size_t last = first;
    for (size_t i = first; i < end; i += std::max<size_t>(program.code[i].dwords, 1))
        if (!is_padding(program.code[i])) last = i;
    std::string text = "{\"kernel\":" + json_string(kernel.name) +
                       ",\"address\":" + std::to_string(object.address_in_file(kernel.descriptor.entry)) +
                       ",\"instructions\":[";
    for (size_t i = first; i <= last; i += std::max<size_t>(program.code[i].dwords, 1))
        text += (i > first ? ",[" : "[") + std::to_string(4 * (i - first)) + "," +
                json_string(disassemble(program.code[i])) + "]";
    return text + "]}";
}

}  // namespace

VIRTUAL_GPU_API const char* virtual_gpu_disassemble(const uint8_t* image, size_t bytes) {
    try {
        const auto object = CodeObject::load(image, bytes, "disassembled");
        const Program& program = object->program();
        std::map<size_t, const Kernel*> by_position;
        for (const auto& [name, kernel] : object->kernels())
            by_position[(kernel.descriptor.entry - program.address) / 4] = &kernel;
        std::string text = "[";
        for (auto kernel = by_position.begin(); kernel != by_position.end(); ++kernel) {
            const auto next = std::next(kernel);
            const size_t end = next == by_position.end() ? program.code.size() : next->first;
            text += (text.size() > 1 ? "," : "") + json_listing(*object, *kernel->second, kernel->first, end);
        }
        return keep(text + "]");
    } catch (const std::exception& error) {
        return keep(std::string("{\"error\":") + json_string(error.what()) + "}");
    }
}
