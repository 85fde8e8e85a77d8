// SPDX-License-Identifier: MIT
#include "core/decode.h"

#include <cstring>
#include <string_view>
#include <unordered_map>

#include "core/faults.h"
#include "core/numeric.h"

namespace virtual_gpu {
namespace {

constexpr uint32_t kLiteralCode = 255, kDpp16Code = 250, kDpp8Code = 233, kDpp8FetchInactiveCode = 234;
constexpr uint32_t kFirstVgprCode = 256;

constexpr uint32_t key_of(Encoding encoding, uint32_t number) {
    return static_cast<uint32_t>(encoding) << 16 | number;
}

const std::unordered_map<uint32_t, const Opcode*>& opcode_index() {
    static const auto* index = [] {
        auto* map = new std::unordered_map<uint32_t, const Opcode*>;
        for (const Opcode& opcode : kOpcodes) map->emplace(key_of(opcode.encoding, opcode.number), &opcode);
        return map;
    }();
    return *index;
}

const Opcode* find_opcode(Encoding encoding, uint32_t number) {
    auto found = opcode_index().find(key_of(encoding, number));
    return found == opcode_index().end() ? nullptr : found->second;
}

// The first encoding whose fixed bits match and that has the opcode: VOP3SD and VOP3 differ only there.
const Opcode* match(uint32_t word) {
    for (size_t i = 0; i < std::size(kEncodings); ++i) {
        const EncodingFormat& format = kEncodings[i];
        if ((word & format.fixed_mask) != format.fixed_value) continue;
        if (const Opcode* opcode = find_opcode(static_cast<Encoding>(i), format.opcode.of(&word)))
            return opcode;
    }
    return nullptr;
}

void set_constant(Source& source, uint64_t bits) {
    source.kind = Source::kConstant;
    source.constant[0] = static_cast<uint32_t>(bits);
    source.constant[1] = static_cast<uint32_t>(bits >> 32);
}

// Inline integers are sign-extended to the operand; inline floats take the operand's own float format.
void set_inline_float(Source& source, uint32_t code) {
    static constexpr double kValues[] = {0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0, 0.15915494309189532};
    double value = kValues[code - 240];
    Format format = source.format;
    if (format_bits(format) == 64)
        set_constant(source, as_bits(value));
    else if (format == Format::BF16 || format == Format::PK2_BF16 || format == Format::WMMA_DC_16X16_BF16)
        set_constant(source, float_to_bfloat(static_cast<float>(value)));
    else if (format_bits(format) == 16 || format == Format::PK2_F16 || format == Format::WMMA_DC_16X16_F16)
        set_constant(source, float_to_half(static_cast<float>(value), false));
    else
        set_constant(source, as_bits(static_cast<float>(value)));
}

void set_literal(Source& source, uint32_t literal) {
    if (source.format == Format::F64)
        set_constant(source, static_cast<uint64_t>(literal) << 32);
    else if (source.format == Format::I64)
        set_constant(source, static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(literal))));
    else
        set_constant(source, literal);
}

void set_aperture(Source& source, uint32_t code) {
    static constexpr uint64_t kValues[] = {kSharedAperture, kSharedAperture | 0xffffffff, kPrivateAperture,
                                           kPrivateAperture | 0xffffffff};
    set_constant(source, kValues[code - 235]);
    if (format_bits(source.format) != 64) source.kind = Source::kAperture32;
}

// `code` is the 9-bit operand code; false for codes that mean nothing on gfx12.
bool decode_source(Source& source, uint32_t code, Format format, uint32_t literal) {
    source.format = format;
    if (code >= kFirstVgprCode) {
        source.kind = Source::kVgpr;
        source.index = static_cast<uint16_t>(code - kFirstVgprCode);
    } else if (code < kScalars) {
        source.kind = Source::kScalar;
        source.index = static_cast<uint16_t>(code);
    } else if (code <= 192) {
        set_constant(source, code - 128);
    } else if (code <= 208) {
        set_constant(source, static_cast<uint64_t>(-static_cast<int64_t>(code - 192)));
    } else if (code >= 240 && code <= 248) {
        set_inline_float(source, code);
    } else if (code >= 235 && code <= 238) {
        set_aperture(source, code);
    } else if (code >= 251 && code <= 253) {
        source.kind = code == 251 ? Source::kVccz : code == 252 ? Source::kExecz : Source::kScc;
    } else if (code == kLiteralCode) {
        set_literal(source, literal);
    } else {
        return false;
    }
    return true;
}

bool is_permutation_code(uint32_t code) {
    return code == kDpp16Code || code == kDpp8Code || code == kDpp8FetchInactiveCode;
}

// The source lane of `lane` under a DPP16 control, or -1 when it lies outside the row.
int dpp16_lane(uint32_t control, int lane) {
    int row = lane & ~15, in_row = lane & 15, amount = control & 15;
    auto within = [row](int i) { return i >= 0 && i < 16 ? row + i : -1; };
    if (control < 0x100) return (lane & ~3) | ((control >> (2 * (lane & 3))) & 3);
    switch (control & 0x1f0) {
        case 0x100:
            return within(in_row + amount);  // row_shl
        case 0x110:
            return within(in_row - amount);  // row_shr
        case 0x120:
            return row + ((in_row - amount) & 15);  // row_ror
        case 0x140:
            return amount == 0 ? row + 15 - in_row : (lane & ~7) + 7 - (lane & 7);  // row_mirror, half
        case 0x150:
            return row + amount;  // row_share
        default:
            return row + (in_row ^ amount);  // row_xmask
    }
}

bool is_known_dpp16(uint32_t control) {
    uint32_t kind = control & 0x1f0, amount = control & 15;
    if (control < 0x100 || kind == 0x150 || kind == 0x160) return true;
    if (kind == 0x140) return amount <= 1;
    return (kind == 0x100 || kind == 0x110 || kind == 0x120) && amount != 0;
}

bool decode_dpp16(LanePermutation& permutation, uint32_t word) {
    using F = fields::DPP16;
    uint32_t control = F::dpp.of(&word);
    if (!is_known_dpp16(control)) return false;
    permutation = {};
    for (int lane = 0; lane < kLanes; ++lane) {
        int from = dpp16_lane(control, lane);
        permutation.lane[lane] = static_cast<uint8_t>(from < 0 ? lane : from);
        permutation.in_bounds |= static_cast<uint32_t>(from >= 0) << lane;
        bool row_on = F::row_mask.of(&word) >> (lane / 16) & 1;
        bool bank_on = F::bank_mask.of(&word) >> (lane / 4 % 4) & 1;
        permutation.enabled |= static_cast<uint32_t>(row_on && bank_on) << lane;
    }
    permutation.zero_when_invalid = F::bc.of(&word);
    permutation.fetch_inactive = F::fi.of(&word);
    return true;
}

void decode_dpp8(LanePermutation& permutation, uint32_t word, bool fetch_inactive) {
    permutation = {};
    for (int lane = 0; lane < kLanes; ++lane)
        permutation.lane[lane] = static_cast<uint8_t>((lane & ~7) | ((word >> (8 + 3 * (lane & 7))) & 7));
    permutation.in_bounds = permutation.enabled = ~0u;
    permutation.zero_when_invalid = true;
    permutation.fetch_inactive = fetch_inactive;
}

class Decoder {
  public:
    Decoder(Program& program, const uint8_t* text, size_t bytes)
        : program_(program), text_(text), bytes_(bytes) {}

    void decode(size_t position, Instruction& out);

  private:
    bool decode_operands(Instruction& out, const Opcode& opcode);
    bool decode_vector(Instruction& out, const Opcode& opcode);
    bool decode_scalar(Instruction& out, const Opcode& opcode);
    bool decode_dual(Instruction& out, const Opcode& opcode);
    bool decode_dual_half(Instruction& half, const Opcode& opcode, uint32_t source0, uint32_t source1);
    bool take_extra_dword(Instruction& out, bool needed);
    bool decode_permutation(Instruction& out, uint32_t code, bool promoted);

    Program& program_;
    const uint8_t* text_;
    size_t bytes_;
    size_t position_ = 0;
};

bool Decoder::take_extra_dword(Instruction& out, bool needed) {
    if (!needed) return true;
    size_t offset = position_ + out.dwords * 4;
    if (offset + 4 > bytes_) return false;
    std::memcpy(&out.literal, text_ + offset, 4);
    out.words[out.dwords++] = out.literal;
    return true;
}

bool Decoder::decode_permutation(Instruction& out, uint32_t code, bool promoted) {
    LanePermutation permutation;
    uint32_t word = out.literal;
    if (code == kDpp16Code) {
        if (!decode_dpp16(permutation, word)) return false;
        using F = fields::DPP16;
        if (!promoted) {
            out.neg = static_cast<uint8_t>(F::src0_neg.of(&word) | F::src1_neg.of(&word) << 1);
            out.abs = static_cast<uint8_t>(F::src0_abs.of(&word) | F::src1_abs.of(&word) << 1);
        }
    } else {
        decode_dpp8(permutation, word, code == kDpp8FetchInactiveCode);
    }
    program_.permutations.push_back(permutation);
    out.permutation = &program_.permutations.back();
    return true;
}

// VOP1, VOP2 and VOPC put the half selection of 16-bit VGPR operands into bit 7 of the register number.
void split_half(Source& source) {
    if (source.kind != Source::kVgpr || format_bits(source.format) != 16) return;
    source.shift = source.index & 0x80 ? 16 : 0;
    source.index &= 0x7f;
}

void apply_op_sel(Instruction& out, const Opcode& opcode) {
    for (int i = 0; i < 3; ++i) {
        Source& source = out.source[i];
        int bits = format_bits(source.format);
        if (bits == 16 && !is_packed_pair(source.format)) source.shift = (out.op_sel >> i & 1) * 16;
        // Byte selection of fp8 sources: the two bits are swapped.
        if (bits == 8) source.shift = static_cast<uint8_t>((out.op_sel & 1) * 16 + (out.op_sel >> 1 & 1) * 8);
    }
    int bits = format_bits(opcode.format[0]);
    if (bits == 16) out.destination_shift = (out.op_sel >> 3 & 1) * 16;
    if (bits == 8) out.destination_shift = static_cast<uint8_t>((out.op_sel >> 2 & 3) * 8);
}

bool is_default_packed(const Instruction& out, int i) {
    return !(out.op_sel >> i & 1) && (out.op_sel_hi >> i & 1);
}

bool is_plain(const Instruction& out) {
    if (out.permutation) return false;
    for (int i = 0; i < 3; ++i) {
        const Source& source = out.source[i];
        if (source.shift) return false;
        bool sign = (out.neg | out.abs | out.neg_hi) >> i & 1;
        if (sign && takes_sign_modifiers(source.format)) return false;
        if (out.encoding == Encoding::VOP3P && is_packed_pair(source.format) && !is_default_packed(out, i))
            return false;
    }
    return true;
}

bool Decoder::decode_vector(Instruction& out, const Opcode& opcode) {
    const uint32_t* w = out.words;
    uint32_t codes[3] = {};
    Encoding encoding = opcode.encoding;
    bool promoted = encoding == Encoding::VOP3 || encoding == Encoding::VOP3P || encoding == Encoding::VOP3SD;
    if (promoted) {
        using F = fields::VOP3;  // VOP3P and VOP3SD keep these fields in the same place
        codes[0] = F::src0.of(w), codes[1] = F::src1.of(w), codes[2] = F::src2.of(w);
        out.destination = static_cast<uint16_t>(F::vdst.of(w));
        out.neg = static_cast<uint8_t>(F::neg.of(w));
        out.clamp = F::clmp.of(w);
    } else {
        codes[0] = fields::VOP2::src0.of(w);
        codes[1] = fields::VOP2::vsrc1.of(w) + kFirstVgprCode;
        out.destination = static_cast<uint16_t>(fields::VOP2::vdst.of(w));
    }
    if (encoding == Encoding::VOP3) {
        out.abs = static_cast<uint8_t>(fields::VOP3::abs.of(w));
        out.op_sel = static_cast<uint8_t>(fields::VOP3::opsel.of(w));
        out.omod = static_cast<uint8_t>(fields::VOP3::omod.of(w));
    } else if (encoding == Encoding::VOP3P) {
        using F = fields::VOP3P;
        out.op_sel = static_cast<uint8_t>(F::opsel.of(w));
        out.op_sel_hi = static_cast<uint8_t>(F::opsel_hi.of(w) | F::opsel_hi2.of(w) << 2);
        out.neg_hi = static_cast<uint8_t>(F::neg_hi.of(w));
    } else if (encoding == Encoding::VOP3SD) {
        out.scalar_destination = static_cast<uint16_t>(fields::VOP3SD::sdst.of(w));
        out.omod = static_cast<uint8_t>(fields::VOP3SD::omod.of(w));
    } else if (encoding == Encoding::VOP2) {
        out.scalar_destination = kVccLo;
    }

    uint32_t first = codes[0];
    bool has_literal = opcode.always_literal;
    for (int i = 0; i < 3; ++i)
        has_literal |= opcode.format[i + 1] != Format::Absent && codes[i] == kLiteralCode;
    bool permuted = is_permutation_code(first) && opcode.format[1] != Format::Absent;
    if (!take_extra_dword(out, has_literal || permuted)) return false;
    if (permuted) {
        if (!decode_permutation(out, first, promoted)) return false;
        codes[0] = fields::DPP16::vsrc0.of(&out.literal) + kFirstVgprCode;
    }
    for (int i = 0; i < 3; ++i) {
        if (opcode.format[i + 1] == Format::Absent) continue;
        if (opcode.format[i + 1] == Format::M64) {
            out.mask_source = static_cast<uint16_t>(codes[i]);
            if (codes[i] >= kScalars) return false;
            continue;
        }
        if (!decode_source(out.source[i], codes[i], opcode.format[i + 1], out.literal)) return false;
        if (!promoted) split_half(out.source[i]);
    }
    if (opcode.format[0] == Format::M64) out.scalar_destination = out.destination;
    if (encoding == Encoding::VOPC) out.scalar_destination = kVccLo;
    if (std::string_view(mnemonic_name(opcode.mnemonic)).starts_with("v_cmpx_"))
        out.scalar_destination = kExecLo;
    if (encoding == Encoding::VOP3) {
        // What the modifiers of packed operands mean outside VOP3P is not documented.
        for (int i = 0; i < 3; ++i)
            if (is_packed_pair(out.source[i].format) && (out.neg | out.abs | out.op_sel) >> i & 1)
                return false;
        apply_op_sel(out, opcode);
    }
    bool half_destination = format_bits(opcode.format[0]) == 16;
    if (!promoted && half_destination && encoding != Encoding::VOPC) {
        out.destination_shift = out.destination & 0x80 ? 16 : 0;
        out.destination &= 0x7f;
    }
    if (opcode.mnemonic == Mnemonic::v_fma_mixhi_f16) out.destination_shift = 16;
    // AMD's own __ockl_fdot2 always sets CLAMP here, and programs that use it are right on hardware only if
    // the bit does nothing. What it does to the bfloat16 form is not known, so there it is refused.
    if (opcode.mnemonic == Mnemonic::v_dot2_f32_f16) out.clamp = false;
    if (opcode.mnemonic == Mnemonic::v_dot2_f32_bf16 && out.clamp) return false;
    out.plain = is_plain(out);
    return true;
}

bool Decoder::decode_scalar(Instruction& out, const Opcode& opcode) {
    const uint32_t* w = out.words;
    uint32_t codes[2] = {fields::SOP2::ssrc0.of(w), fields::SOP2::ssrc1.of(w)};
    int sources = opcode.encoding == Encoding::SOP1 ? 1 : opcode.encoding == Encoding::SOPK ? 0 : 2;
    bool has_literal = opcode.always_literal;
    for (int i = 0; i < sources; ++i)
        has_literal |= opcode.format[i + 1] != Format::Absent && codes[i] == kLiteralCode;
    if (!take_extra_dword(out, has_literal)) return false;
    for (int i = 0; i < sources; ++i)
        if (opcode.format[i + 1] != Format::Absent &&
            !decode_source(out.source[i], codes[i], opcode.format[i + 1], out.literal))
            return false;
    out.destination = static_cast<uint16_t>(fields::SOP2::sdst.of(w));
    out.immediate = static_cast<int16_t>(fields::SOPK::simm16.of(w));
    return true;
}

bool Decoder::decode_dual_half(Instruction& half, const Opcode& opcode, uint32_t source0, uint32_t source1) {
    half.row = &rows()[static_cast<size_t>(opcode.mnemonic)];
    half.mnemonic = opcode.mnemonic;
    half.destination_format = opcode.format[0];
    if (!decode_source(half.source[0], source0, opcode.format[1], half.literal)) return false;
    if (opcode.format[2] != Format::Absent)
        return decode_source(half.source[1], source1 + kFirstVgprCode, opcode.format[2], half.literal);
    return true;
}

bool Decoder::decode_dual(Instruction& out, const Opcode& opcode) {
    using F = fields::VOPD;
    const uint32_t* w = out.words;
    const Opcode* second = find_opcode(Encoding::VOPD, F::opy.of(w));
    if (!second) return false;
    bool has_literal = opcode.always_literal || second->always_literal || F::srcx0.of(w) == kLiteralCode ||
                       F::srcy0.of(w) == kLiteralCode;
    if (!take_extra_dword(out, has_literal)) return false;
    Instruction y = out;
    if (!decode_dual_half(out, opcode, F::srcx0.of(w), F::vsrcx1.of(w))) return false;
    if (!decode_dual_half(y, *second, F::srcy0.of(w), F::vsrcy1.of(w))) return false;
    out.destination = static_cast<uint16_t>(F::vdstx.of(w));
    // The two results go to VGPRs of different parity, so Y's lowest bit is not encoded.
    y.destination = static_cast<uint16_t>(F::vdsty.of(w) << 1 | ((out.destination & 1) ^ 1));
    program_.second_halves.push_back(y);
    out.second = &program_.second_halves.back();
    return out.row->lanes && y.row->lanes;
}

bool Decoder::decode_operands(Instruction& out, const Opcode& opcode) {
    const uint32_t* w = out.words;
    switch (opcode.encoding) {
        case Encoding::VOPD:
            return decode_dual(out, opcode);
        case Encoding::VOP1:
        case Encoding::VOP2:
        case Encoding::VOPC:
        case Encoding::VOP3:
        case Encoding::VOP3SD:
        case Encoding::VOP3P:
            return decode_vector(out, opcode);
        case Encoding::SOP1:
        case Encoding::SOP2:
        case Encoding::SOPC:
        case Encoding::SOPK:
            return decode_scalar(out, opcode);
        case Encoding::SOPP:
            out.immediate = static_cast<int16_t>(fields::SOPP::simm16.of(w));
            if (opcode.mnemonic == Mnemonic::s_endpgm) out.control = Control::kEnd;
            if (opcode.mnemonic == Mnemonic::s_barrier_wait) out.control = Control::kBarrierWait;
            return true;
        case Encoding::SMEM:
            out.immediate = static_cast<int32_t>(fields::SMEM::ioffset.of(w) << 8) >> 8;
            return true;
        case Encoding::VBUFFER:
        case Encoding::VGLOBAL:
        case Encoding::VSCRATCH:
        case Encoding::VFLAT:
            out.immediate = static_cast<int32_t>(fields::VGLOBAL::ioffset.of(w) << 8) >> 8;
            return true;
        case Encoding::DS:
            return true;
    }
    return false;
}

void not_modelled(Wave&, const Instruction& instruction) {
    throw NotModelled(instruction.dwords ? "this instruction is not modelled"
                                         : "this word is no known instruction");
}
void bad_operands(Wave&, const Instruction&) {
    throw NotModelled("this form of the instruction is not modelled");
}

bool is_integer_result(Format format) {
    switch (format) {
        case Format::F16:
        case Format::F32:
        case Format::F64:
        case Format::PK2_F16:
        case Format::BF16:
        case Format::B32:
            return false;
        default:
            return true;
    }
}

void Decoder::decode(size_t position, Instruction& out) {
    position_ = position;
    out = {};
    out.execute = not_modelled;
    std::memcpy(out.words, text_ + position, std::min<size_t>(12, bytes_ - position));
    const Opcode* opcode = match(out.words[0]);
    if (!opcode) return;
    const EncodingFormat& format = encoding_format(opcode->encoding);
    out.mnemonic = opcode->mnemonic;
    out.encoding = opcode->encoding;
    out.dwords = format.dwords;
    out.destination_format = opcode->format[0];
    if (position + format.dwords * 4 > bytes_) return;
    out.words[3] = 0;
    out.row = &rows()[static_cast<size_t>(opcode->mnemonic)];
    Execute execute = out.row->execute;
    Issue issue = out.row->issue;
    if (!decode_operands(out, *opcode)) {
        out.execute = bad_operands;
        return;
    }
    if (!execute) return;
    bool vector = out.row->lanes != nullptr;
    bool clamp_unknown =
        vector && out.clamp && !out.row->saturates && is_integer_result(out.destination_format);
    out.execute = clamp_unknown ? bad_operands : execute;
    out.issue = issue;
}

}  // namespace

std::shared_ptr<const Program> decode_program(const uint8_t* text, size_t bytes, uint64_t address) {
    auto program = std::make_shared<Program>();
    program->address = address;
    program->code.resize(bytes / 4);
    Decoder decoder(*program, text, bytes / 4 * 4);
    for (size_t i = 0; i < program->code.size(); ++i) decoder.decode(i * 4, program->code[i]);
    return program;
}

}  // namespace virtual_gpu
