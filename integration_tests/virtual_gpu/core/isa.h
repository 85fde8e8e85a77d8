// SPDX-License-Identifier: MIT
// The gfx1201 instruction set as data: isa.inc is written by generate_isa.py at build time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace virtual_gpu {

// A bit field of an instruction; no field crosses a dword.
struct Field {
    uint8_t low, bits;
    constexpr uint32_t of(const uint32_t* words) const {
        return (words[low / 32] >> (low % 32)) & (bits == 32 ? ~0u : (1u << bits) - 1);
    }
};

struct EncodingFormat {
    const char* name;
    uint32_t fixed_mask, fixed_value;  // of the first dword
    Field opcode;
    uint8_t dwords;  // without literal or DPP dword
};

enum class Mnemonic : uint16_t;
enum class Format : uint8_t;
enum class Encoding : uint8_t;

struct Opcode {
    Encoding encoding;
    uint16_t number;
    Mnemonic mnemonic;
    bool always_literal;
    Format format[4];  // destination, sources
};

#include "isa.inc"

constexpr const char* mnemonic_name(Mnemonic mnemonic) {
    return kMnemonicNames[static_cast<size_t>(mnemonic)];
}
constexpr const EncodingFormat& encoding_format(Encoding encoding) {
    return kEncodings[static_cast<size_t>(encoding)];
}

// Bits an operand of this format takes in a register; packed formats count all their elements.
constexpr int format_bits(Format format) {
    switch (format) {
        case Format::Absent:
            return 0;
        case Format::FP8:
        case Format::BF8:
            return 8;
        case Format::B16:
        case Format::U16:
        case Format::I16:
        case Format::F16:
        case Format::BF16:
        case Format::PK2_FP8:
        case Format::PK2_BF8:
        case Format::PK2_U8:
            return 16;
        case Format::B64:
        case Format::U64:
        case Format::I64:
        case Format::F64:
        case Format::PK2_F32:
        case Format::PK2_B32:
            return 64;
        case Format::B96:
            return 96;
        case Format::B128:
        case Format::PK2_B64:
            return 128;
        default:
            return 32;
    }
}
constexpr bool is_half_float(Format format) { return format == Format::F16 || format == Format::PK2_F16; }
constexpr bool is_packed_pair(Format format) {
    return format == Format::PK2_F16 || format == Format::PK2_BF16 || format == Format::PK2_I16 ||
           format == Format::PK2_U16;
}

// Whether NEG and ABS act on an operand of this format: floats, and the plain patterns that selects move.
constexpr bool takes_sign_modifiers(Format format) {
    switch (format) {
        case Format::F16:
        case Format::BF16:
        case Format::B16:
        case Format::F32:
        case Format::B32:
        case Format::F64:
            return true;
        default:
            return is_packed_pair(format);
    }
}

}  // namespace virtual_gpu
