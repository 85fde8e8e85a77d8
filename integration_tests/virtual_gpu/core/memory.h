// SPDX-License-Identifier: MIT
// Global memory: host memory is device memory, and every access must lie inside one live allocation.
#pragma once

#include <cstdint>
#include <string>

namespace virtual_gpu {

// One wave's memory of the allocation it touched last. Accesses cluster, so most look-ups end here.
struct AllocationHint {
    uint64_t begin = 0;
    uint64_t end = 0;
};

// Starts tracking [address, address + bytes). `name` appears in fault texts, for example "hipMalloc #3".
void add_allocation(uint64_t address, uint64_t bytes, std::string name);
// Stops tracking the allocation that starts at `address`; later accesses fault. False when none starts there.
// Its size is left in `bytes`, if given.
bool remove_allocation(uint64_t address, uint64_t* bytes = nullptr);

// True when [address, address + bytes) lies in one live allocation, which then is left in `hint`.
bool find_allocation(uint64_t address, uint64_t bytes, AllocationHint& hint);

// "16 bytes past the end of hipMalloc #3 [0x..., 0x...), 4096 bytes", or "no allocation is near".
std::string describe_nearest_allocation(uint64_t address);

// The host pointer for a guest access, or nullptr when it lies outside every live allocation.
inline uint8_t* resolve_global(uint64_t address, uint64_t bytes, AllocationHint& hint) {
    if (address >= hint.begin && address <= hint.end && bytes <= hint.end - address)
        return reinterpret_cast<uint8_t*>(address);
    return find_allocation(address, bytes, hint) ? reinterpret_cast<uint8_t*>(address) : nullptr;
}

}  // namespace virtual_gpu
