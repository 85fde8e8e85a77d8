// SPDX-License-Identifier: MIT
// Memory that nobody has written yet, and memory that was given back: how the sanitizer knows both in memory
// that the host writes without telling.
//
// While `watching`, new allocations are filled with a pattern that depends on the address, so that a word
// which still holds it was written by nobody (2^-64 for chance), and freed memory is kept back for a while,
// so that stale pointers reach no newer allocation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace virtual_gpu {

void watch_fresh_memory(bool watching);
bool watching_fresh_memory();

// Bytes to ask for beyond an allocation's end while watching: no neighbour is nearer.
constexpr size_t kGuardBytes = 4096;

// What is larger holds anything and counts as written.
constexpr size_t kLargestFilled = size_t(256) << 20;

void fill_fresh(void* memory, size_t bytes);

// A bit for each byte of [address, address + bytes), bytes <= 64, that is still fresh. `end` is the end of
// the allocation. Words that are partly written count as written.
uint64_t fresh_bytes(uint64_t address, uint32_t bytes, uint64_t end);

// Frees memory from malloc or posix_memalign, now or, while watching, later.
void free_later(void* memory, size_t bytes);

}  // namespace virtual_gpu
