// SPDX-License-Identifier: MIT
#include "core/fresh_memory.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

namespace virtual_gpu {
namespace {

// Enough that a test's tensors do not come back within the test.
constexpr size_t kKeptBytes = size_t(256) << 20;

std::atomic<bool> watching{false};

uint64_t pattern(uint64_t word) {
    uint64_t mixed = word * 0x9e3779b97f4a7c15ull;
    mixed = (mixed ^ mixed >> 29) * 0xbf58476d1ce4e5b9ull;
    return mixed ^ mixed >> 32;
}

struct Kept {
    std::mutex mutex;
    std::deque<std::pair<void*, size_t>> blocks;
    size_t bytes = 0;
};
Kept& kept() {
    static auto* instance = new Kept;  // libraries free memory until the process is gone
    return *instance;
}

// Whether the word of `size` bytes at `address` holds the pattern.
bool holds_pattern(uint64_t address, size_t size) {
    const uint64_t expected = pattern(address / 8);
    return std::memcmp(reinterpret_cast<const void*>(address),
                       reinterpret_cast<const uint8_t*>(&expected) + address % 8, size) == 0;
}

}  // namespace

void watch_fresh_memory(bool on) {
    watching = on;
    if (on) return;
    std::lock_guard lock(kept().mutex);
    for (const auto& [memory, bytes] : kept().blocks) std::free(memory);
    kept().blocks.clear();
    kept().bytes = 0;
}
bool watching_fresh_memory() { return watching; }

void fill_fresh(void* memory, size_t bytes) {
    const auto begin = reinterpret_cast<uint64_t>(memory);
    size_t done = 0;
    for (; done + 8 <= bytes; done += 8) {
        const uint64_t word = pattern((begin + done) / 8);
        std::memcpy(static_cast<uint8_t*>(memory) + done, &word, 8);
    }
    const uint64_t word = pattern((begin + done) / 8);
    std::memcpy(static_cast<uint8_t*>(memory) + done, &word, bytes - done);
}

uint64_t fresh_bytes(uint64_t address, uint32_t bytes, uint64_t end) {
    uint64_t fresh = 0;
    for (uint64_t word = address & ~7ull; word < address + bytes; word += 8) {
        // A tail of four bytes or more is still told from chance; less is not.
        const size_t size = end - word >= 8 ? 8 : end - word >= 4 ? 4 : 0;
        if (!size || !holds_pattern(word, size)) continue;
        for (uint64_t byte = word; byte < word + size; ++byte)
            if (byte >= address && byte < address + bytes) fresh |= 1ull << (byte - address);
    }
    return fresh;
}

void free_later(void* memory, size_t bytes) {
    if (!watching) return std::free(memory);
    std::lock_guard lock(kept().mutex);
    kept().blocks.emplace_back(memory, bytes);
    kept().bytes += bytes;
    while (kept().bytes > kKeptBytes) {
        kept().bytes -= kept().blocks.front().second;
        std::free(kept().blocks.front().first);
        kept().blocks.pop_front();
    }
}

}  // namespace virtual_gpu
