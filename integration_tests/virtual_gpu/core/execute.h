// SPDX-License-Identifier: MIT
// Decoded programs and the interpreter loop. Knows waves and memory; knows neither HIP nor ELF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/wave.h"

namespace virtual_gpu {

class Program;

// Prepares a code object's .text for execution. `text` is the loaded image of the section at guest address
// `address` (the same number as the host pointer). Unknown words are no error until a wave reaches them.
std::shared_ptr<const Program> decode_program(const uint8_t* text, size_t bytes, uint64_t address);

enum class Stop {
    kEnd,      // s_endpgm
    kBarrier,  // at an s_barrier_wait whose barrier is not complete; call again after other waves ran
    kBudget,   // `max_instructions` executed
};

// Runs one wave until it stops. Throws KernelFault or NotModelled, with the wave's pc at the instruction; the
// text has the instruction, its address and bytes (the caller adds kernel, work-group and wave).
Stop run_wave(Wave& wave, const Program& program, uint64_t max_instructions);

// Executed instructions by class, for benchmarks.
struct InstructionCounts {
    uint64_t matrix = 0, transcendental = 0, vector = 0, scalar = 0, lds = 0, memory = 0, other = 0;
};
// Its members and their names, in the order of Issue.
struct InstructionCounter {
    const char* name;
    uint64_t InstructionCounts::*count;
};
constexpr InstructionCounter kInstructionCounters[] = {
    {"matrix", &InstructionCounts::matrix}, {"transcendental", &InstructionCounts::transcendental},
    {"vector", &InstructionCounts::vector}, {"scalar", &InstructionCounts::scalar},
    {"lds", &InstructionCounts::lds},       {"memory", &InstructionCounts::memory},
    {"other", &InstructionCounts::other},
};
// This thread's counts since it started; the caller takes differences.
InstructionCounts& thread_instruction_counts();

}  // namespace virtual_gpu
