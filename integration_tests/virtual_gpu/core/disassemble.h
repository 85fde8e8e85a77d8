// SPDX-License-Identifier: MIT
// Instructions as text, for people: faults, listings, traces.
#pragma once

#include <string>

#include "core/decode.h"

namespace virtual_gpu {

// "v_add_f32 v1, s2, v[4:5]": mnemonic, operands and modifiers in the spelling of LLVM's assembler, without
// the suffixes that only choose an encoding. Words that are no instruction read ".long 0x...".
std::string disassemble(const Instruction& instruction);

// The same with address and bytes, as faults quote it.
std::string describe(const Instruction& instruction, uint64_t address);

}  // namespace virtual_gpu
