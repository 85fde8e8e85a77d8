// SPDX-License-Identifier: MIT
// WMMA: D = A * B + C on 16x16 tiles spread over one wave32.
//
//   operand     element   lane               slot in that lane (packed from the lowest VGPR's lowest bits)
//   A           A[i][k]   i + 16 * (k / n)   k % n, where n = K / 2 elements per lane
//   B           B[k][j]   j + 16 * (k / n)   k % n
//   C, D        D[i][j]   j + 16 * (i / 8)   i % 8
//
// Numerics: integer sums are exact modulo 2^32 (with CLAMP: saturated). Float
// products are exact in f32 and are added to C one after the other, k ascending, each
// addition rounded once to f32 nearest even with denormals kept; f16 and bf16 results
// are rounded once at the end. The order in which the hardware adds is not published.
//
// For WMMA the order of k does not change integer results, so a K = 32 iu4 product does not depend on how its
// nibbles are spread over lanes as long as A and B agree.
#include <cstring>

#include "core/faults.h"
#include "core/tables.h"
#include "core/vector.h"

namespace virtual_gpu {
namespace {

constexpr int kTile = 16;

using Tile = float[kTile][kTile];

// One 32-bit word per lane of operand `i`, dword `d`.
const uint32_t* operand(const Wave& wave, const Instruction& instruction, int i, int d) {
    const Source& source = instruction.source[i];
    if (source.kind != Source::kVgpr) throw NotModelled("matrix operands A and B must be VGPRs");
    return wave.vgpr[checked_vgpr(source.index + d)];
}

// C as it lies in VGPRs; an inline constant fills every element.
struct Accumulator {
    alignas(64) uint32_t vgpr[8][kLanes];
};
void load_accumulator(const Wave& wave, const Instruction& instruction, int dwords, Accumulator& out) {
    const Source& source = instruction.source[2];
    for (int d = 0; d < dwords; ++d) {
        if (source.kind == Source::kVgpr) {
            std::memcpy(out.vgpr[d], wave.vgpr[checked_vgpr(source.index + d)], sizeof out.vgpr[d]);
        } else {
            uint32_t value = read_scalar32(wave, source);
            if (dwords == 4) value = (value & 0xffff) | value << 16;
            for (uint32_t& lane : out.vgpr[d]) lane = value;
        }
    }
}
void store_result(Wave& wave, const Instruction& instruction, int dwords, const Accumulator& values) {
    checked_vgpr(instruction.destination + dwords - 1);
    for (int d = 0; d < dwords; ++d)
        std::memcpy(wave.vgpr[instruction.destination + d], values.vgpr[d], sizeof values.vgpr[d]);
}

void check_exec(const Wave& wave) {
    if (wave.scalar[kExecLo] != ~0u) throw KernelFault("a matrix instruction needs EXEC to be all ones");
}

struct E4m3 {
    static constexpr int kBits = 8;
    static float value(uint32_t bits) { return kE4m3ToFloat[bits]; }
};
struct E5m2 {
    static constexpr int kBits = 8;
    static float value(uint32_t bits) { return kE5m2ToFloat[bits]; }
};
struct Half {
    static constexpr int kBits = 16;
    static float value(uint32_t bits) { return half_to_float(bits); }
};
struct Bfloat {
    static constexpr int kBits = 16;
    static float value(uint32_t bits) { return bfloat_to_float(bits); }
};

// out[k][x]: B as it is, A transposed. Their register layouts are the same.
template <class Element>
void load_tile(const Wave& wave, const Instruction& instruction, int i, Tile& out) {
    constexpr int kPerDword = 32 / Element::kBits;
    constexpr uint32_t kMask = (1u << Element::kBits) - 1;
    for (int d = 0; d < 8 / kPerDword; ++d) {
        const uint32_t* words = operand(wave, instruction, i, d);
        for (int e = 0; e < kPerDword; ++e)
            for (int lane = 0; lane < kLanes; ++lane)
                out[(lane / 16) * 8 + d * kPerDword + e][lane % 16] =
                    Element::value(words[lane] >> (e * Element::kBits) & kMask);
    }
}

// NEG on A and B flips their signs; on C, NEG and (as absolute value) NEG_HI act on its elements.
void negate(Tile& tile) {
    for (auto& row : tile)
        for (float& value : row) value = -value;
}
float with_signs(const Instruction& instruction, float c) {
    if (instruction.neg_hi & 4) c = std::fabs(c);
    return instruction.neg & 4 ? -c : c;
}
template <class A, class B>
void load_operands(const Wave& wave, const Instruction& instruction, Tile& a, Tile& b) {
    if (instruction.clamp) throw NotModelled("CLAMP of float matrix results is not modelled");
    load_tile<A>(wave, instruction, 0, a);
    load_tile<B>(wave, instruction, 1, b);
    // 16-bit operands have one sign bit for even and one for odd elements; compilers set both.
    if ((instruction.neg ^ instruction.neg_hi) & 3 && A::kBits == 16)
        throw NotModelled("different signs for the halves of A or B are not modelled");
    if (instruction.neg & 1) negate(a);
    if (instruction.neg & 2) negate(b);
}

void multiply(const Tile& a, const Tile& b, float (*sums)[kTile]) {
    for (int i = 0; i < kTile; ++i) {
        float row[kTile];
        std::memcpy(row, sums[i], sizeof row);
        for (int k = 0; k < kTile; ++k)
            for (int j = 0; j < kTile; ++j) row[j] = __builtin_fmaf(a[k][i], b[k][j], row[j]);
        std::memcpy(sums[i], row, sizeof row);
    }
}

template <class A, class B>
void multiply_to_f32(Wave& wave, const Instruction& instruction) {
    check_exec(wave);
    alignas(64) Tile a, b, sums;
    load_operands<A, B>(wave, instruction, a, b);
    Accumulator c;
    load_accumulator(wave, instruction, 8, c);
    for (int i = 0; i < kTile; ++i)
        for (int j = 0; j < kTile; ++j) sums[i][j] = as_float(c.vgpr[i % 8][j + 16 * (i / 8)]);
    if ((instruction.neg | instruction.neg_hi) & 4)
        for (auto& row : sums)
            for (float& value : row) value = with_signs(instruction, value);
    multiply(a, b, sums);
    for (int i = 0; i < kTile; ++i)
        for (int j = 0; j < kTile; ++j) c.vgpr[i % 8][j + 16 * (i / 8)] = as_bits(sums[i][j]);
    store_result(wave, instruction, 8, c);
}

template <class Element, class Round>
void multiply_to_16_bits(Wave& wave, const Instruction& instruction, Round round) {
    check_exec(wave);
    alignas(64) Tile a, b, sums;
    load_operands<Element, Element>(wave, instruction, a, b);
    Accumulator c;
    load_accumulator(wave, instruction, 4, c);
    for (int i = 0; i < kTile; ++i)
        for (int j = 0; j < kTile; ++j) {
            uint32_t word = c.vgpr[i % 8 / 2][j + 16 * (i / 8)];
            sums[i][j] = with_signs(instruction, Element::value(word >> (16 * (i % 2)) & 0xffff));
        }
    multiply(a, b, sums);
    for (int i = 0; i < kTile; i += 2)
        for (int j = 0; j < kTile; ++j)
            c.vgpr[i % 8 / 2][j + 16 * (i / 8)] = round(sums[i][j]) | round(sums[i + 1][j]) << 16;
    store_result(wave, instruction, 4, c);
}
void multiply_to_f16(Wave& wave, const Instruction& instruction) {
    bool clamp_overflow = wave.mode >> 23 & 1;
    multiply_to_16_bits<Half>(wave, instruction,
                              [=](float value) { return float_to_half(value, clamp_overflow); });
}
void multiply_to_bf16(Wave& wave, const Instruction& instruction) {
    multiply_to_16_bits<Bfloat>(wave, instruction, float_to_bfloat);
}

// Elements 2p and 2p + 1 along k as two int16 in one word, so that one multiply-add covers both.
template <int bits, int depth>
void load_pairs(const Wave& wave, const Instruction& instruction, int i, uint32_t (*out)[kTile]) {
    constexpr int kPerDword = 32 / bits, kPairsPerLane = depth / 4;
    bool is_signed = instruction.neg >> i & 1;
    for (int pair = 0; pair < kPairsPerLane; ++pair) {
        const uint32_t* words = operand(wave, instruction, i, pair * 2 / kPerDword);
        int shift = pair * 2 % kPerDword * bits;
        for (int lane = 0; lane < kLanes; ++lane) {
            uint32_t low = words[lane] << (32 - shift - bits), high = words[lane] << (32 - shift - 2 * bits);
            uint32_t a = is_signed ? static_cast<uint32_t>(static_cast<int32_t>(low) >> (32 - bits))
                                   : low >> (32 - bits);
            uint32_t b = is_signed ? static_cast<uint32_t>(static_cast<int32_t>(high) >> (32 - bits))
                                   : high >> (32 - bits);
            out[(lane / 16) * kPairsPerLane + pair][lane % 16] = (a & 0xffff) | b << 16;
        }
    }
}

using Words8 = int32_t __attribute__((vector_size(32)));
using Shorts16 = int16_t __attribute__((vector_size(32)));

template <int bits, int depth>
void multiply_integers(Wave& wave, const Instruction& instruction) {
    check_exec(wave);
    alignas(64) uint32_t a[depth / 2][kTile], b[depth / 2][kTile];
    load_pairs<bits, depth>(wave, instruction, 0, a);
    load_pairs<bits, depth>(wave, instruction, 1, b);
    Accumulator c;
    load_accumulator(wave, instruction, 8, c);
    for (int i = 0; i < kTile; ++i) {
        Words8 left = {}, right = {};
        for (int pair = 0; pair < depth / 2; ++pair) {
            int32_t word = static_cast<int32_t>(a[pair][i]);
            Words8 broadcast = {word, word, word, word, word, word, word, word}, columns[2];
            std::memcpy(columns, b[pair], sizeof columns);
            left += __builtin_ia32_pmaddwd256(reinterpret_cast<Shorts16>(broadcast),
                                              reinterpret_cast<Shorts16>(columns[0]));
            right += __builtin_ia32_pmaddwd256(reinterpret_cast<Shorts16>(broadcast),
                                               reinterpret_cast<Shorts16>(columns[1]));
        }
        int32_t sums[kTile];
        std::memcpy(sums, &left, sizeof left);
        std::memcpy(sums + 8, &right, sizeof right);
        uint32_t* row = c.vgpr[i % 8] + 16 * (i / 8);
        for (int j = 0; j < kTile; ++j) {
            int32_t addend = static_cast<int32_t>(row[j]), total;
            bool overflow = __builtin_add_overflow(sums[j], addend, &total);
            if (overflow && instruction.clamp) total = addend < 0 ? INT32_MIN : INT32_MAX;
            row[j] = static_cast<uint32_t>(total);
        }
    }
    store_result(wave, instruction, 8, c);
}

}  // namespace

void add_matrix_rows(RowTable& table) {
    auto add = [&table](Mnemonic mnemonic, Execute execute) {
        table[static_cast<size_t>(mnemonic)] = {execute, nullptr, Issue::kMatrix, false};
    };
    using enum Mnemonic;
    add(v_wmma_f32_16x16x16_f16, multiply_to_f32<Half, Half>);
    add(v_wmma_f32_16x16x16_bf16, multiply_to_f32<Bfloat, Bfloat>);
    add(v_wmma_f32_16x16x16_fp8_fp8, multiply_to_f32<E4m3, E4m3>);
    add(v_wmma_f32_16x16x16_fp8_bf8, multiply_to_f32<E4m3, E5m2>);
    add(v_wmma_f32_16x16x16_bf8_fp8, multiply_to_f32<E5m2, E4m3>);
    add(v_wmma_f32_16x16x16_bf8_bf8, multiply_to_f32<E5m2, E5m2>);
    add(v_wmma_f16_16x16x16_f16, multiply_to_f16);
    add(v_wmma_bf16_16x16x16_bf16, multiply_to_bf16);
    add(v_wmma_i32_16x16x16_iu8, multiply_integers<8, 16>);
    add(v_wmma_i32_16x16x16_iu4, multiply_integers<4, 16>);
    add(v_wmma_i32_16x16x32_iu4, multiply_integers<4, 32>);
}

}  // namespace virtual_gpu
