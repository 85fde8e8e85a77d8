// SPDX-License-Identifier: MIT
// Checked accesses of waves to global memory, LDS and scratch, and the atomic operations on all three.
#pragma once

#include <cstring>

#include "core/faults.h"
#include "core/memory_kinds.h"
#include "core/numeric.h"
#include "core/wave.h"

namespace virtual_gpu {

[[noreturn]] void fault_global(Access access, uint64_t address, uint32_t bytes);
[[noreturn]] void fault_lds(Access access, uint64_t address, uint32_t bytes, size_t size);
[[noreturn]] void fault_scratch(Access access, int64_t offset, uint32_t bytes, uint32_t size);
[[noreturn]] void fault_alignment(Access access, uint64_t address, uint32_t bytes);

// Tells the wave's observer; out of line, because normal runs have none.
void observe_access(Wave& wave, Space space, Access access, int lane, uint64_t address, uint32_t bytes,
                    uint8_t* host);

inline uint8_t* global_bytes(Wave& wave, Access access, int lane, uint64_t address, uint32_t bytes) {
    uint8_t* host = resolve_global(address, bytes, wave.hint);
    if (!host) fault_global(access, address, bytes);
    if (wave.observer) [[unlikely]]
        observe_access(wave, Space::kGlobal, access, lane, address, bytes, host);
    return host;
}
// LDS is in unaligned mode, as HIP configures it: loads and stores of any width work at any address. Atomics
// need their natural alignment.
inline uint8_t* lds_bytes(Wave& wave, Access access, int lane, uint64_t address, uint32_t bytes) {
    std::vector<uint8_t>& lds = wave.workgroup->lds;
    if (address > lds.size() || bytes > lds.size() - address) fault_lds(access, address, bytes, lds.size());
    if (access == Access::kAtomic && address % bytes) fault_alignment(access, address, bytes);
    uint8_t* host = lds.data() + address;
    if (wave.observer) [[unlikely]]
        observe_access(wave, Space::kLds, access, lane, address, bytes, host);
    return host;
}
inline uint8_t* scratch_bytes(Wave& wave, Access access, int lane, int64_t offset, uint32_t bytes) {
    uint32_t size = wave.scratch_bytes_per_lane;
    if (offset < 0 || offset > size || bytes > size - offset) fault_scratch(access, offset, bytes, size);
    uint8_t* host = wave.scratch.data() + static_cast<size_t>(lane) * size + offset;
    if (wave.observer) [[unlikely]]
        observe_access(wave, Space::kScratch, access, lane, static_cast<uint64_t>(offset), bytes, host);
    return host;
}
// A flat address: LDS or scratch when its high half says so, else global memory.
inline uint8_t* flat_bytes(Wave& wave, Access access, int lane, uint64_t address, uint32_t bytes) {
    uint64_t high = address >> 32 << 32;
    if (high == kSharedAperture) return lds_bytes(wave, access, lane, address & 0xffffffff, bytes);
    if (high == kPrivateAperture)
        return scratch_bytes(wave, access, lane, static_cast<int64_t>(address & 0xffffffff), bytes);
    return global_bytes(wave, access, lane, address, bytes);
}

// Work-groups run on several host threads, so read-modify-write loops until nobody else wrote in between.
template <class T, class Effect>
T update_atomically(uint8_t* host, Effect effect) {
    if (reinterpret_cast<uintptr_t>(host) % sizeof(T))
        fault_alignment(Access::kAtomic, reinterpret_cast<uintptr_t>(host), sizeof(T));
    T* target = reinterpret_cast<T*>(host);
    T old = __atomic_load_n(target, __ATOMIC_RELAXED);
    while (
        !__atomic_compare_exchange_n(target, &old, effect(old), true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
    }
    return old;
}

// Atomic operations: new value from the old one, the operand and, for comparisons, a second operand.
namespace atomics {
template <class T>
T add(T old, T data, T) {
    return old + data;
}
template <class T>
T subtract(T old, T data, T) {
    return old - data;
}
template <class T>
T reverse_subtract(T old, T data, T) {
    return data - old;
}
template <class T>
T increment(T old, T data, T) {
    return old >= data ? 0 : old + 1;
}
template <class T>
T decrement(T old, T data, T) {
    return old == 0 || old > data ? data : old - 1;
}
template <class T>
T min_signed(T old, T data, T) {
    using S = std::make_signed_t<T>;
    return static_cast<S>(data) < static_cast<S>(old) ? data : old;
}
template <class T>
T max_signed(T old, T data, T) {
    using S = std::make_signed_t<T>;
    return static_cast<S>(data) >= static_cast<S>(old) ? data : old;
}
template <class T>
T min_unsigned(T old, T data, T) {
    return data < old ? data : old;
}
template <class T>
T max_unsigned(T old, T data, T) {
    return data >= old ? data : old;
}
template <class T>
T bit_and(T old, T data, T) {
    return old & data;
}
template <class T>
T bit_or(T old, T data, T) {
    return old | data;
}
template <class T>
T bit_xor(T old, T data, T) {
    return old ^ data;
}
template <class T>
T exchange(T, T data, T) {
    return data;
}
template <class T>
T compare_exchange(T old, T data, T compare) {
    return old == compare ? data : old;
}
template <class T>
T masked_or(T old, T mask, T data) {
    return (old & ~mask) | data;
}
template <class T>
T subtract_clamped(T old, T data, T) {
    return old < data ? 0 : old - data;
}
template <class T>
T subtract_if_enough(T old, T data, T) {
    return old >= data ? old - data : old;
}
inline uint32_t add_f32(uint32_t old, uint32_t data, uint32_t) {
    return as_bits(as_float(old) + as_float(data));
}
inline uint32_t min_f32(uint32_t old, uint32_t data, uint32_t) {
    return as_bits(min_number(as_float(data), as_float(old)));
}
inline uint32_t max_f32(uint32_t old, uint32_t data, uint32_t) {
    return as_bits(max_number(as_float(data), as_float(old)));
}
inline uint64_t min_f64(uint64_t old, uint64_t data, uint64_t) {
    return as_bits(min_number(as_double(data), as_double(old)));
}
inline uint64_t max_f64(uint64_t old, uint64_t data, uint64_t) {
    return as_bits(max_number(as_double(data), as_double(old)));
}
inline uint32_t pair_add_f16(uint32_t old, uint32_t data, uint32_t) {
    auto sum = [&](int shift) {
        return float_to_half(half_to_float(old >> shift & 0xffff) + half_to_float(data >> shift & 0xffff),
                             false)
               << shift;
    };
    return sum(0) | sum(16);
}
inline uint32_t pair_add_bf16(uint32_t old, uint32_t data, uint32_t) {
    auto sum = [&](int shift) {
        return float_to_bfloat(bfloat_to_float(old >> shift & 0xffff) +
                               bfloat_to_float(data >> shift & 0xffff))
               << shift;
    };
    return sum(0) | sum(16);
}
}  // namespace atomics

// How a load of fewer than 32 bits fills its VGPR: extended, or into one half with the other half kept (D16).
enum class Fill : uint8_t { kUnsigned, kSigned, kLowHalf, kLowHalfSigned, kHighHalf, kHighHalfSigned };

template <int bytes, Fill fill>
uint32_t load_narrow(const uint8_t* host, uint32_t old) {
    uint32_t bits = 0;
    std::memcpy(&bits, host, bytes);
    constexpr bool is_signed =
        fill == Fill::kSigned || fill == Fill::kLowHalfSigned || fill == Fill::kHighHalfSigned;
    if (is_signed)
        bits = static_cast<uint32_t>(static_cast<int32_t>(bits << (32 - 8 * bytes)) >> (32 - 8 * bytes));
    if constexpr (fill == Fill::kUnsigned || fill == Fill::kSigned)
        return bits;
    else if constexpr (fill == Fill::kLowHalf || fill == Fill::kLowHalfSigned)
        return (old & 0xffff0000) | (bits & 0xffff);
    else
        return (old & 0xffff) | bits << 16;
}

}  // namespace virtual_gpu
