// SPDX-License-Identifier: MIT
#include "core/vector.h"

#include <cstring>

#include "core/faults.h"

namespace virtual_gpu {
namespace {

using LaneArray = uint32_t[kLanes];

void broadcast(uint32_t* out, uint32_t value) {
    for (int lane = 0; lane < kLanes; ++lane) out[lane] = value;
}

uint32_t scalar_dword(const Wave& wave, const Source& source, int dword) {
    switch (source.kind) {
        case Source::kScalar: {
            uint32_t code = source.index + (source.index == kNull ? 0 : dword);
            return code < kScalars ? wave.scalar[code] : 0;
        }
        case Source::kConstant:
            return source.constant[dword];
        case Source::kScc:
            return dword ? 0 : wave.scc;
        case Source::kVccz:
            return dword ? 0 : wave.scalar[kVccLo] == 0;
        case Source::kExecz:
            return dword ? 0 : wave.scalar[kExecLo] == 0;
        case Source::kAperture32:
            throw NotModelled("an aperture is readable only as a 64-bit operand");
        default:
            return 0;
    }
}

// MODE.FP_DENORM: bit 0 keeps denormal inputs, bit 1 denormal results; f32 in [5:4], f64 and f16 in [7:6].
uint32_t denormal_bits(uint32_t mode, Format format) {
    switch (format) {
        case Format::F32:
            return mode >> 4 & 3;
        case Format::F16:
        case Format::PK2_F16:
        case Format::F64:
            return mode >> 6 & 3;
        default:
            return 3;
    }
}

uint32_t flush_half(uint32_t bits) { return (bits & 0x7c00) == 0 ? bits & 0x8000 : bits; }

void flush_denormals(Format format, uint32_t* low, uint32_t* high) {
    for (int lane = 0; lane < kLanes; ++lane) {
        uint32_t bits = low[lane];
        if (format == Format::F32) {
            low[lane] = (bits & 0x7f800000) == 0 ? bits & 0x80000000 : bits;
        } else if (format == Format::F64) {
            bool denormal = (high[lane] & 0x7ff00000) == 0;
            low[lane] = denormal ? 0 : bits;
            high[lane] = denormal ? high[lane] & 0x80000000 : high[lane];
        } else {
            low[lane] = flush_half(bits & 0xffff) | flush_half(bits >> 16) << 16;
        }
    }
}

void apply_signs(Format format, bool abs, bool neg, uint32_t* low, uint32_t* high) {
    uint32_t sign = format_bits(format) == 16 ? 0x8000 : 0x80000000;
    uint32_t* dword = format_bits(format) == 64 ? high : low;
    uint32_t clear = abs ? sign : 0, toggle = neg ? sign : 0;
    for (int lane = 0; lane < kLanes; ++lane) dword[lane] = (dword[lane] & ~clear) ^ toggle;
}

// op_sel picks the half that becomes element 0, op_sel_hi the one that becomes element 1.
void select_pair(const Instruction& instruction, int i, uint32_t* values) {
    bool low_from_high = instruction.op_sel >> i & 1, high_from_high = instruction.op_sel_hi >> i & 1;
    bool is_float =
        instruction.source[i].format == Format::PK2_F16 || instruction.source[i].format == Format::PK2_BF16;
    uint32_t toggle = 0;
    if (is_float) toggle = (instruction.neg >> i & 1) * 0x8000u | (instruction.neg_hi >> i & 1) * 0x80000000u;
    for (int lane = 0; lane < kLanes; ++lane) {
        uint32_t bits = values[lane];
        uint32_t low = low_from_high ? bits >> 16 : bits & 0xffff;
        uint32_t high = high_from_high ? bits >> 16 : bits & 0xffff;
        values[lane] = (low | high << 16) ^ toggle;
    }
}

// Moves values between lanes; returns the lanes that may be written.
uint32_t permute(const LanePermutation& permutation, uint32_t exec, uint32_t* values) {
    LaneArray from;
    std::memcpy(from, values, sizeof from);
    uint32_t readable = permutation.fetch_inactive ? ~0u : exec, writable = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
        uint32_t source = permutation.lane[lane];
        bool valid = (permutation.in_bounds >> lane & 1) && (readable >> source & 1);
        values[lane] = valid ? from[source] : 0;
        writable |= static_cast<uint32_t>(valid || permutation.zero_when_invalid) << lane;
    }
    return writable & permutation.enabled;
}

struct Prepared {
    Lanes lanes;
    uint32_t write_mask;
    alignas(64) LaneArray source[3][kMaxDwords];
    alignas(64) LaneArray old;
};

// The rows of mixed-precision FMA take 32-bit patterns and apply the signs after picking an element.
bool rows_apply_signs(const Instruction& instruction, Format format) {
    return instruction.encoding == Encoding::VOP3P && format == Format::B32;
}

void prepare_source(const Wave& wave, const Instruction& instruction, int i, bool flush, Prepared& out) {
    const Source& source = instruction.source[i];
    Format format = source.format;
    int dwords = format_bits(format) == 64 ? 2 : 1;
    bool copy = !instruction.plain || flush;
    for (int d = 0; d < dwords; ++d) {
        uint32_t* buffer = out.source[i][d];
        out.lanes.source[i][d] = buffer;
        if (source.kind != Source::kVgpr)
            broadcast(buffer, scalar_dword(wave, source, d));
        else if (copy)
            std::memcpy(buffer, wave.vgpr[checked_vgpr(source.index + d)], sizeof(LaneArray));
        else
            out.lanes.source[i][d] = wave.vgpr[checked_vgpr(source.index + d)];
        if (i == 0 && instruction.permutation)
            out.write_mask &= permute(*instruction.permutation, wave.scalar[kExecLo], buffer);
    }
    if (!copy) return;
    uint32_t *low = out.source[i][0], *high = out.source[i][1];
    if (source.shift)
        for (int lane = 0; lane < kLanes; ++lane) low[lane] >>= source.shift;
    bool abs = instruction.abs >> i & 1, neg = instruction.neg >> i & 1;
    if (instruction.encoding == Encoding::VOP3P && is_packed_pair(format))
        select_pair(instruction, i, low);
    else if ((abs || neg) && takes_sign_modifiers(format) && !rows_apply_signs(instruction, format))
        apply_signs(format, abs, neg, low, high);
    if (flush) flush_denormals(format, low, high);
}

void prepare(const Wave& wave, const Instruction& instruction, Prepared& out) {
    uint32_t mode = wave.mode;
    out.write_mask = wave.scalar[kExecLo];
    for (int i = 0; i < 3; ++i)
        if (instruction.source[i].kind != Source::kNone)
            prepare_source(wave, instruction, i, !(denormal_bits(mode, instruction.source[i].format) & 1),
                           out);
    int dwords = format_bits(instruction.destination_format) == 64 ? 2 : 1;
    for (int d = 0; d < dwords; ++d) out.lanes.old[d] = wave.vgpr[checked_vgpr(instruction.destination + d)];
    if (instruction.destination_shift) {
        for (int lane = 0; lane < kLanes; ++lane)
            out.old[lane] = out.lanes.old[0][lane] >> instruction.destination_shift;
        out.lanes.old[0] = out.old;
    }
    out.lanes.mask = wave.scalar[instruction.mask_source];
    out.lanes.literal = instruction.literal;
    out.lanes.clamp = instruction.clamp;
    out.lanes.clamp_overflow = mode >> 23 & 1;
    out.lanes.neg = instruction.neg;
    out.lanes.neg_hi = instruction.neg_hi;
    out.lanes.op_sel = instruction.op_sel;
    out.lanes.op_sel_hi = instruction.op_sel_hi;
}

float clamp_unit(float value) { return value > 0.0f ? (value < 1.0f ? value : 1.0f) : 0.0f; }

uint32_t clamp_half(uint32_t bits) { return float_to_half(clamp_unit(half_to_float(bits & 0xffff)), false); }

// CLAMP of float results: to [0, 1], NaN to 0.
void clamp_results(Format format, uint32_t* low, uint32_t* high) {
    for (int lane = 0; lane < kLanes; ++lane) {
        switch (format) {
            case Format::F32:
                low[lane] = as_bits(clamp_unit(as_float(low[lane])));
                break;
            case Format::F16:
                low[lane] = clamp_half(low[lane]);
                break;
            case Format::PK2_F16:
                low[lane] = clamp_half(low[lane]) | clamp_half(low[lane] >> 16) << 16;
                break;
            case Format::F64: {
                double value = as_double(static_cast<uint64_t>(high[lane]) << 32 | low[lane]);
                uint64_t bits = as_bits(value > 0.0 ? (value < 1.0 ? value : 1.0) : 0.0);
                low[lane] = static_cast<uint32_t>(bits), high[lane] = static_cast<uint32_t>(bits >> 32);
                break;
            }
            default:
                break;
        }
    }
}

// OMOD (1: times 2, 2: times 4, 3: half) works only where denormal results are off, and turns -0 into +0.
void apply_output_modifier(Format format, int omod, uint32_t* low, uint32_t* high) {
    static constexpr float kFactor[] = {1.0f, 2.0f, 4.0f, 0.5f};
    for (int lane = 0; lane < kLanes; ++lane) {
        if (format == Format::F32) {
            low[lane] = as_bits(as_float(low[lane]) * kFactor[omod]);
        } else if (format == Format::F16) {
            low[lane] = float_to_half(half_to_float(low[lane]) * kFactor[omod], false);
        } else if (format == Format::F64) {
            double value = as_double(static_cast<uint64_t>(high[lane]) << 32 | low[lane]) * kFactor[omod];
            low[lane] = static_cast<uint32_t>(as_bits(value)),
            high[lane] = static_cast<uint32_t>(as_bits(value) >> 32);
        }
    }
    flush_denormals(format, low, high);
    uint32_t sign = format == Format::F16 ? 0x8000 : 0x80000000;
    uint32_t* top = format == Format::F64 ? high : low;
    for (int lane = 0; lane < kLanes; ++lane)
        if (top[lane] == sign && (format != Format::F64 || low[lane] == 0)) top[lane] = 0;
}

void finish(const Wave& wave, const Instruction& instruction, LaneResults& results) {
    Format format = instruction.destination_format;
    uint32_t *low = results.value[0], *high = results.value[1];
    bool flush = !(denormal_bits(wave.mode, format) & 2);
    if (instruction.omod && flush) apply_output_modifier(format, instruction.omod, low, high);
    if (instruction.clamp) clamp_results(format, low, high);
    if (flush) flush_denormals(format, low, high);
}

void commit(Wave& wave, const Instruction& instruction, const LaneResults& results, uint32_t mask) {
    Format format = instruction.destination_format;
    int bits = format_bits(format);
    if (bits == 8 || bits == 16) {
        uint32_t shift = instruction.destination_shift, keep = ~(((1u << bits) - 1) << shift);
        alignas(64) LaneArray merged;
        const uint32_t* old = wave.vgpr[instruction.destination];
        for (int lane = 0; lane < kLanes; ++lane)
            merged[lane] = (old[lane] & keep) | results.value[0][lane] << shift;
        write_vgpr(wave, instruction.destination, merged, mask);
        return;
    }
    write_vgpr(wave, instruction.destination, results.value[0], mask);
    if (bits == 64) write_vgpr(wave, checked_vgpr(instruction.destination + 1), results.value[1], mask);
}

uint32_t pack_flags(const uint32_t* flag) {
    uint32_t bits = 0;
    for (int lane = 0; lane < kLanes; ++lane) bits |= (flag[lane] & 1) << lane;
    return bits;
}

void compute(Wave& wave, const Instruction& instruction, Prepared& prepared, LaneResults& results) {
    prepare(wave, instruction, prepared);
    {
        RoundingScope rounding(wave.mode, instruction.destination_format);
        instruction.row->lanes(prepared.lanes, results);
    }
    if (instruction.omod || instruction.clamp ||
        denormal_bits(wave.mode, instruction.destination_format) != 3)
        finish(wave, instruction, results);
}

}  // namespace

uint32_t checked_vgpr(uint32_t index) {
    if (index >= kVgprs) throw KernelFault("the operand runs past v255");
    return index;
}

void execute_vector(Wave& wave, const Instruction& instruction) {
    Prepared prepared;
    LaneResults results;
    compute(wave, instruction, prepared, results);
    commit(wave, instruction, results, prepared.write_mask);
}

// Comparisons: the result is a lane mask, zero for inactive lanes.
void execute_compare(Wave& wave, const Instruction& instruction) {
    Prepared prepared;
    LaneResults results;
    prepare(wave, instruction, prepared);
    instruction.row->lanes(prepared.lanes, results);
    write_scalar32(wave, instruction.scalar_destination, pack_flags(results.flag) & prepared.write_mask);
}

// A vector result and a lane mask.
void execute_with_carry(Wave& wave, const Instruction& instruction) {
    Prepared prepared;
    LaneResults results;
    compute(wave, instruction, prepared, results);
    commit(wave, instruction, results, prepared.write_mask);
    write_scalar32(wave, instruction.scalar_destination, pack_flags(results.flag) & prepared.write_mask);
}

// Both halves read their sources before either writes.
void execute_dual(Wave& wave, const Instruction& instruction) {
    Prepared prepared_x, prepared_y;
    LaneResults x, y;
    compute(wave, instruction, prepared_x, x);
    compute(wave, *instruction.second, prepared_y, y);
    commit(wave, instruction, x, prepared_x.write_mask);
    commit(wave, *instruction.second, y, prepared_y.write_mask);
}

uint32_t read_scalar32(const Wave& wave, const Source& source) { return scalar_dword(wave, source, 0); }
uint64_t read_scalar64(const Wave& wave, const Source& source) {
    return static_cast<uint64_t>(scalar_dword(wave, source, 1)) << 32 | scalar_dword(wave, source, 0);
}
void write_scalar32(Wave& wave, uint32_t code, uint32_t value) {
    if (code == kNull) return;
    if (code >= kScalars) throw KernelFault("the scalar destination does not exist");
    wave.scalar[code] = value;
}
void write_scalar64(Wave& wave, uint32_t code, uint64_t value) {
    if (code == kNull) return;
    write_scalar32(wave, code, static_cast<uint32_t>(value));
    write_scalar32(wave, code + 1, static_cast<uint32_t>(value >> 32));
}

}  // namespace virtual_gpu
