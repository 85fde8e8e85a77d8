// SPDX-License-Identifier: MIT
// Scalar loads.
#include "core/memory_access.h"
#include "core/tables.h"
#include "core/vector.h"

namespace virtual_gpu {
namespace {

using F = fields::SMEM;

uint32_t base_code(const Instruction& instruction) { return F::sbase.of(instruction.words) * 2; }
int64_t offset_of(const Wave& wave, const Instruction& instruction) {
    return static_cast<int64_t>(wave.scalar[F::soffset.of(instruction.words)]) + instruction.immediate;
}
uint64_t address_of(const Wave& wave, const Instruction& instruction) {
    uint32_t code = base_code(instruction);
    uint64_t base = static_cast<uint64_t>(wave.scalar[code + 1]) << 32 | wave.scalar[code];
    return base + static_cast<uint64_t>(offset_of(wave, instruction));
}

void write_results(Wave& wave, const Instruction& instruction, const uint32_t* values, int dwords) {
    uint32_t first = F::sdata.of(instruction.words);
    if (first == kNull) return;
    for (int d = 0; d < dwords; ++d) write_scalar32(wave, first + d, values[d]);
}

// Dword loads ignore the two lowest address bits.
template <int dwords>
void load(Wave& wave, const Instruction& instruction) {
    uint32_t values[dwords];
    std::memcpy(
        values,
        global_bytes(wave, Access::kLoad, kScalarLane, address_of(wave, instruction) & ~3ull, sizeof values),
        sizeof values);
    write_results(wave, instruction, values, dwords);
}
template <int bytes, Fill fill>
void load_small(Wave& wave, const Instruction& instruction) {
    uint32_t value = load_narrow<bytes, fill>(
        global_bytes(wave, Access::kLoad, kScalarLane, address_of(wave, instruction), bytes), 0);
    write_results(wave, instruction, &value, 1);
}

// Buffer loads clamp to the descriptor: what lies beyond its records reads as 0.
struct ScalarBuffer {
    uint64_t base, bytes;
    ScalarBuffer(const Wave& wave, const Instruction& instruction) {
        const uint32_t* descriptor = &wave.scalar[base_code(instruction)];
        uint64_t stride = descriptor[1] >> 16 & 0x3fff;
        base = static_cast<uint64_t>(descriptor[1] & 0xffff) << 32 | descriptor[0];
        bytes = descriptor[2] * (stride ? stride : 1);
    }
    bool holds(int64_t offset, uint32_t count) const {
        return offset >= 0 && static_cast<uint64_t>(offset) + count <= bytes;
    }
};
template <int dwords>
void load_buffer(Wave& wave, const Instruction& instruction) {
    ScalarBuffer buffer(wave, instruction);
    int64_t offset = offset_of(wave, instruction) & ~3ll;
    uint32_t values[dwords] = {};
    for (int d = 0; d < dwords; ++d)
        if (buffer.holds(offset + 4 * d, 4))
            std::memcpy(&values[d],
                        global_bytes(wave, Access::kLoad, kScalarLane,
                                     (buffer.base & ~3ull) + static_cast<uint64_t>(offset + 4 * d), 4),
                        4);
    write_results(wave, instruction, values, dwords);
}
template <int bytes, Fill fill>
void load_buffer_small(Wave& wave, const Instruction& instruction) {
    ScalarBuffer buffer(wave, instruction);
    int64_t offset = offset_of(wave, instruction);
    uint32_t value = 0;
    if (buffer.holds(offset, bytes))
        value = load_narrow<bytes, fill>(global_bytes(wave, Access::kLoad, kScalarLane,
                                                      buffer.base + static_cast<uint64_t>(offset), bytes),
                                         0);
    write_results(wave, instruction, &value, 1);
}
void nothing(Wave&, const Instruction&) {}

}  // namespace

void add_scalar_memory_rows(RowTable& table) {
    auto add = [&table](Mnemonic mnemonic, Execute execute) {
        table[static_cast<size_t>(mnemonic)] = {execute, nullptr, Issue::kScalar, false};
    };
    using enum Mnemonic;
    add(s_load_b32, load<1>);
    add(s_load_b64, load<2>);
    add(s_load_b96, load<3>);
    add(s_load_b128, load<4>);
    add(s_load_b256, load<8>);
    add(s_load_b512, load<16>);
    add(s_load_u8, load_small<1, Fill::kUnsigned>);
    add(s_load_i8, load_small<1, Fill::kSigned>);
    add(s_load_u16, load_small<2, Fill::kUnsigned>);
    add(s_load_i16, load_small<2, Fill::kSigned>);
    add(s_buffer_load_b32, load_buffer<1>);
    add(s_buffer_load_b64, load_buffer<2>);
    add(s_buffer_load_b96, load_buffer<3>);
    add(s_buffer_load_b128, load_buffer<4>);
    add(s_buffer_load_b256, load_buffer<8>);
    add(s_buffer_load_b512, load_buffer<16>);
    add(s_buffer_load_u8, load_buffer_small<1, Fill::kUnsigned>);
    add(s_buffer_load_i8, load_buffer_small<1, Fill::kSigned>);
    add(s_buffer_load_u16, load_buffer_small<2, Fill::kUnsigned>);
    add(s_buffer_load_i16, load_buffer_small<2, Fill::kSigned>);
    for (Mnemonic mnemonic : {s_dcache_inv, s_prefetch_inst, s_prefetch_inst_pc_rel, s_prefetch_data,
                              s_buffer_prefetch_data, s_prefetch_data_pc_rel})
        table[static_cast<size_t>(mnemonic)] = {nothing, nullptr, Issue::kOther, false};
}

}  // namespace virtual_gpu
