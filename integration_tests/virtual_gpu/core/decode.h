// SPDX-License-Identifier: MIT
// Decoded instructions: operands resolved once, so that execution is a call through the instruction's row.
#pragma once

#include <array>
#include <deque>
#include <vector>

#include "core/execute.h"
#include "core/isa.h"

namespace virtual_gpu {

struct Instruction;
struct Lanes;
struct LaneResults;

enum class Issue : uint8_t { kMatrix, kTranscendental, kVector, kScalar, kLds, kMemory, kOther };
constexpr int kIssueClasses = 7;

using Execute = void (*)(Wave&, const Instruction&);
using LaneLoop = void (*)(const Lanes&, LaneResults&);

// What one mnemonic does. Rows are written in instructions/*.cpp and shared by all encodings of the mnemonic.
struct Row {
    Execute execute = nullptr;
    LaneLoop lanes = nullptr;  // vector ALU rows: the effect on all 32 lanes
    Issue issue = Issue::kOther;
    bool saturates = false;  // an integer row that honours CLAMP
};
using RowTable = std::array<Row, kMnemonics>;
const RowTable& rows();

// A source operand.
struct Source {
    enum Kind : uint8_t { kNone, kVgpr, kScalar, kConstant, kScc, kVccz, kExecz, kAperture32 };
    Kind kind = kNone;
    Format format = Format::Absent;
    uint8_t shift = 0;          // right shift that brings the selected half or byte down
    uint16_t index = 0;         // VGPR number or scalar operand code
    uint32_t constant[2] = {};  // low and high dword
};

// Which lane each lane of a DPP source reads.
struct LanePermutation {
    uint8_t lane[kLanes];
    uint32_t in_bounds;  // lanes whose source exists
    uint32_t enabled;    // row and bank mask
    bool zero_when_invalid;
    bool fetch_inactive;
};

enum class Control : uint8_t { kNone, kEnd, kBarrierWait };

struct Instruction {
    Execute execute;
    const Row* row;
    Mnemonic mnemonic;
    Encoding encoding;
    Control control = Control::kNone;
    Issue issue = Issue::kOther;
    uint8_t dwords = 0;

    Format destination_format = Format::Absent;
    uint8_t destination_shift = 0;        // bit position of a 16-bit or 8-bit result in its VGPR
    uint16_t destination = 0;             // VGPR number or scalar operand code
    uint16_t scalar_destination = kNull;  // lane mask result: carry, comparison
    uint16_t mask_source = kVccLo;        // lane mask input: carry, select
    Source source[3];

    bool plain = true;  // no source needs more than a broadcast
    bool clamp = false;
    uint8_t neg = 0, abs = 0, op_sel = 0, op_sel_hi = 0, neg_hi = 0, omod = 0;
    uint32_t literal = 0;
    int32_t immediate = 0;  // SIMM16, or the signed 24-bit offset of memory instructions
    const LanePermutation* permutation = nullptr;
    const Instruction* second = nullptr;  // the Y half of a VOPD pair

    uint32_t words[4] = {};
};

// One entry per dword position, so that any jump target is decoded.
class Program {
  public:
    uint64_t address = 0;
    std::vector<Instruction> code;
    std::deque<LanePermutation> permutations;
    std::deque<Instruction> second_halves;
};

}  // namespace virtual_gpu
