// SPDX-License-Identifier: MIT
// LDS instructions.
#include "core/memory_access.h"
#include "core/tables.h"
#include "core/vector.h"

namespace virtual_gpu {
namespace {

using F = fields::DS;
using LaneArray = uint32_t[kLanes];

uint32_t offset16(const Instruction& instruction) {
    return F::offset0.of(instruction.words) | F::offset1.of(instruction.words) << 8;
}
template <class Effect>
void each_active_lane(const Wave& wave, Effect effect) {
    for (uint32_t mask = wave.scalar[kExecLo]; mask; mask &= mask - 1) effect(__builtin_ctz(mask));
}
// VGPRs of an operand of several dwords, checked once.
struct Registers {
    uint32_t (*vgpr)[kLanes];
    Registers(Wave& wave, uint32_t first, int dwords) : vgpr(&wave.vgpr[first]) {
        checked_vgpr(first + dwords - 1);
    }
    uint32_t& at(int dword, int lane) const { return vgpr[dword][lane]; }
};
template <class T>
T read_as(const Registers& registers, int lane) {
    T value = registers.at(0, lane);
    if constexpr (sizeof(T) == 8) value |= static_cast<T>(registers.at(1, lane)) << 32;
    return value;
}
template <class T>
void write_as(const Registers& registers, int lane, T value) {
    registers.at(0, lane) = static_cast<uint32_t>(value);
    if constexpr (sizeof(T) == 8) registers.at(1, lane) = static_cast<uint32_t>(value >> 32);
}

template <int dwords>
void load(Wave& wave, const Instruction& instruction) {
    const uint32_t* address = wave.vgpr[F::addr.of(instruction.words)];
    Registers out(wave, F::vdst.of(instruction.words), dwords);
    uint32_t offset = offset16(instruction);
    each_active_lane(wave, [&](int lane) {
        uint32_t values[dwords];
        std::memcpy(values, lds_bytes(wave, Access::kLoad, lane, address[lane] + offset, 4 * dwords),
                    sizeof values);
        for (int d = 0; d < dwords; ++d) out.at(d, lane) = values[d];
    });
}
template <int bytes, Fill fill>
void load_small(Wave& wave, const Instruction& instruction) {
    const uint32_t* address = wave.vgpr[F::addr.of(instruction.words)];
    uint32_t *out = wave.vgpr[F::vdst.of(instruction.words)], offset = offset16(instruction);
    each_active_lane(wave, [&](int lane) {
        out[lane] = load_narrow<bytes, fill>(
            lds_bytes(wave, Access::kLoad, lane, address[lane] + offset, bytes), out[lane]);
    });
}
template <int dwords>
void store(Wave& wave, const Instruction& instruction) {
    const uint32_t* address = wave.vgpr[F::addr.of(instruction.words)];
    Registers data(wave, F::data0.of(instruction.words), dwords);
    uint32_t offset = offset16(instruction);
    each_active_lane(wave, [&](int lane) {
        uint32_t values[dwords];
        for (int d = 0; d < dwords; ++d) values[d] = data.at(d, lane);
        std::memcpy(lds_bytes(wave, Access::kStore, lane, address[lane] + offset, 4 * dwords), values,
                    sizeof values);
    });
}
template <int bytes, int shift>
void store_small(Wave& wave, const Instruction& instruction) {
    const uint32_t *address = wave.vgpr[F::addr.of(instruction.words)],
                   *data = wave.vgpr[F::data0.of(instruction.words)];
    uint32_t offset = offset16(instruction);
    each_active_lane(wave, [&](int lane) {
        uint32_t value = data[lane] >> shift;
        std::memcpy(lds_bytes(wave, Access::kStore, lane, address[lane] + offset, bytes), &value, bytes);
    });
}
// Two elements of type T, at offsets counted in `stride` elements.
template <class T, int stride>
void load_two(Wave& wave, const Instruction& instruction) {
    constexpr int dwords = sizeof(T) / 4;
    const uint32_t* address = wave.vgpr[F::addr.of(instruction.words)];
    Registers first(wave, F::vdst.of(instruction.words), 2 * dwords),
        second(wave, F::vdst.of(instruction.words) + dwords, dwords);
    uint32_t unit = sizeof(T) * stride;
    uint32_t offsets[2] = {F::offset0.of(instruction.words) * unit, F::offset1.of(instruction.words) * unit};
    each_active_lane(wave, [&](int lane) {
        T values[2];
        for (int i = 0; i < 2; ++i)
            std::memcpy(&values[i],
                        lds_bytes(wave, Access::kLoad, lane, address[lane] + offsets[i], sizeof(T)),
                        sizeof(T));
        write_as(first, lane, values[0]);
        write_as(second, lane, values[1]);
    });
}
template <class T, int stride>
void store_two(Wave& wave, const Instruction& instruction) {
    constexpr int dwords = sizeof(T) / 4;
    const uint32_t* address = wave.vgpr[F::addr.of(instruction.words)];
    Registers first(wave, F::data0.of(instruction.words), dwords),
        second(wave, F::data1.of(instruction.words), dwords);
    uint32_t unit = sizeof(T) * stride;
    uint32_t offsets[2] = {F::offset0.of(instruction.words) * unit, F::offset1.of(instruction.words) * unit};
    each_active_lane(wave, [&](int lane) {
        T values[2] = {read_as<T>(first, lane), read_as<T>(second, lane)};
        for (int i = 0; i < 2; ++i)
            std::memcpy(lds_bytes(wave, Access::kStore, lane, address[lane] + offsets[i], sizeof(T)),
                        &values[i], sizeof(T));
    });
}
template <class T, int stride>
void exchange_two(Wave& wave, const Instruction& instruction) {
    constexpr int dwords = sizeof(T) / 4;
    const uint32_t* address = wave.vgpr[F::addr.of(instruction.words)];
    Registers first(wave, F::data0.of(instruction.words), dwords),
        second(wave, F::data1.of(instruction.words), dwords);
    Registers out0(wave, F::vdst.of(instruction.words), dwords),
        out1(wave, F::vdst.of(instruction.words) + dwords, dwords);
    uint32_t unit = sizeof(T) * stride;
    uint32_t offsets[2] = {F::offset0.of(instruction.words) * unit, F::offset1.of(instruction.words) * unit};
    each_active_lane(wave, [&](int lane) {
        T data[2] = {read_as<T>(first, lane), read_as<T>(second, lane)}, old[2];
        uint8_t* host[2];
        for (int i = 0; i < 2; ++i)
            host[i] = lds_bytes(wave, Access::kAtomic, lane, address[lane] + offsets[i], sizeof(T));
        for (int i = 0; i < 2; ++i) std::memcpy(&old[i], host[i], sizeof(T));
        for (int i = 0; i < 2; ++i) std::memcpy(host[i], &data[i], sizeof(T));
        write_as(out0, lane, old[0]);
        write_as(out1, lane, old[1]);
    });
}

// The waves of a work-group share one host thread: LDS atomics need no host atomics.
template <class T, T (*effect)(T, T, T), bool returns, bool two_operands>
void atomic(Wave& wave, const Instruction& instruction) {
    constexpr int dwords = sizeof(T) / 4;
    const uint32_t* address = wave.vgpr[F::addr.of(instruction.words)];
    Registers data(wave, F::data0.of(instruction.words), dwords);
    Registers second(wave, two_operands ? F::data1.of(instruction.words) : F::data0.of(instruction.words),
                     dwords);
    Registers out(wave, returns ? F::vdst.of(instruction.words) : 0, dwords);
    uint32_t offset = offset16(instruction);
    each_active_lane(wave, [&](int lane) {
        uint8_t* host = lds_bytes(wave, Access::kAtomic, lane, address[lane] + offset, sizeof(T));
        T old, updated;
        std::memcpy(&old, host, sizeof old);
        updated = effect(old, read_as<T>(data, lane), read_as<T>(second, lane));
        std::memcpy(host, &updated, sizeof updated);
        if (returns) write_as(out, lane, old);
    });
}

template <bool is_store>
void add_thread_id(Wave& wave, const Instruction& instruction) {
    uint32_t base = offset16(instruction) + (wave.scalar[kM0] & 0xffff);
    uint32_t* out = wave.vgpr[is_store ? F::data0.of(instruction.words) : F::vdst.of(instruction.words)];
    each_active_lane(wave, [&](int lane) {
        Access access = is_store ? Access::kStore : Access::kLoad;
        uint8_t* host = lds_bytes(wave, access, lane, base + static_cast<uint32_t>(lane) * 4, 4);
        if (is_store)
            std::memcpy(host, &out[lane], 4);
        else
            std::memcpy(&out[lane], host, 4);
    });
}

// A wave-wide counter in LDS: every active lane gets the value before.
template <bool append>
void count(Wave& wave, const Instruction& instruction) {
    uint8_t* host = lds_bytes(wave, Access::kAtomic, kScalarLane, offset16(instruction), 4);
    uint32_t old, active = static_cast<uint32_t>(__builtin_popcount(wave.scalar[kExecLo]));
    std::memcpy(&old, host, 4);
    uint32_t updated = append ? old + active : old - active;
    std::memcpy(host, &updated, 4);
    LaneArray values;
    for (uint32_t& value : values) value = old;
    write_vgpr(wave, F::vdst.of(instruction.words), values, wave.scalar[kExecLo]);
}

// Data goes to lane address/4; among lanes with one target the highest wins, and lanes that get nothing read
// 0.
void permute_forward(Wave& wave, const Instruction& instruction) {
    const uint32_t *address = wave.vgpr[F::addr.of(instruction.words)],
                   *data = wave.vgpr[F::data0.of(instruction.words)];
    LaneArray out = {};
    uint32_t offset = offset16(instruction);
    each_active_lane(wave, [&](int lane) { out[(address[lane] + offset) / 4 % kLanes] = data[lane]; });
    write_vgpr(wave, F::vdst.of(instruction.words), out, wave.scalar[kExecLo]);
}
template <bool fetch_inactive>
void permute_backward(Wave& wave, const Instruction& instruction) {
    const uint32_t *address = wave.vgpr[F::addr.of(instruction.words)],
                   *data = wave.vgpr[F::data0.of(instruction.words)];
    uint32_t exec = wave.scalar[kExecLo], offset = offset16(instruction);
    LaneArray out;
    for (int lane = 0; lane < kLanes; ++lane) {
        uint32_t source = (address[lane] + offset) / 4 % kLanes;
        out[lane] = fetch_inactive || (exec >> source & 1) ? data[source] : 0;
    }
    write_vgpr(wave, F::vdst.of(instruction.words), out, exec);
}

// The source lane of DS_SWIZZLE: FFT (0xe000 and above), rotation
// (0xc000), quad permutation (0x8000) or bit masks.
uint32_t swizzle_source(uint32_t lane, uint32_t offset) {
    if (offset >= 0xe000) {
        uint32_t mask = offset & 31, reversed = __builtin_bitreverse32(lane) >> 27;
        return (reversed >> __builtin_popcount(mask)) | (lane & mask);
    }
    if (offset >= 0xc000) {
        uint32_t mask = offset & 31, amount = offset >> 5 & 31;
        uint32_t moved = offset & 0x400 ? lane - amount : lane + amount;
        return (lane & mask) | (moved & ~mask & 31);
    }
    if (offset & 0x8000) return (lane & ~3u) | (offset >> (2 * (lane & 3)) & 3);
    return (((lane & offset) | (offset >> 5)) ^ (offset >> 10)) & 31;
}
void swizzle(Wave& wave, const Instruction& instruction) {
    const uint32_t* data = wave.vgpr[F::addr.of(instruction.words)];
    uint32_t exec = wave.scalar[kExecLo], offset = offset16(instruction);
    LaneArray out;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
        uint32_t source = swizzle_source(lane, offset);
        out[lane] = exec >> source & 1 ? data[source] : 0;
    }
    write_vgpr(wave, F::vdst.of(instruction.words), out, exec);
}
void nothing(Wave&, const Instruction&) {}

struct Adder {
    RowTable& table;
    void operator()(Mnemonic mnemonic, Execute execute) const {
        table[static_cast<size_t>(mnemonic)] = {execute, nullptr, Issue::kLds, false};
    }
    template <class T, T (*effect)(T, T, T), bool two_operands = false>
    void atomic_pair(Mnemonic plain, Mnemonic returning) const {
        (*this)(plain, atomic<T, effect, false, two_operands>);
        (*this)(returning, atomic<T, effect, true, two_operands>);
    }
};

void add_atomics(const Adder& add) {
    using enum Mnemonic;
    using namespace atomics;
#define BOTH_WIDTHS(name, returning, kind, effect)                                          \
    add.atomic_pair<uint32_t, effect>(ds_##name##_##kind##32, ds_##returning##_##kind##32); \
    add.atomic_pair<uint64_t, effect>(ds_##name##_##kind##64, ds_##returning##_##kind##64);
    BOTH_WIDTHS(add, add_rtn, u, atomics::add)
    BOTH_WIDTHS(sub, sub_rtn, u, subtract)
    BOTH_WIDTHS(rsub, rsub_rtn, u, reverse_subtract)
    BOTH_WIDTHS(inc, inc_rtn, u, increment)
    BOTH_WIDTHS(dec, dec_rtn, u, decrement)
    BOTH_WIDTHS(min, min_rtn, i, min_signed)
    BOTH_WIDTHS(max, max_rtn, i, max_signed)
    BOTH_WIDTHS(min, min_rtn, u, min_unsigned)
    BOTH_WIDTHS(max, max_rtn, u, max_unsigned)
    BOTH_WIDTHS(and, and_rtn, b, bit_and)
    BOTH_WIDTHS(or, or_rtn, b, bit_or)
    BOTH_WIDTHS(xor, xor_rtn, b, bit_xor)
#undef BOTH_WIDTHS
    add.atomic_pair<uint32_t, masked_or, true>(ds_mskor_b32, ds_mskor_rtn_b32);
    add.atomic_pair<uint64_t, masked_or, true>(ds_mskor_b64, ds_mskor_rtn_b64);
    add.atomic_pair<uint32_t, compare_exchange, true>(ds_cmpstore_b32, ds_cmpstore_rtn_b32);
    add.atomic_pair<uint64_t, compare_exchange, true>(ds_cmpstore_b64, ds_cmpstore_rtn_b64);
    add.atomic_pair<uint32_t, add_f32>(ds_add_f32, ds_add_rtn_f32);
    add.atomic_pair<uint32_t, min_f32>(ds_min_num_f32, ds_min_num_rtn_f32);
    add.atomic_pair<uint32_t, max_f32>(ds_max_num_f32, ds_max_num_rtn_f32);
    add.atomic_pair<uint64_t, min_f64>(ds_min_num_f64, ds_min_num_rtn_f64);
    add.atomic_pair<uint64_t, max_f64>(ds_max_num_f64, ds_max_num_rtn_f64);
    add.atomic_pair<uint32_t, subtract_if_enough>(ds_cond_sub_u32, ds_cond_sub_rtn_u32);
    add.atomic_pair<uint32_t, subtract_clamped>(ds_sub_clamp_u32, ds_sub_clamp_rtn_u32);
    add.atomic_pair<uint32_t, pair_add_f16>(ds_pk_add_f16, ds_pk_add_rtn_f16);
    add.atomic_pair<uint32_t, pair_add_bf16>(ds_pk_add_bf16, ds_pk_add_rtn_bf16);
    add(ds_storexchg_rtn_b32, atomic<uint32_t, exchange, true, false>);
    add(ds_storexchg_rtn_b64, atomic<uint64_t, exchange, true, false>);
    add(ds_storexchg_2addr_rtn_b32, exchange_two<uint32_t, 1>);
    add(ds_storexchg_2addr_stride64_rtn_b32, exchange_two<uint32_t, 64>);
    add(ds_storexchg_2addr_rtn_b64, exchange_two<uint64_t, 1>);
    add(ds_storexchg_2addr_stride64_rtn_b64, exchange_two<uint64_t, 64>);
}

}  // namespace

void add_lds_rows(RowTable& table) {
    Adder add{table};
    using enum Mnemonic;
    add(ds_nop, nothing);
    add(ds_load_b32, load<1>);
    add(ds_load_b64, load<2>);
    add(ds_load_b96, load<3>);
    add(ds_load_b128, load<4>);
    add(ds_store_b32, store<1>);
    add(ds_store_b64, store<2>);
    add(ds_store_b96, store<3>);
    add(ds_store_b128, store<4>);
    add(ds_load_u8, load_small<1, Fill::kUnsigned>);
    add(ds_load_i8, load_small<1, Fill::kSigned>);
    add(ds_load_u16, load_small<2, Fill::kUnsigned>);
    add(ds_load_i16, load_small<2, Fill::kSigned>);
    add(ds_load_u8_d16, load_small<1, Fill::kLowHalf>);
    add(ds_load_i8_d16, load_small<1, Fill::kLowHalfSigned>);
    add(ds_load_u16_d16, load_small<2, Fill::kLowHalf>);
    add(ds_load_u8_d16_hi, load_small<1, Fill::kHighHalf>);
    add(ds_load_i8_d16_hi, load_small<1, Fill::kHighHalfSigned>);
    add(ds_load_u16_d16_hi, load_small<2, Fill::kHighHalf>);
    add(ds_store_b8, store_small<1, 0>);
    add(ds_store_b16, store_small<2, 0>);
    add(ds_store_b8_d16_hi, store_small<1, 16>);
    add(ds_store_b16_d16_hi, store_small<2, 16>);
    add(ds_load_2addr_b32, load_two<uint32_t, 1>);
    add(ds_load_2addr_stride64_b32, load_two<uint32_t, 64>);
    add(ds_load_2addr_b64, load_two<uint64_t, 1>);
    add(ds_load_2addr_stride64_b64, load_two<uint64_t, 64>);
    add(ds_store_2addr_b32, store_two<uint32_t, 1>);
    add(ds_store_2addr_stride64_b32, store_two<uint32_t, 64>);
    add(ds_store_2addr_b64, store_two<uint64_t, 1>);
    add(ds_store_2addr_stride64_b64, store_two<uint64_t, 64>);
    add(ds_store_addtid_b32, add_thread_id<true>);
    add(ds_load_addtid_b32, add_thread_id<false>);
    add(ds_append, count<true>);
    add(ds_consume, count<false>);
    add(ds_permute_b32, permute_forward);
    add(ds_bpermute_b32, permute_backward<false>);
    add(ds_bpermute_fi_b32, permute_backward<true>);
    add(ds_swizzle_b32, swizzle);
    add_atomics(add);
}

}  // namespace virtual_gpu
