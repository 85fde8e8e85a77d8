// SPDX-License-Identifier: MIT
#include "core/memory_access.h"

#include <cstdio>
#include <string>

#include "core/observer.h"

namespace virtual_gpu {
namespace {

const char* name_of(Access access) {
    return access == Access::kLoad ? "load" : access == Access::kStore ? "store" : "atomic";
}
std::string text_of(Access access, const char* space, uint64_t address, uint32_t bytes) {
    char text[96];
    std::snprintf(text, sizeof text, "%s %s of %u bytes at 0x%llx", space, name_of(access), bytes,
                  static_cast<unsigned long long>(address));
    return text;
}

}  // namespace

void observe_access(Wave& wave, Space space, Access access, int lane, uint64_t address, uint32_t bytes,
                    uint8_t* host) {
    wave.observer->access(wave, {space, access, lane, address, bytes, host});
}

void fault_global(Access access, uint64_t address, uint32_t bytes) {
    throw IllegalAccess(text_of(access, "global", address, bytes) + ": " +
                        describe_nearest_allocation(address));
}
void fault_lds(Access access, uint64_t address, uint32_t bytes, size_t size) {
    throw IllegalAccess(text_of(access, "LDS", address, bytes) + ": the work-group has " +
                        std::to_string(size) + " bytes");
}
void fault_scratch(Access access, int64_t offset, uint32_t bytes, uint32_t size) {
    throw IllegalAccess(text_of(access, "scratch", static_cast<uint64_t>(offset), bytes) + ": a lane has " +
                        std::to_string(size) + " bytes");
}
void fault_alignment(Access access, uint64_t address, uint32_t bytes) {
    throw IllegalAccess(text_of(access, "misaligned", address, bytes));
}

}  // namespace virtual_gpu
