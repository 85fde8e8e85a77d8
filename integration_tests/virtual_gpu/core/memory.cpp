// SPDX-License-Identifier: MIT
#include "core/memory.h"

#include <cstdio>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <utility>

namespace virtual_gpu {
namespace {

struct Allocation {
    uint64_t end;
    std::string name;
};

struct Registry {
    std::shared_mutex mutex;
    std::map<uint64_t, Allocation> by_begin;
};

// Never destroyed: libraries free memory through allocator_watch.cpp until the process is gone.
Registry& registry() {
    static auto* instance = new Registry;
    return *instance;
}

// The allocation with the largest begin <= address, or end().
auto allocation_at_or_below(const std::map<uint64_t, Allocation>& by_begin, uint64_t address) {
    auto above = by_begin.upper_bound(address);
    return above == by_begin.begin() ? by_begin.end() : std::prev(above);
}

std::string describe(uint64_t distance, const char* place, uint64_t begin, const Allocation& allocation) {
    char text[160];
    std::snprintf(text, sizeof text, "%llu bytes %s ", (unsigned long long)distance, place);
    std::string result = text + allocation.name;
    std::snprintf(text, sizeof text, " [0x%llx, 0x%llx), %llu bytes", (unsigned long long)begin,
                  (unsigned long long)allocation.end, (unsigned long long)(allocation.end - begin));
    return result + text;
}

}  // namespace

void add_allocation(uint64_t address, uint64_t bytes, std::string name) {
    auto& [mutex, by_begin] = registry();
    std::unique_lock lock(mutex);
    // Two live allocations cannot overlap: whatever is still recorded there was freed unseen.
    auto stale = allocation_at_or_below(by_begin, address);
    if (stale == by_begin.end() || (stale->first != address && stale->second.end <= address))
        stale = by_begin.upper_bound(address);
    while (stale != by_begin.end() && (stale->first < address + bytes || stale->first == address))
        stale = by_begin.erase(stale);
    by_begin.emplace(address, Allocation{address + bytes, std::move(name)});
}

bool remove_allocation(uint64_t address, uint64_t* bytes) {
    auto& [mutex, by_begin] = registry();
    std::unique_lock lock(mutex);
    const auto found = by_begin.find(address);
    if (found == by_begin.end()) return false;
    if (bytes) *bytes = found->second.end - address;
    by_begin.erase(found);
    return true;
}

bool find_allocation(uint64_t address, uint64_t bytes, AllocationHint& hint) {
    auto& [mutex, by_begin] = registry();
    std::shared_lock lock(mutex);
    auto found = allocation_at_or_below(by_begin, address);
    if (found == by_begin.end() || address > found->second.end || bytes > found->second.end - address)
        return false;
    hint = {found->first, found->second.end};
    return true;
}

std::string describe_nearest_allocation(uint64_t address) {
    // Beyond this the neighbour has nothing to do with the access.
    constexpr uint64_t kNear = uint64_t(1) << 30;
    auto& [mutex, by_begin] = registry();
    std::shared_lock lock(mutex);
    auto below = allocation_at_or_below(by_begin, address);
    auto above = by_begin.upper_bound(address);
    uint64_t past = kNear, before = kNear;
    if (below != by_begin.end()) {
        if (address < below->second.end)
            return describe(address - below->first, "into", below->first, below->second);
        past = address - below->second.end;
    }
    if (above != by_begin.end()) before = above->first - address;
    if (past >= kNear && before >= kNear) return "no allocation is near";
    return past <= before ? describe(past, "past the end of", below->first, below->second)
                          : describe(before, "before", above->first, above->second);
}

}  // namespace virtual_gpu
