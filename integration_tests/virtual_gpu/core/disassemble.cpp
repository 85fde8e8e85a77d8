// SPDX-License-Identifier: MIT
#include "core/disassemble.h"

#include <cstdio>
#include <string_view>

#include "core/numeric.h"
#include "core/register_use.h"

namespace virtual_gpu {
namespace {

std::string hex(uint64_t value) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
    return text;
}

std::string range(const char* prefix, uint32_t first, uint32_t count) {
    if (count == 1) return prefix + std::to_string(first);
    return prefix + ("[" + std::to_string(first)) + ":" + std::to_string(first + count - 1) + "]";
}
std::string vgprs(uint32_t first, uint32_t count) { return range("v", first, count); }

std::string scalars(uint32_t code, uint32_t count) {
    if (code < kVccLo) return range("s", code, count);
    if (code >= kTtmp0 && code < kNull) return range("ttmp", code - kTtmp0, count);
    const bool pair = count == 2;
    switch (code) {
        case kVccLo:
            return pair ? "vcc" : "vcc_lo";
        case kVccLo + 1:
            return "vcc_hi";
        case kNull:
            return "null";
        case kM0:
            return "m0";
        case kExecLo:
            return pair ? "exec" : "exec_lo";
        default:
            return "exec_hi";
    }
}

// Constants are spelled as the shortest operand that has their bits: a small integer, one of the inline
// floats, or a literal.
std::string constant(const Source& source) {
    const uint64_t bits = source.constant[0] | static_cast<uint64_t>(source.constant[1]) << 32;
    const auto low = static_cast<int32_t>(source.constant[0]);
    const bool wide = format_bits(source.format) == 64;
    const int64_t value = wide ? static_cast<int64_t>(bits) : low;
    if (value >= -16 && value <= 64) return std::to_string(value);
    static constexpr std::pair<double, const char*> kFloats[] = {
        {0.5, "0.5"},   {-0.5, "-0.5"}, {1.0, "1.0"},
        {-1.0, "-1.0"}, {2.0, "2.0"},   {-2.0, "-2.0"},
        {4.0, "4.0"},   {-4.0, "-4.0"}, {0.15915494309189532, "0.15915494"}};
    for (const auto& [number, text] : kFloats) {
        const auto single = static_cast<float>(number);
        if (wide ? bits == as_bits(number)
                 : source.constant[0] == as_bits(single) ||
                       (format_bits(source.format) == 16 &&
                        source.constant[0] == float_to_half(single, false)))
            return text;
    }
    return hex(wide && source.format == Format::F64 ? bits >> 32 : source.constant[0]);
}

class Writer {
  public:
    explicit Writer(const Instruction& instruction)
        : in_(instruction), use_(register_use(instruction)), text_(mnemonic_name(instruction.mnemonic)) {}

    std::string write() {
        switch (in_.encoding) {
            case Encoding::VOPD:
                dual();
                break;
            case Encoding::VOP1:
            case Encoding::VOP2:
            case Encoding::VOPC:
            case Encoding::VOP3:
            case Encoding::VOP3SD:
            case Encoding::VOP3P:
                vector();
                break;
            case Encoding::SOP1:
            case Encoding::SOP2:
            case Encoding::SOPC:
            case Encoding::SOPK:
                scalar();
                break;
            case Encoding::SOPP:
                program_control();
                break;
            case Encoding::SMEM:
                scalar_memory();
                break;
            case Encoding::VGLOBAL:
            case Encoding::VFLAT:
            case Encoding::VSCRATCH:
                vector_memory();
                break;
            case Encoding::VBUFFER:
                buffer();
                break;
            case Encoding::DS:
                lds();
                break;
        }
        return text_;
    }

  private:
    std::string_view name() const { return mnemonic_name(in_.mnemonic); }
    void operand(const std::string& text) { text_ += std::exchange(separator_, ", ") + text; }
    void modifier(const std::string& text) { text_ += " " + text; }

    // How many registers the instruction takes from `first` on, by what is known of its use.
    static uint32_t width(const VgprRanges& ranges, uint32_t first, uint32_t otherwise) {
        for (const VgprRange& range : ranges)
            if (range.first == first) return range.dwords;
        return otherwise;
    }
    static uint32_t width(const ScalarSet& set, uint32_t first) {
        uint32_t count = 0;
        while (first + count < kScalars && set[first + count]) ++count;
        return std::max(count, 1u);
    }

    std::string source(const Instruction& part, int i) const {
        const Source& source = part.source[i];
        const uint32_t dwords = format_bits(source.format) == 64 ? 2 : 1;
        std::string text;
        switch (source.kind) {
            case Source::kVgpr:
                text = vgprs(source.index, width(use_.vgpr_reads, source.index, dwords));
                if (names_halves(part, source)) text += source.shift ? ".h" : ".l";
                break;
            case Source::kScalar:
                text = scalars(source.index, dwords);
                break;
            case Source::kConstant:
                text = constant(source);
                break;
            case Source::kScc:
                text = "scc";
                break;
            case Source::kVccz:
                text = "vccz";
                break;
            case Source::kExecz:
                text = "execz";
                break;
            default:
                text = "aperture";
        }
        // VOP3P negates through its own modifiers.
        if (part.encoding == Encoding::VOP3P) return text;
        if (part.abs >> i & 1) text = "|" + text + "|";
        return (part.neg >> i & 1 ? "-" : "") + text;
    }
    // VOP1, VOP2 and VOPC name the half of a register that a 16-bit operand is in; VOP3 has op_sel for it.
    static bool names_halves(const Instruction& part, const Source& source) {
        const bool is_short = part.encoding == Encoding::VOP1 || part.encoding == Encoding::VOP2 ||
                              part.encoding == Encoding::VOPC;
        return is_short && format_bits(source.format) == 16 && !is_packed_pair(source.format) &&
               source.format != Format::PK2_FP8 && source.format != Format::PK2_BF8;
    }

    void sources(const Instruction& part) {
        const std::string_view name = mnemonic_name(part.mnemonic);
        for (int i = 0; i < 3; ++i) {
            if (i == 1 && name.find("fmamk") != name.npos) operand(hex(in_.literal));
            if (part.source[i].kind != Source::kNone) operand(source(part, i));
        }
        if (name.find("fmaak") != name.npos) operand(hex(in_.literal));
    }

    void dual() {
        if (!in_.second) return;
        half(in_);
        text_ += std::string(" :: ") + mnemonic_name(in_.second->mnemonic);
        separator_ = " ";
        half(*in_.second);
    }
    void half(const Instruction& part) {
        operand(vgprs(part.destination, 1));
        sources(part);
    }

    void vector() {
        const bool compares = name().starts_with("v_cmp");
        if (name() == "v_nop" || name() == "v_pipeflush") return;
        if (use_.vgpr_writes.count && !compares) {
            const uint32_t first = in_.destination;
            operand(vgprs(first, width(use_.vgpr_writes, first, 1)));
        } else if (!compares || (in_.encoding == Encoding::VOP3 && !name().starts_with("v_cmpx"))) {
            operand(scalars(compares ? in_.scalar_destination : in_.destination, 1));
        } else if (!name().starts_with("v_cmpx")) {
            operand("vcc_lo");
        }
        const bool carries = name().find("_co_") != std::string_view::npos;
        if (in_.encoding == Encoding::VOP3SD || (carries && in_.encoding == Encoding::VOP2))
            operand(scalars(in_.scalar_destination, 1));
        sources(in_);
        const bool masked = name().find("cndmask") != std::string_view::npos ||
                            name().find("_co_ci_") != std::string_view::npos;
        if (masked) operand(scalars(in_.mask_source, 1));
        vector_modifiers();
    }

    void vector_modifiers() {
        auto bits = [](uint32_t value, int count) {
            std::string list;
            for (int i = 0; i < count; ++i) list += (i ? "," : "") + std::to_string(value >> i & 1);
            return "[" + list + "]";
        };
        int count = 0;
        for (const Source& source : in_.source) count += source.kind != Source::kNone;
        if (in_.encoding == Encoding::VOP3P) {
            if (in_.op_sel) modifier("op_sel:" + bits(in_.op_sel, count));
            const bool is_matrix = use_.kind == Kind::kMatrix;
            if (!is_matrix && in_.op_sel_hi != 7) modifier("op_sel_hi:" + bits(in_.op_sel_hi, count));
            if (in_.neg) modifier("neg_lo:" + bits(in_.neg, 3));
            if (in_.neg_hi) modifier("neg_hi:" + bits(in_.neg_hi, 3));
        } else if (in_.op_sel) {
            // Sources, then the destination; the permutes, whose bits mean something else, have none.
            const bool is_permute = name().starts_with("v_permlane");
            const uint32_t sources = is_permute ? 2 : count, destination = in_.op_sel >> 3 & 1;
            const uint32_t kept = in_.op_sel & ((1u << sources) - 1);
            modifier("op_sel:" +
                     (is_permute ? bits(kept, 2) : bits(kept | destination << sources, sources + 1)));
        }
        if (in_.clamp) modifier("clamp");
        if (in_.omod) modifier(in_.omod == 1 ? "mul:2" : in_.omod == 2 ? "mul:4" : "div:2");
        if (in_.permutation) permutation();
    }

    void permutation() {
        const uint32_t word = in_.words[in_.dwords - 1];
        const uint32_t code = fields::VOP1::src0.of(in_.words);
        const bool promoted = in_.encoding != Encoding::VOP1 && in_.encoding != Encoding::VOP2 &&
                              in_.encoding != Encoding::VOPC;
        constexpr uint32_t kDpp16 = 250;
        if ((promoted ? fields::VOP3::src0.of(in_.words) : code) != kDpp16) {
            std::string list;
            for (int i = 0; i < 8; ++i) list += (i ? "," : "") + std::to_string(word >> (8 + 3 * i) & 7);
            return modifier("dpp8:[" + list + "]");
        }
        using F = fields::DPP16;
        const uint32_t control = F::dpp.of(&word), amount = control & 15;
        static constexpr std::pair<uint32_t, const char*> kKinds[] = {{0x100, "row_shl:"},
                                                                      {0x110, "row_shr:"},
                                                                      {0x120, "row_ror:"},
                                                                      {0x150, "row_share:"},
                                                                      {0x160, "row_xmask:"}};
        if (control < 0x100) {
            std::string list;
            for (int i = 0; i < 4; ++i) list += (i ? "," : "") + std::to_string(control >> 2 * i & 3);
            modifier("quad_perm:[" + list + "]");
        } else if ((control & 0x1f0) == 0x140) {
            modifier(amount ? "row_half_mirror" : "row_mirror");
        } else {
            for (const auto& [kind, text] : kKinds)
                if ((control & 0x1f0) == kind) modifier(text + std::to_string(amount));
        }
        modifier("row_mask:" + hex(F::row_mask.of(&word)));
        modifier("bank_mask:" + hex(F::bank_mask.of(&word)));
        if (F::bc.of(&word)) modifier("bound_ctrl:1");
        if (F::fi.of(&word)) modifier("fi:1");
    }

    void scalar() {
        if (in_.encoding == Encoding::SOPK && name().find("reg_") != std::string_view::npos) {
            if (name() == "s_getreg_b32" || name() == "s_setreg_b32") operand(scalars(in_.destination, 1));
            const uint32_t selector = static_cast<uint16_t>(in_.immediate), id = selector & 63;
            operand("hwreg(" + (id == 1 ? std::string("HW_REG_WAVE_MODE") : std::to_string(id)) + ", " +
                    std::to_string(selector >> 6 & 31) + ", " + std::to_string((selector >> 11) + 1) + ")");
            if (name().starts_with("s_setreg_imm32")) operand(std::to_string(in_.literal));
            return;
        }
        if (in_.encoding == Encoding::SOPK) {
            operand(scalars(in_.destination, width(use_.scalar_writes, in_.destination)));
            return operand(hex(static_cast<uint16_t>(in_.immediate)));
        }
        if (in_.encoding != Encoding::SOPC && in_.destination_format != Format::Absent)
            operand(scalars(in_.destination, format_bits(in_.destination_format) == 64 ? 2 : 1));
        sources(in_);
    }

    void program_control() {
        if (name() == "s_endpgm" || name() == "s_code_end") return;
        if (name().find("branch") != std::string_view::npos)
            return operand((in_.immediate < 0 ? "-" : "+") + hex(4u * std::abs(in_.immediate + 1)));
        if (in_.immediate == -1 || name() == "s_nop") return operand(std::to_string(in_.immediate));
        operand(hex(static_cast<uint16_t>(in_.immediate)));
    }

    void scalar_memory() {
        using F = fields::SMEM;
        if (name() == "s_dcache_inv") return;
        const uint32_t data = F::sdata.of(in_.words), base = F::sbase.of(in_.words) * 2;
        if (use_.scalar_writes.any()) operand(scalars(data, width(use_.scalar_writes, data)));
        operand(scalars(base, name().find("buffer") == std::string_view::npos ? 2 : 4));
        if (const uint32_t offset = F::soffset.of(in_.words); offset != kNull) {
            operand(scalars(offset, 1));
            if (in_.immediate) modifier("offset:" + hex(in_.immediate));
        } else {
            operand(hex(static_cast<uint32_t>(in_.immediate)));
        }
    }

    void data(const VgprRanges& ranges, uint32_t first) { operand(vgprs(first, width(ranges, first, 1))); }

    void vector_memory() {
        using F = fields::VGLOBAL;  // the other two keep these fields in the same place
        if (!use_.vgpr_reads.count && !use_.vgpr_writes.count) return;
        const uint32_t* words = in_.words;
        const uint32_t saddr = F::saddr.of(words), vaddr = F::vaddr.of(words);
        if (use_.vgpr_writes.count) data(use_.vgpr_writes, F::vdst.of(words));
        const bool has_vaddr = in_.encoding != Encoding::VSCRATCH || F::sve.of(words);
        const bool is_global = in_.encoding != Encoding::VSCRATCH;
        if (has_vaddr) operand(vgprs(vaddr, is_global && saddr == kNull ? 2 : 1));
        if (use_.kind != Kind::kVmemLoad) data(use_.vgpr_reads, F::vsrc.of(words));
        if (in_.encoding != Encoding::VFLAT)
            operand(saddr == kNull ? "off" : scalars(saddr, is_global ? 2 : 1));
        memory_modifiers(F::th.of(words), F::scope.of(words));
    }

    void buffer() {
        using F = fields::VBUFFER;
        const uint32_t* words = in_.words;
        const bool stores = use_.kind == Kind::kVmemStore;
        data(stores ? use_.vgpr_reads : use_.vgpr_writes, F::vdata.of(words));
        const uint32_t addresses = F::offen.of(words) + F::idxen.of(words);
        operand(addresses ? vgprs(F::vaddr.of(words), addresses) : "off");
        operand(scalars(F::rsrc.of(words), 4));
        operand(scalars(F::soffset.of(words), 1));
        if (F::idxen.of(words)) modifier("idxen");
        if (F::offen.of(words)) modifier("offen");
        memory_modifiers(F::th.of(words), F::scope.of(words));
    }

    void memory_modifiers(uint32_t hint, uint32_t scope) {
        static constexpr const char* kScopes[] = {"CU", "SE", "DEV", "SYS"};
        if (in_.immediate) modifier("offset:" + std::to_string(in_.immediate));
        if (hint) modifier("th:" + std::to_string(hint));
        if (scope) modifier(std::string("scope:SCOPE_") + kScopes[scope]);
    }

    void lds() {
        using F = fields::DS;
        const uint32_t* words = in_.words;
        if (name() == "ds_nop") return;
        if (use_.vgpr_writes.count) data(use_.vgpr_writes, F::vdst.of(words));
        uint32_t fields_left = 0;
        for (const VgprRange& range : use_.vgpr_reads) {
            // In order: address, first and second data; what a partial load keeps is no operand.
            if (fields_left == 0 && range.role == Role::kAddress) operand(vgprs(F::addr.of(words), 1));
            if (use_.kind == Kind::kLdsLoad) break;
            if (fields_left == 0 && range.role != Role::kAddress) operand(vgprs(range.first, range.dwords));
            if (fields_left == 1 || fields_left == 2) operand(vgprs(range.first, range.dwords));
            ++fields_left;
        }
        const uint32_t offset0 = F::offset0.of(words), offset1 = F::offset1.of(words);
        if (name().find("_2addr_") != std::string_view::npos) {
            if (offset0) modifier("offset0:" + std::to_string(offset0));
            if (offset1) modifier("offset1:" + std::to_string(offset1));
        } else if (offset0 | offset1) {
            modifier("offset:" + std::to_string(offset0 | offset1 << 8));
        }
    }

    const Instruction& in_;
    const RegisterUse use_;
    std::string text_;
    const char* separator_ = " ";
};

}  // namespace

std::string disassemble(const Instruction& instruction) {
    if (!instruction.dwords) return ".long " + hex(instruction.words[0]);
    return Writer(instruction).write();
}

std::string describe(const Instruction& instruction, uint64_t address) {
    std::string text = instruction.dwords ? disassemble(instruction) : "unknown instruction";
    text += " at " + hex(address) + ", bytes";
    char word[12];
    for (int i = 0; i < std::max<int>(instruction.dwords, 1); ++i) {
        std::snprintf(word, sizeof word, " %08x", instruction.words[i]);
        text += word;
    }
    return text;
}

}  // namespace virtual_gpu
