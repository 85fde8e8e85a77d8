// SPDX-License-Identifier: MIT
// Scalar ALU. A statement sees d (holding the old destination), s0, s1, scc, and `wave` and `instruction`.
#include <utility>

#include "core/tables.h"
#include "core/vector.h"

namespace virtual_gpu {
namespace {

template <Mnemonic>
struct ScalarEffect {};

template <Format format>
typename Value<format>::Type load_scalar(const Wave& wave, const Source& source) {
    uint64_t bits = 0;
    if constexpr (format_bits(format) == 64)
        bits = read_scalar64(wave, source);
    else if constexpr (format != Format::Absent)
        bits = read_scalar32(wave, source);
    uint32_t low = static_cast<uint32_t>(bits), high = static_cast<uint32_t>(bits >> 32);
    return Value<format>::load(&low, &high, 0);
}

float flush_unless(float value, bool keep) { return keep ? value : flush(value); }

template <Mnemonic m>
void execute_scalar(Wave& wave, const Instruction& instruction) {
    using Types = Operands<m>;
    constexpr Format format = Types::d;
    auto s0 = load_scalar<Types::s0>(wave, instruction.source[0]);
    auto s1 = load_scalar<Types::s1>(wave, instruction.source[1]);
    Source destination;
    destination.kind = Source::kScalar;
    destination.index = instruction.destination;
    auto d = load_scalar<format>(wave, destination);
    bool scc = wave.scc;
    {
        constexpr bool is_float = format == Format::F32 || format == Format::F16 || format == Format::PK2_F16;
        RoundingScope rounding(is_float ? wave.mode : 0, format);
        if constexpr (Types::s0 == Format::F32) s0 = flush_unless(s0, wave.mode >> 4 & 1);
        if constexpr (Types::s1 == Format::F32) s1 = flush_unless(s1, wave.mode >> 4 & 1);
        ScalarEffect<m>::apply(d, s0, s1, scc, wave, instruction);
        if constexpr (format == Format::F32) d = flush_unless(d, wave.mode >> 5 & 1);
        uint32_t low = 0, high = 0;
        Value<format>::store(d, &low, &high, 0, wave.mode >> 23 & 1);
        if constexpr (format_bits(format) == 64)
            write_scalar64(wave, instruction.destination, static_cast<uint64_t>(high) << 32 | low);
        else if constexpr (format != Format::Absent)
            write_scalar32(wave, instruction.destination, low);
    }
    wave.scc = scc;
}

#define SOP(mnemonic, ...)                                                                                \
    template <>                                                                                           \
    struct ScalarEffect<Mnemonic::mnemonic> {                                                             \
        using Types = Operands<Mnemonic::mnemonic>;                                                       \
        static constexpr bool kExists = true;                                                             \
        static void apply([[maybe_unused]] Value<Types::d>::Type& d,                                      \
                          [[maybe_unused]] Value<Types::s0>::Type s0,                                     \
                          [[maybe_unused]] Value<Types::s1>::Type s1, [[maybe_unused]] bool& scc,         \
                          [[maybe_unused]] Wave& wave, [[maybe_unused]] const Instruction& instruction) { \
            __VA_ARGS__;                                                                                  \
        }                                                                                                 \
    };
#define SOP_TEST(mnemonic, ...) SOP(mnemonic, d = __VA_ARGS__; scc = d != 0)

template <class T>
T quad_mask(T bits) {
    T result = 0;
    for (int i = 0; i < static_cast<int>(sizeof(T) * 2); ++i)
        result |= static_cast<T>((bits >> (4 * i) & 15) != 0) << i;
    return result;
}
template <class T>
T whole_quads(T bits) {
    T result = 0;
    for (int i = 0; i < static_cast<int>(sizeof(T) * 8); i += 4)
        result |= (bits >> i & 15 ? static_cast<T>(15) : 0) << i;
    return result;
}
uint64_t replicate_bits(uint32_t bits) {
    uint64_t result = 0;
    for (int i = 0; i < 32; ++i) result |= static_cast<uint64_t>(bits >> i & 1) * 3 << (2 * i);
    return result;
}
int leading_signs32(uint32_t bits) {
    uint32_t differs = bits ^ static_cast<uint32_t>(static_cast<int32_t>(bits) >> 31);
    return differs ? __builtin_clz(differs) : -1;
}
int leading_signs64(uint64_t bits) {
    uint64_t differs = bits ^ static_cast<uint64_t>(static_cast<int64_t>(bits) >> 63);
    return differs ? __builtin_clzll(differs) : -1;
}

SOP(s_mov_b32, d = s0)
SOP(s_mov_b64, d = s0)
SOP(s_cmov_b32, d = scc ? s0 : d)
SOP(s_cmov_b64, d = scc ? s0 : d)
SOP(s_brev_b32, d = __builtin_bitreverse32(s0))
SOP(s_brev_b64, d = __builtin_bitreverse64(s0))
SOP(s_ctz_i32_b32, d = s0 ? __builtin_ctz(s0) : -1)
SOP(s_ctz_i32_b64, d = s0 ? __builtin_ctzll(s0) : -1)
SOP(s_clz_i32_u32, d = s0 ? __builtin_clz(s0) : -1)
SOP(s_clz_i32_u64, d = s0 ? __builtin_clzll(s0) : -1)
SOP(s_cls_i32, d = leading_signs32(static_cast<uint32_t>(s0)))
SOP(s_cls_i32_i64, d = leading_signs64(static_cast<uint64_t>(s0)))
SOP(s_sext_i32_i8, d = static_cast<int8_t>(s0))
SOP(s_sext_i32_i16, d = static_cast<int16_t>(s0))
SOP(s_bitset0_b32, d &= ~(1u << (s0 & 31)))
SOP(s_bitset0_b64, d &= ~(1ull << (s0 & 63)))
SOP(s_bitset1_b32, d |= 1u << (s0 & 31))
SOP(s_bitset1_b64, d |= 1ull << (s0 & 63))
SOP(s_bitreplicate_b64_b32, d = replicate_bits(s0))
SOP_TEST(s_abs_i32, s0 < 0 ? static_cast<int32_t>(-static_cast<uint32_t>(s0)) : s0)
SOP_TEST(s_bcnt0_i32_b32, 32 - __builtin_popcount(s0))
SOP_TEST(s_bcnt0_i32_b64, 64 - __builtin_popcountll(s0))
SOP_TEST(s_bcnt1_i32_b32, __builtin_popcount(s0))
SOP_TEST(s_bcnt1_i32_b64, __builtin_popcountll(s0))
SOP_TEST(s_quadmask_b32, quad_mask(s0))
SOP_TEST(s_quadmask_b64, quad_mask(s0))
SOP_TEST(s_wqm_b32, whole_quads(s0))
SOP_TEST(s_wqm_b64, whole_quads(s0))
SOP_TEST(s_not_b32, ~s0)
SOP_TEST(s_not_b64, ~s0)

uint64_t exec64(const Wave& wave) {
    return static_cast<uint64_t>(wave.scalar[kExecLo + 1]) << 32 | wave.scalar[kExecLo];
}

// SAVEEXEC keeps the old EXEC in the destination, WREXEC the new one.
#define EXEC_OPERATION(name, expression)                                                                  \
    SOP(s_##name##_saveexec_b32, uint32_t exec = wave.scalar[kExecLo]; d = exec;                          \
        scc = (wave.scalar[kExecLo] = (expression)) != 0)                                                 \
    SOP(s_##name##_saveexec_b64, uint64_t exec = exec64(wave); d = exec; uint64_t updated = (expression); \
        write_scalar64(wave, kExecLo, updated); scc = updated != 0)
EXEC_OPERATION(and, s0& exec)
EXEC_OPERATION(or, s0 | exec)
EXEC_OPERATION(xor, s0 ^ exec)
EXEC_OPERATION(nand, ~(s0& exec))
EXEC_OPERATION(nor, ~(s0 | exec))
EXEC_OPERATION(xnor, ~(s0 ^ exec))
EXEC_OPERATION(and_not0, ~s0& exec)
EXEC_OPERATION(or_not0, ~s0 | exec)
EXEC_OPERATION(and_not1, s0 & ~exec)
EXEC_OPERATION(or_not1, s0 | ~exec)
SOP(s_and_not0_wrexec_b32, d = wave.scalar[kExecLo] = ~s0 & wave.scalar[kExecLo]; scc = d != 0)
SOP(s_and_not1_wrexec_b32, d = wave.scalar[kExecLo] = s0 & ~wave.scalar[kExecLo]; scc = d != 0)
SOP(s_and_not0_wrexec_b64, d = ~s0 & exec64(wave); write_scalar64(wave, kExecLo, d); scc = d != 0)
SOP(s_and_not1_wrexec_b64, d = s0 & ~exec64(wave); write_scalar64(wave, kExecLo, d); scc = d != 0)

SOP(s_ceil_f32, d = __builtin_ceilf(s0))
SOP(s_floor_f32, d = __builtin_floorf(s0))
SOP(s_trunc_f32, d = __builtin_truncf(s0))
SOP(s_rndne_f32, d = __builtin_roundevenf(s0))
SOP(s_ceil_f16, d = __builtin_ceilf(s0))
SOP(s_floor_f16, d = __builtin_floorf(s0))
SOP(s_trunc_f16, d = __builtin_truncf(s0))
SOP(s_rndne_f16, d = __builtin_roundevenf(s0))
SOP(s_cvt_f32_i32, d = static_cast<float>(s0))
SOP(s_cvt_f32_u32, d = static_cast<float>(s0))
SOP(s_cvt_i32_f32, d = to_integer<int32_t>(s0))
SOP(s_cvt_u32_f32, d = to_integer<uint32_t>(s0))
SOP(s_cvt_f16_f32, d = s0)
SOP(s_cvt_f32_f16, d = s0)
SOP(s_cvt_hi_f32_f16, d = half_to_float(read_scalar32(wave, instruction.source[0]) >> 16))

SOP(s_add_co_u32, d = s0 + s1; scc = d < s0)
SOP(s_sub_co_u32, d = s0 - s1; scc = s1 > s0)
SOP(s_add_co_i32, scc = __builtin_add_overflow(s0, s1, &d))
SOP(s_sub_co_i32, scc = __builtin_sub_overflow(s0, s1, &d))
SOP(s_add_co_ci_u32, uint64_t sum = static_cast<uint64_t>(s0) + s1 + scc; d = static_cast<uint32_t>(sum);
    scc = sum >> 32)
SOP(s_sub_co_ci_u32, uint64_t taken = static_cast<uint64_t>(s1) + scc; d = static_cast<uint32_t>(s0 - taken);
    scc = taken > s0)
SOP_TEST(s_absdiff_i32, [](uint32_t difference) {
    return static_cast<int32_t>(difference >> 31 ? -difference : difference);
}(static_cast<uint32_t>(s0) - static_cast<uint32_t>(s1)))
SOP_TEST(s_lshl_b32, s0 << (s1 & 31))
SOP_TEST(s_lshl_b64, s0 << (s1 & 63))
SOP_TEST(s_lshr_b32, s0 >> (s1 & 31))
SOP_TEST(s_lshr_b64, s0 >> (s1 & 63))
SOP_TEST(s_ashr_i32, s0 >> (s1 & 31))
SOP_TEST(s_ashr_i64, s0 >> (s1 & 63))
#define SHIFT_ADD(n)                                                               \
    SOP(s_lshl##n##_add_u32, uint64_t sum = (static_cast<uint64_t>(s0) << n) + s1; \
        d = static_cast<uint32_t>(sum); scc = sum >> 32 != 0)
SHIFT_ADD(1)
SHIFT_ADD(2)
SHIFT_ADD(3)
SHIFT_ADD(4)
SOP(s_min_i32, scc = s0 < s1; d = scc ? s0 : s1)
SOP(s_min_u32, scc = s0 < s1; d = scc ? s0 : s1)
SOP(s_max_i32, scc = s0 >= s1; d = scc ? s0 : s1)
SOP(s_max_u32, scc = s0 >= s1; d = scc ? s0 : s1)
#define BITWISE(name, expression)        \
    SOP_TEST(s_##name##_b32, expression) \
    SOP_TEST(s_##name##_b64, expression)
BITWISE(and, s0& s1)
BITWISE(or, s0 | s1)
BITWISE(xor, s0 ^ s1)
BITWISE(nand, ~(s0& s1))
BITWISE(nor, ~(s0 | s1))
BITWISE(xnor, ~(s0 ^ s1))
BITWISE(and_not1, s0 & ~s1)
BITWISE(or_not1, s0 | ~s1)

// A bit field of `width` bits; widths beyond the register take all of it.
template <class T>
T extract_field(T value, uint32_t where) {
    constexpr uint32_t bits = sizeof(T) * 8;
    uint32_t offset = where & (bits - 1), width = where >> 16 & 127;
    T shifted = value >> offset;
    if (width == 0) return 0;
    if (width >= bits) return shifted;
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(shifted) << (bits - width)) >> (bits - width);
}
SOP_TEST(s_bfe_u32, extract_field(s0, s1))
SOP_TEST(s_bfe_i32, extract_field(s0, static_cast<uint32_t>(s1)))
SOP_TEST(s_bfe_u64, extract_field(s0, s1))
SOP_TEST(s_bfe_i64, extract_field(s0, static_cast<uint32_t>(s1)))
SOP(s_bfm_b32, d = ((1u << (s0 & 31)) - 1) << (s1 & 31))
SOP(s_bfm_b64, d = ((1ull << (s0 & 63)) - 1) << (s1 & 63))
SOP(s_mul_i32, d = static_cast<int32_t>(static_cast<uint32_t>(s0) * static_cast<uint32_t>(s1)))
SOP(s_mul_hi_u32, d = static_cast<uint32_t>((static_cast<uint64_t>(s0) * s1) >> 32))
SOP(s_mul_hi_i32, d = static_cast<int32_t>((static_cast<int64_t>(s0) * s1) >> 32))
SOP(s_cselect_b32, d = scc ? s0 : s1)
SOP(s_cselect_b64, d = scc ? s0 : s1)
uint32_t first_dword(const Wave& wave, const Instruction& instruction) {
    return read_scalar32(wave, instruction.source[0]);
}
uint32_t second_dword(const Wave& wave, const Instruction& instruction) {
    return read_scalar32(wave, instruction.source[1]);
}
#define PACK(name, low, high)                                                 \
    SOP(s_pack_##name##_b32_b16, uint32_t a = first_dword(wave, instruction); \
        uint32_t b = second_dword(wave, instruction); d = ((low) & 0xffff) | (high) << 16)
PACK(ll, a, b)
PACK(lh, a, b >> 16)
PACK(hh, a >> 16, b >> 16)
PACK(hl, a >> 16, b)
SOP(s_add_nc_u64, d = s0 + s1)
SOP(s_sub_nc_u64, d = s0 - s1)
SOP(s_mul_u64, d = s0 * s1)

#define FLOAT_PAIR(name, expression)    \
    SOP(s_##name##_f32, d = expression) \
    SOP(s_##name##_f16, d = expression)
FLOAT_PAIR(add, s0 + s1)
FLOAT_PAIR(sub, s0 - s1)
FLOAT_PAIR(mul, s0* s1)
FLOAT_PAIR(min_num, min_number(s0, s1))
FLOAT_PAIR(max_num, max_number(s0, s1))
FLOAT_PAIR(minimum, minimum(s0, s1))
FLOAT_PAIR(maximum, maximum(s0, s1))
SOP(s_fmac_f32, d = __builtin_fmaf(s0, s1, d))
SOP(s_fmac_f16, d = fma_half(s0, s1, d))
SOP(s_fmaak_f32, d = __builtin_fmaf(s0, s1, as_float(instruction.literal)))
SOP(s_fmamk_f32, d = __builtin_fmaf(s0, as_float(instruction.literal), s1))
SOP(s_cvt_pk_rtz_f16_f32, d = pack_half_toward_zero(s0, s1))

#define COMPARE_WORDS(type)              \
    SOP(s_cmp_eq_##type, scc = s0 == s1) \
    SOP(s_cmp_lg_##type, scc = s0 != s1) \
    SOP(s_cmp_gt_##type, scc = s0 > s1)  \
    SOP(s_cmp_ge_##type, scc = s0 >= s1) \
    SOP(s_cmp_lt_##type, scc = s0 < s1)  \
    SOP(s_cmp_le_##type, scc = s0 <= s1)
COMPARE_WORDS(i32)
COMPARE_WORDS(u32)
SOP(s_cmp_eq_u64, scc = s0 == s1)
SOP(s_cmp_lg_u64, scc = s0 != s1)
SOP(s_bitcmp0_b32, scc = !(s0 >> (s1 & 31) & 1))
SOP(s_bitcmp1_b32, scc = s0 >> (s1 & 31) & 1)
SOP(s_bitcmp0_b64, scc = !(s0 >> (s1 & 63) & 1))
SOP(s_bitcmp1_b64, scc = s0 >> (s1 & 63) & 1)
#define COMPARE_FLOAT_PAIR(name, expression)  \
    SOP(s_cmp_##name##_f32, scc = expression) \
    SOP(s_cmp_##name##_f16, scc = expression)
COMPARE_FLOAT_PAIR(lt, s0 < s1)
COMPARE_FLOAT_PAIR(eq, s0 == s1)
COMPARE_FLOAT_PAIR(le, s0 <= s1)
COMPARE_FLOAT_PAIR(gt, s0 > s1)
COMPARE_FLOAT_PAIR(lg, s0<s1 || s0> s1)
COMPARE_FLOAT_PAIR(ge, s0 >= s1)
COMPARE_FLOAT_PAIR(o, s0 == s0 && s1 == s1)
COMPARE_FLOAT_PAIR(u, s0 != s0 || s1 != s1)
COMPARE_FLOAT_PAIR(nge, !(s0 >= s1))
COMPARE_FLOAT_PAIR(nlg, !(s0 < s1 || s0 > s1))
COMPARE_FLOAT_PAIR(ngt, !(s0 > s1))
COMPARE_FLOAT_PAIR(nle, !(s0 <= s1))
COMPARE_FLOAT_PAIR(neq, !(s0 == s1))
COMPARE_FLOAT_PAIR(nlt, !(s0 < s1))

SOP(s_movk_i32, d = instruction.immediate)
SOP(s_cmovk_i32, d = scc ? instruction.immediate : d)
SOP(s_addk_co_i32, scc = __builtin_add_overflow(d, instruction.immediate, &d))
SOP(s_mulk_i32,
    d = static_cast<int32_t>(static_cast<uint32_t>(d) * static_cast<uint32_t>(instruction.immediate)))

template <size_t... i>
void add_rows(RowTable& table, std::index_sequence<i...>) {
    auto add = [&table]<Mnemonic m>() {
        if constexpr (requires { ScalarEffect<m>::kExists; })
            table[static_cast<size_t>(m)] = {execute_scalar<m>, nullptr, Issue::kScalar, false};
    };
    (add.template operator()<static_cast<Mnemonic>(i)>(), ...);
}

}  // namespace

void add_scalar_rows(RowTable& table) { add_rows(table, std::make_index_sequence<kMnemonics>()); }

}  // namespace virtual_gpu
