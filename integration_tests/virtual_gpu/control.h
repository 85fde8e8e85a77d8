// SPDX-License-Identifier: MIT
// The device's own C API, beside HIP's: how Python steers it and looks inside. binding.py declares the same
// functions there; a test compares the two.
#pragma once

#include <stddef.h>
#include <stdint.h>

// Marks an exported entry point. Everything else is hidden: the library's C++ runtime must not meet that of
// the process.
#define VIRTUAL_GPU_API extern "C" __attribute__((visibility("default")))

// --- Which device to be, what was launched, which call to fail. Texts that are returned are the caller's
// until its thread asks for another one.

// Becomes `devices` devices of architecture `arch` (as gcnArchName gives it, features included). Device 0 is
// current.
VIRTUAL_GPU_API void virtual_gpu_configure(const char* arch, int devices);
// Forgets records, findings, the last fault, injected failures and this thread's last error.
VIRTUAL_GPU_API void virtual_gpu_reset_records(void);
// The completed launches since the last reset, a JSON array in order of completion.
VIRTUAL_GPU_API const char* virtual_gpu_records_json(void);
// Why the last call failed, in words; empty when no call has failed since the last reset.
VIRTUAL_GPU_API const char* virtual_gpu_last_fault(void);
// The next call of the HIP function `name` does nothing and returns `error`. Calls add up.
VIRTUAL_GPU_API void virtual_gpu_fail_next(const char* name, int error);
// How launches interleave their waves; 0: in order.
VIRTUAL_GPU_API void virtual_gpu_set_schedule_seed(uint64_t seed);
// From now on launches are checked and then neither run nor recorded; 0 ends that. For measuring hosts.
VIRTUAL_GPU_API void virtual_gpu_accept_only(int on);
// Host memory that HIP did not allocate, made accessible to kernels. Removing tells whether it was known.
VIRTUAL_GPU_API void virtual_gpu_add_allocation(const void* memory, uint64_t bytes, const char* name);
VIRTUAL_GPU_API int virtual_gpu_remove_allocation(const void* memory);

// --- torch's tensors

// Tracks torch's tensor storage from now on. Returns the number of redirected imports: 0 when torch is not
// loaded. Tensors that exist already stay unknown. Calling it again is harmless.
VIRTUAL_GPU_API int virtual_gpu_watch_torch(void);
// The storage that torch holds now becomes the level that the peak counts from.
VIRTUAL_GPU_API void virtual_gpu_reset_torch_peak(void);
// The most bytes of storage above that level at any time since.
VIRTUAL_GPU_API int64_t virtual_gpu_torch_peak_bytes(void);

// --- Sanitizer

// Starts or stops the sanitizer.
VIRTUAL_GPU_API void virtual_gpu_sanitize(int on);
// What it found since the last reset, as JSON.
VIRTUAL_GPU_API const char* virtual_gpu_findings_json(void);
// The classes that it tells apart, separated by spaces.
VIRTUAL_GPU_API const char* virtual_gpu_fault_classes(void);

// --- Instructions

extern "C" struct virtual_gpu_registers {
    uint32_t vgpr[256][32];
    uint32_t scalar[128];
    uint32_t scc;
    uint32_t mode;
    uint32_t lds_bytes;
    uint8_t lds[65536];
};
// Executes the instructions in `code` (without s_endpgm) on a caller-owned register state: the entry point of
// the instruction tests. One wave is a work-group of its own; memory is what add_allocation knows; there is
// no scratch. Returns 0, or 1 with the reason in `error`.
VIRTUAL_GPU_API int virtual_gpu_execute(const uint8_t* code, size_t bytes, virtual_gpu_registers* registers,
                                        char* error, size_t error_bytes);
// Newline-separated "ENCODING mnemonic" of everything the executor implements.
VIRTUAL_GPU_API const char* virtual_gpu_implemented(void);

extern "C" struct virtual_gpu_register_use {
    uint8_t vgpr_read[256], vgpr_written[256], vgpr_address[256];
    uint8_t scalar_read[129], scalar_written[129], scalar_address[129];
    uint8_t kind, counters, wait[7];
};
// The use of the first instruction in `code`, one byte per register and role. Returns 0 when these bytes are
// no instruction that the device knows.
VIRTUAL_GPU_API int virtual_gpu_register_use_of(const uint8_t* code, size_t bytes,
                                                virtual_gpu_register_use* use);

// The kernels of a code object or offload bundle as JSON: [{"kernel", "address", "instructions": [[offset
// from the kernel's entry, text], ...]}, ...], in the order of their code. `address` is the entry's in the
// ELF file. Where the image cannot be loaded: {"error": why}.
VIRTUAL_GPU_API const char* virtual_gpu_disassemble(const uint8_t* image, size_t bytes);

// --- A look at one wave

enum virtual_gpu_watch_event {
    virtual_gpu_watch_before,  // an instruction is executed next
    virtual_gpu_watch_access,  // it accesses memory, one lane after another
    virtual_gpu_watch_after,   // it has been executed
    virtual_gpu_watch_end,     // the launch has ended; `text` is the fault, or empty
};
extern "C" struct virtual_gpu_watched {
    uint32_t event;
    uint64_t offset;         // of the instruction, from the kernel's entry
    const char* text;        // the instruction
    const uint32_t* vgpr;    // [256][32]
    const uint32_t* scalar;  // [128], indexed by the ISA's operand codes
    uint32_t scc, mode;
    const uint8_t* lds;
    uint32_t lds_bytes;
    // Of an access. Spaces: 0 global, 1 LDS, 2 scratch. Lane -1: the whole wave.
    uint32_t space, is_store, bytes;
    int32_t lane;
    uint64_t address;
};
typedef void (*virtual_gpu_watcher)(const virtual_gpu_watched*);
// Calls `watcher` with what one wave of every launch of `kernel` does from now on. One watch at a time.
VIRTUAL_GPU_API void virtual_gpu_watch(const char* kernel, uint32_t x, uint32_t y, uint32_t z, uint32_t wave,
                                       virtual_gpu_watcher watcher);
VIRTUAL_GPU_API void virtual_gpu_watch_stop(void);

// --- Traces of launches, and the timing model that replays them

// Traces every launch from now on, and forgets earlier traces. The first `groups` work-groups of each launch
// keep what each of their waves executed.
VIRTUAL_GPU_API void virtual_gpu_trace_start(uint32_t groups);
// Ends tracing; the traces stay.
VIRTUAL_GPU_API void virtual_gpu_trace_stop(void);
// The traced launches in order, a JSON array: shape, executed instructions by mnemonic, data moved.
VIRTUAL_GPU_API const char* virtual_gpu_trace_json(void);

// The model's constants, in cycles; speed/card.py has their values, meanings and sources.
// clang-format off
#define VIRTUAL_GPU_TIMING_PARAMETERS(X) \
    X(matrix_issue)                      \
    X(wide_matrix_issue)                 \
    X(matrix_latency)                    \
    X(wide_matrix_latency)               \
    X(transcendental_unit)               \
    X(scalar_transcendental_unit)        \
    X(transcendental_latency)            \
    X(matrix_waits_for_transcendental)   \
    X(matrix_entry)                      \
    X(vector_latency)                    \
    X(wide_shift_issue)                  \
    X(wide_multiply_issue)               \
    X(vector_pipeline)                   \
    X(vector_queue)                      \
    X(matrix_drain)                      \
    X(vector_drain)                      \
    X(scalar_latency)                    \
    X(scalar_drain)                      \
    X(lds_latency)                       \
    X(lds_dword_latency)                 \
    X(lds_pass_cycles)                   \
    X(memory_latency)                    \
    X(memory_sector_cycles)              \
    X(scalar_memory_latency)             \
    X(branch_latency)                    \
    X(barrier_latency)                   \
    X(launch_interval)
// Its results. cycles: until all work-groups have ended. *_cycles: of work, summed over the WGP's four SIMDs
// or two CUs. idle_*: cycles of the SIMDs' vector pipes without work, by what the SIMD's oldest wave was
// waiting for; idle_transcendental, idle_operands and idle_entry by what an issued instruction waited for in
// the pipe.
#define VIRTUAL_GPU_TIMING_RESULTS(X) \
    X(cycles)                         \
    X(matrix_cycles)                  \
    X(vector_cycles)                  \
    X(lds_cycles)                     \
    X(memory_cycles)                  \
    X(idle_registers)                 \
    X(idle_transcendental)            \
    X(idle_operands)                  \
    X(idle_entry)                     \
    X(idle_counters)                  \
    X(idle_barrier)                   \
    X(idle_other)                     \
    X(idle_empty)
// clang-format on
#define VIRTUAL_GPU_UINT32_FIELD(name) uint32_t name;
#define VIRTUAL_GPU_UINT64_FIELD(name) uint64_t name;
extern "C" struct virtual_gpu_timing_parameters {
    VIRTUAL_GPU_TIMING_PARAMETERS(VIRTUAL_GPU_UINT32_FIELD)
};
extern "C" struct virtual_gpu_timing_result {
    VIRTUAL_GPU_TIMING_RESULTS(VIRTUAL_GPU_UINT64_FIELD)
};
// The fields of the two structs in order, separated by spaces: callers fill them by name.
VIRTUAL_GPU_API const char* virtual_gpu_timing_parameter_names(void);
VIRTUAL_GPU_API const char* virtual_gpu_timing_result_names(void);
// Models `total` work-groups, at most `resident` at a time, that repeat the recorded ones of a traced launch.
// Returns 0, or 1 when the launch has no recorded work-group or its waves can never end.
VIRTUAL_GPU_API int virtual_gpu_trace_simulate(uint32_t launch, uint32_t resident, uint32_t total,
                                               const virtual_gpu_timing_parameters* parameters,
                                               virtual_gpu_timing_result* result);
// The same for one work-group alone, with a step for each instruction of the waves on the WGP's first SIMD,
// in order of issue: the wave in its work-group, the instruction's dword position, the cycle of its issue,
// and for vector instructions the first cycle in which it executes, 0 for others.
using virtual_gpu_schedule_step = void (*)(uint32_t wave, uint32_t instruction, uint64_t issued,
                                           uint64_t executed);
VIRTUAL_GPU_API int virtual_gpu_trace_schedule(uint32_t launch,
                                               const virtual_gpu_timing_parameters* parameters,
                                               virtual_gpu_schedule_step step);
