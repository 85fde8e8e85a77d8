// SPDX-License-Identifier: MIT
// Words for memory accesses that executor and observers share.
#pragma once

#include <cstdint>

namespace virtual_gpu {

enum class Access : uint8_t { kLoad, kStore, kAtomic };
enum class Space : uint8_t { kGlobal, kLds, kScratch };
constexpr int kScalarLane = -1;  // the "lane" of accesses that a wave makes once

}  // namespace virtual_gpu
