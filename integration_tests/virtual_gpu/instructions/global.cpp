// SPDX-License-Identifier: MIT
// Global, flat, scratch and buffer memory instructions. They differ only in how an address is formed and
// checked.
#include "core/memory_access.h"
#include "core/tables.h"
#include "core/vector.h"

namespace virtual_gpu {
namespace {

uint64_t scalar_pair(const Wave& wave, uint32_t code) {
    return static_cast<uint64_t>(wave.scalar[code + 1]) << 32 | wave.scalar[code];
}

// An address space yields host bytes for a lane, or nullptr where the hardware quietly drops the access.
struct GlobalSpace {
    using F = fields::VGLOBAL;
    Wave& wave;
    const uint32_t *low, *high = nullptr;
    uint64_t base;
    uint32_t data, destination;
    bool returns;

    GlobalSpace(Wave& w, const Instruction& instruction) : wave(w) {
        const uint32_t* words = instruction.words;
        uint32_t saddr = F::saddr.of(words), vaddr = F::vaddr.of(words);
        low = wave.vgpr[vaddr];
        base = static_cast<uint64_t>(static_cast<int64_t>(instruction.immediate));
        if (saddr == kNull)
            high = wave.vgpr[checked_vgpr(vaddr + 1)];
        else
            base += scalar_pair(wave, saddr);
        data = F::vsrc.of(words), destination = F::vdst.of(words);
        returns = F::th.of(words) & 1;
    }
    uint64_t address(int lane) const {
        return base + low[lane] + (high ? static_cast<uint64_t>(high[lane]) << 32 : 0);
    }
    uint8_t* bytes(int lane, Access access, uint32_t offset, uint32_t count) const {
        return global_bytes(wave, access, lane, address(lane) + offset, count);
    }
};

struct FlatSpace : GlobalSpace {
    using GlobalSpace::GlobalSpace;
    uint8_t* bytes(int lane, Access access, uint32_t offset, uint32_t count) const {
        return flat_bytes(wave, access, lane, address(lane) + offset, count);
    }
};

struct ScratchSpace {
    using F = fields::VSCRATCH;
    Wave& wave;
    const uint32_t* vaddr;
    int64_t base;
    uint32_t data, destination;
    bool returns = false;

    ScratchSpace(Wave& w, const Instruction& instruction) : wave(w) {
        const uint32_t* words = instruction.words;
        uint32_t saddr = F::saddr.of(words);
        vaddr = F::sve.of(words) ? wave.vgpr[F::vaddr.of(words)] : nullptr;
        base = instruction.immediate +
               (saddr == kNull ? 0 : static_cast<int64_t>(static_cast<int32_t>(wave.scalar[saddr])));
        data = F::vsrc.of(words), destination = F::vdst.of(words);
    }
    uint8_t* bytes(int lane, Access access, uint32_t offset, uint32_t count) const {
        int64_t address = base + (vaddr ? static_cast<int64_t>(static_cast<int32_t>(vaddr[lane])) : 0);
        return scratch_bytes(wave, access, lane, address + offset, count);
    }
};

// Buffers: the descriptor's base, stride and number of records. Accesses out of range load 0 and store
// nothing.
struct BufferSpace {
    using F = fields::VBUFFER;
    Wave& wave;
    const uint32_t *index = nullptr, *offset = nullptr;
    uint64_t base, records, scalar_offset;
    int64_t immediate;
    uint32_t stride, check, data, destination;
    bool returns;

    BufferSpace(Wave& w, const Instruction& instruction) : wave(w) {
        const uint32_t* words = instruction.words;
        uint32_t vaddr = F::vaddr.of(words);
        const uint32_t* descriptor = &wave.scalar[F::rsrc.of(words)];
        if (F::rsrc.of(words) + 4 > kScalars)
            throw KernelFault("the buffer descriptor does not lie in SGPRs");
        if (F::tfe.of(words) || descriptor[1] >> 30 || descriptor[3] >> 23 & 1)
            throw NotModelled("swizzled buffers, thread-id buffers and TFE are not modelled");
        if (F::idxen.of(words)) index = wave.vgpr[vaddr];
        if (F::offen.of(words)) offset = wave.vgpr[checked_vgpr(vaddr + (index ? 1 : 0))];
        base = static_cast<uint64_t>(descriptor[1] & 0xffff) << 32 | descriptor[0];
        stride = descriptor[1] >> 16 & 0x3fff;
        records = descriptor[2];
        check = descriptor[3] >> 28 & 3;
        scalar_offset = wave.scalar[F::soffset.of(words)];
        immediate = instruction.immediate;
        data = destination = F::vdata.of(words);
        returns = F::th.of(words) & 1;
    }
    bool in_range(uint64_t record, uint64_t within, uint32_t count) const {
        switch (check) {
            case 0:
                return record < records && within + count <= stride;
            case 1:
                return record < records;
            case 2:
                return records != 0;
            default:
                return record * stride + within + scalar_offset + count <= records;
        }
    }
    uint8_t* bytes(int lane, Access access, uint32_t extra, uint32_t count) const {
        uint64_t record = index ? index[lane] : 0;
        uint64_t within =
            static_cast<uint32_t>((offset ? offset[lane] : 0) + static_cast<uint32_t>(immediate)) +
            static_cast<uint64_t>(extra);
        if (!in_range(record, within, count)) return nullptr;
        return global_bytes(wave, access, lane, base + scalar_offset + record * stride + within, count);
    }
};

template <class Effect>
void each_active_lane(const Wave& wave, Effect effect) {
    for (uint32_t mask = wave.scalar[kExecLo]; mask; mask &= mask - 1) effect(__builtin_ctz(mask));
}
// Buffers check each dword of a wide access by itself; the other spaces take it whole.
template <class Space>
constexpr bool kDwordChecked = std::is_same_v<Space, BufferSpace>;

template <class Space, int dwords>
void load(Wave& wave, const Instruction& instruction) {
    Space space(wave, instruction);
    checked_vgpr(space.destination + dwords - 1);
    each_active_lane(wave, [&](int lane) {
        uint32_t values[dwords] = {};
        if constexpr (kDwordChecked<Space>) {
            for (int d = 0; d < dwords; ++d)
                if (const uint8_t* host = space.bytes(lane, Access::kLoad, 4 * d, 4))
                    std::memcpy(&values[d], host, 4);
        } else {
            std::memcpy(values, space.bytes(lane, Access::kLoad, 0, 4 * dwords), sizeof values);
        }
        for (int d = 0; d < dwords; ++d) wave.vgpr[space.destination + d][lane] = values[d];
    });
}
template <class Space, int dwords>
void store(Wave& wave, const Instruction& instruction) {
    Space space(wave, instruction);
    checked_vgpr(space.data + dwords - 1);
    each_active_lane(wave, [&](int lane) {
        uint32_t values[dwords];
        for (int d = 0; d < dwords; ++d) values[d] = wave.vgpr[space.data + d][lane];
        if constexpr (kDwordChecked<Space>) {
            for (int d = 0; d < dwords; ++d)
                if (uint8_t* host = space.bytes(lane, Access::kStore, 4 * d, 4))
                    std::memcpy(host, &values[d], 4);
        } else {
            std::memcpy(space.bytes(lane, Access::kStore, 0, 4 * dwords), values, sizeof values);
        }
    });
}
template <class Space, int bytes, Fill fill>
void load_small(Wave& wave, const Instruction& instruction) {
    static constexpr uint8_t kZero[4] = {};
    Space space(wave, instruction);
    uint32_t* out = wave.vgpr[space.destination];
    each_active_lane(wave, [&](int lane) {
        const uint8_t* host = space.bytes(lane, Access::kLoad, 0, bytes);
        out[lane] = load_narrow<bytes, fill>(host ? host : kZero, out[lane]);
    });
}
template <class Space, int bytes, int shift>
void store_small(Wave& wave, const Instruction& instruction) {
    Space space(wave, instruction);
    const uint32_t* data = wave.vgpr[space.data];
    each_active_lane(wave, [&](int lane) {
        uint32_t value = data[lane] >> shift;
        if (uint8_t* host = space.bytes(lane, Access::kStore, 0, bytes)) std::memcpy(host, &value, bytes);
    });
}

template <class T>
T read_data(const Wave& wave, uint32_t first, int lane) {
    T value = wave.vgpr[first][lane];
    if constexpr (sizeof(T) == 8) value |= static_cast<T>(wave.vgpr[first + 1][lane]) << 32;
    return value;
}
// For comparisons the data registers hold the new value, then the value to compare with.
template <class Space, class T, T (*effect)(T, T, T)>
void atomic(Wave& wave, const Instruction& instruction) {
    constexpr int dwords = sizeof(T) / 4;
    Space space(wave, instruction);
    constexpr bool compares = effect == static_cast<T (*)(T, T, T)>(atomics::compare_exchange<T>);
    checked_vgpr(space.data + (compares ? 2 : 1) * dwords - 1);
    if (space.returns) checked_vgpr(space.destination + dwords - 1);
    each_active_lane(wave, [&](int lane) {
        T data = read_data<T>(wave, space.data, lane);
        T compare = compares ? read_data<T>(wave, space.data + dwords, lane) : 0;
        uint8_t* host = space.bytes(lane, Access::kAtomic, 0, sizeof(T));
        T old = host ? update_atomically<T>(host, [=](T value) { return effect(value, data, compare); }) : 0;
        if (!space.returns) return;
        wave.vgpr[space.destination][lane] = static_cast<uint32_t>(old);
        if constexpr (sizeof(T) == 8)
            wave.vgpr[space.destination + 1][lane] = static_cast<uint32_t>(old >> 32);
    });
}

// GLOBAL_LOAD_TR_B64 (wave32, 8-bit elements): a 16x16 byte matrix, row r in two lanes
// of 8 bytes each, becomes a WMMA operand: lane l gets column l % 16 of rows 8 * (l /
// 16) + 0..7. Lanes hold row r as 8 * (r / 4) + r % 4 (columns 0..7) and four further
// (columns 8..15), as users measured on gfx1201; AMD's pseudo-code does not say.
void load_transposed(Wave& wave, const Instruction& instruction) {
    if (wave.scalar[kExecLo] != ~0u) throw KernelFault("a transposed load needs EXEC to be all ones");
    GlobalSpace space(wave, instruction);
    checked_vgpr(space.destination + 1);
    uint8_t from[kLanes][8], to[kLanes][8];
    for (int lane = 0; lane < kLanes; ++lane)
        std::memcpy(from[lane], space.bytes(lane, Access::kLoad, 0, 8), 8);
    for (int lane = 0; lane < kLanes; ++lane)
        for (int i = 0; i < 8; ++i) {
            int row = 8 * (lane / 16) + i, column = lane % 16;
            to[lane][i] = from[8 * (row / 4) + row % 4 + 4 * (column / 8)][column % 8];
        }
    for (int lane = 0; lane < kLanes; ++lane)
        for (int d = 0; d < 2; ++d) std::memcpy(&wave.vgpr[space.destination + d][lane], to[lane] + 4 * d, 4);
}

// Wave-relative addressing: lane i takes dword i after the scalar address.
template <bool is_store>
void with_thread_id(Wave& wave, const Instruction& instruction) {
    using F = fields::VGLOBAL;
    uint32_t saddr = F::saddr.of(instruction.words);
    uint64_t base = (saddr == kNull ? 0 : scalar_pair(wave, saddr)) +
                    static_cast<uint64_t>(static_cast<int64_t>(instruction.immediate));
    uint32_t* data = wave.vgpr[is_store ? F::vsrc.of(instruction.words) : F::vdst.of(instruction.words)];
    each_active_lane(wave, [&](int lane) {
        Access access = is_store ? Access::kStore : Access::kLoad;
        uint8_t* host = global_bytes(wave, access, lane, base + 4 * static_cast<uint64_t>(lane), 4);
        if (is_store)
            std::memcpy(host, &data[lane], 4);
        else
            std::memcpy(&data[lane], host, 4);
    });
}
void nothing(Wave&, const Instruction&) {}

struct Adder {
    RowTable& table;
    void operator()(Mnemonic mnemonic, Execute execute) const {
        table[static_cast<size_t>(mnemonic)] = {execute, nullptr, Issue::kMemory, false};
    }
};

#define LOADS_AND_STORES(prefix, Space)                                        \
    add(prefix##_load_b32, load<Space, 1>);                                    \
    add(prefix##_load_b64, load<Space, 2>);                                    \
    add(prefix##_load_b96, load<Space, 3>);                                    \
    add(prefix##_load_b128, load<Space, 4>);                                   \
    add(prefix##_store_b32, store<Space, 1>);                                  \
    add(prefix##_store_b64, store<Space, 2>);                                  \
    add(prefix##_store_b96, store<Space, 3>);                                  \
    add(prefix##_store_b128, store<Space, 4>);                                 \
    add(prefix##_load_u8, load_small<Space, 1, Fill::kUnsigned>);              \
    add(prefix##_load_i8, load_small<Space, 1, Fill::kSigned>);                \
    add(prefix##_load_u16, load_small<Space, 2, Fill::kUnsigned>);             \
    add(prefix##_load_i16, load_small<Space, 2, Fill::kSigned>);               \
    add(prefix##_load_d16_u8, load_small<Space, 1, Fill::kLowHalf>);           \
    add(prefix##_load_d16_i8, load_small<Space, 1, Fill::kLowHalfSigned>);     \
    add(prefix##_load_d16_b16, load_small<Space, 2, Fill::kLowHalf>);          \
    add(prefix##_load_d16_hi_u8, load_small<Space, 1, Fill::kHighHalf>);       \
    add(prefix##_load_d16_hi_i8, load_small<Space, 1, Fill::kHighHalfSigned>); \
    add(prefix##_load_d16_hi_b16, load_small<Space, 2, Fill::kHighHalf>);      \
    add(prefix##_store_b8, store_small<Space, 1, 0>);                          \
    add(prefix##_store_b16, store_small<Space, 2, 0>);                         \
    add(prefix##_store_d16_hi_b8, store_small<Space, 1, 16>);                  \
    add(prefix##_store_d16_hi_b16, store_small<Space, 2, 16>);

#define ATOMIC_BOTH_WIDTHS(prefix, Space, name, kind, effect)                                     \
    add(prefix##_atomic_##name##_##kind##32, atomic<Space, uint32_t, atomics::effect<uint32_t>>); \
    add(prefix##_atomic_##name##_##kind##64, atomic<Space, uint64_t, atomics::effect<uint64_t>>);

#define ATOMICS(prefix, Space)                                                                         \
    ATOMIC_BOTH_WIDTHS(prefix, Space, swap, b, exchange)                                               \
    ATOMIC_BOTH_WIDTHS(prefix, Space, cmpswap, b, compare_exchange)                                    \
    ATOMIC_BOTH_WIDTHS(prefix, Space, add, u, add)                                                     \
    ATOMIC_BOTH_WIDTHS(prefix, Space, sub, u, subtract)                                                \
    ATOMIC_BOTH_WIDTHS(prefix, Space, min, i, min_signed)                                              \
    ATOMIC_BOTH_WIDTHS(prefix, Space, max, i, max_signed)                                              \
    ATOMIC_BOTH_WIDTHS(prefix, Space, min, u, min_unsigned)                                            \
    ATOMIC_BOTH_WIDTHS(prefix, Space, max, u, max_unsigned)                                            \
    ATOMIC_BOTH_WIDTHS(prefix, Space, and, b, bit_and)                                                 \
    ATOMIC_BOTH_WIDTHS(prefix, Space, or, b, bit_or)                                                   \
    ATOMIC_BOTH_WIDTHS(prefix, Space, xor, b, bit_xor)                                                 \
    ATOMIC_BOTH_WIDTHS(prefix, Space, inc, u, increment)                                               \
    ATOMIC_BOTH_WIDTHS(prefix, Space, dec, u, decrement)                                               \
    add(prefix##_atomic_sub_clamp_u32, atomic<Space, uint32_t, atomics::subtract_clamped<uint32_t>>);  \
    add(prefix##_atomic_cond_sub_u32, atomic<Space, uint32_t, atomics::subtract_if_enough<uint32_t>>); \
    add(prefix##_atomic_add_f32, atomic<Space, uint32_t, atomics::add_f32>);                           \
    add(prefix##_atomic_min_num_f32, atomic<Space, uint32_t, atomics::min_f32>);                       \
    add(prefix##_atomic_max_num_f32, atomic<Space, uint32_t, atomics::max_f32>);                       \
    add(prefix##_atomic_pk_add_f16, atomic<Space, uint32_t, atomics::pair_add_f16>);                   \
    add(prefix##_atomic_pk_add_bf16, atomic<Space, uint32_t, atomics::pair_add_bf16>);

void add_loads_and_stores(const Adder& add) {
    using enum Mnemonic;
    LOADS_AND_STORES(global, GlobalSpace)
    LOADS_AND_STORES(flat, FlatSpace)
    LOADS_AND_STORES(scratch, ScratchSpace)
    LOADS_AND_STORES(buffer, BufferSpace)
}
void add_atomics(const Adder& add) {
    using enum Mnemonic;
    ATOMICS(global, GlobalSpace)
    ATOMICS(flat, FlatSpace)
    ATOMICS(buffer, BufferSpace)
}

}  // namespace

void add_global_rows(RowTable& table) {
    Adder add{table};
    using enum Mnemonic;
    add_loads_and_stores(add);
    add_atomics(add);
    add(global_load_tr_b64, load_transposed);
    add(global_load_addtid_b32, with_thread_id<false>);
    add(global_store_addtid_b32, with_thread_id<true>);
    // Caches do not exist here: every wave sees memory at once.
    for (Mnemonic mnemonic : {global_inv, global_wb, global_wbinv})
        table[static_cast<size_t>(mnemonic)] = {nothing, nullptr, Issue::kOther, false};
}

}  // namespace virtual_gpu
