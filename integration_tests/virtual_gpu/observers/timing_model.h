// SPDX-License-Identifier: MIT
// How long one WGP takes for work-groups whose instructions are known: a cycle-by-cycle model of issue,
// dependences, counters, barriers and data paths. It executes nothing. docs/performance.md says what is and
// is not in it.
#pragma once

#include <cstdint>

#include "core/export.h"

// In cycles; integration_tests/speed/card.py has the values and their sources.
extern "C" struct virtual_gpu_timing_parameters {
    uint32_t matrix_issue,
        wide_matrix_issue;  // a SIMD's cycles for one matrix instruction (wide: 16-bit operands)
    uint32_t matrix_latency, wide_matrix_latency;  // issue to dependent issue, as all latencies
    uint32_t transcendental_issue, transcendental_latency;
    uint32_t vector_latency, scalar_latency;
    uint32_t lds_latency;           // of an LDS instruction that needs no pass over the banks
    uint32_t lds_pass_cycles;       // a CU's LDS, per pass over its banks
    uint32_t access_vector_slots;   // of the SIMD's vector unit, per LDS or vector memory instruction
    uint32_t memory_latency;        // of a vector memory instruction that touches no sector
    uint32_t memory_sector_cycles;  // a CU's vector memory path, per 64-byte sector
    uint32_t scalar_memory_latency;
    uint32_t branch_latency;   // to the wave's next instruction
    uint32_t barrier_latency;  // last signal to the end of the wait
    uint32_t launch_interval;  // between the work-groups that start on an empty WGP
};

extern "C" struct virtual_gpu_timing_result {
    uint64_t cycles;  // until all work-groups have ended
    // Cycles of work, summed over the WGP's four SIMDs or two CUs.
    uint64_t matrix_cycles, vector_cycles, lds_cycles, memory_cycles;
    // SIMD-cycles without vector work, by what the SIMD's oldest wave was waiting for.
    uint64_t idle_registers, idle_counters, idle_barrier, idle_other, idle_empty;
};

// Models `total` work-groups, at most `resident` at a time, that repeat the recorded ones of a traced launch.
// Returns 0, or 1 when the launch has no recorded work-group or its waves can never end.
VIRTUAL_GPU_API int virtual_gpu_trace_simulate(uint32_t launch, uint32_t resident, uint32_t total,
                                               const virtual_gpu_timing_parameters* parameters,
                                               virtual_gpu_timing_result* result);
