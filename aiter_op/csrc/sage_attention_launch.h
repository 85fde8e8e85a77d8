// SPDX-License-Identifier: MIT
// The launch contract of the gfx1201 SageAttention kernels: arguments, tile sizes, workspace layout, grids.
// Plain C++17 for host and device. Python reads these numbers from the build's manifest
// (print_launch_manifest.cpp).
#pragma once

#include <stdint.h>

namespace gfx1201_sage {

constexpr int kHeadDim = 128;
constexpr int kThreads = 256;  // every kernel: 8 waves of 32 lanes
constexpr int kQueriesPerWave = 32;
constexpr int kQueriesPerWorkgroup = 256;   // attention kernel
constexpr int kKeysPerTile = 32;            // one K scale per tile
constexpr int kKeysPerQuantiseGroup = 256;  // quantise kernel: one tile per wave
constexpr int kStatisticsRows = 256;        // rows per statistics work-group, or a multiple of it
constexpr int kMaxStatisticsGroups = 16;    // per head: each quantise work-group reads all of them
constexpr int kKeySamples = 256;            // per head: rows of K whose mean centres K
constexpr int kMaxGridY = 32768;            // heads of all batches are spread over grid.y, then grid.z

// Workspace, for n = batch * heads: regions one after another, every region a multiple of its alignment.
//
//   region       bytes                                     contents
//   tiles        n * tiles * 8192                          K int8 in A order, then V e4m3 in A order
//   centre       n * 1024                                  V mean, V scale: float[128] each
//   partials     n * statistics_groups * 2048              sum K, sum V, max -V, max V: float[128] each
//   k_scales     n * tiles * 4                             float per tile
//   value_sums   n * quantise_groups * 512                 sum of V e4m3 over the group's keys: float[128],
//                                                          NaN if one of them is not finite in K
constexpr int kOperandBytesPerTile = 2 * kKeysPerTile * kHeadDim;
constexpr int kScaleBytesPerTile = 4;
constexpr int kCentreBytesPerHead = 2 * kHeadDim * 4;
constexpr int kPartialBytesPerGroup = 4 * kHeadDim * 4;
constexpr int kValueSumBytesPerGroup = kHeadDim * 4;

constexpr int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

constexpr int64_t tiles(int64_t sequence) { return divide_up(sequence, kKeysPerTile); }
constexpr int64_t statistics_rows(int64_t sequence) {
    return kStatisticsRows * divide_up(sequence, int64_t(kStatisticsRows) * kMaxStatisticsGroups);
}
constexpr int64_t statistics_groups(int64_t sequence) {
    return divide_up(sequence, statistics_rows(sequence));
}
constexpr int64_t quantise_groups(int64_t sequence) { return divide_up(sequence, kKeysPerQuantiseGroup); }

constexpr int64_t workspace_bytes(int64_t batch, int64_t sequence, int64_t heads) {
    return batch * heads *
           (tiles(sequence) * (kOperandBytesPerTile + kScaleBytesPerTile) + kCentreBytesPerHead +
            statistics_groups(sequence) * kPartialBytesPerGroup +
            quantise_groups(sequence) * kValueSumBytesPerGroup);
}

// Fields of the argument struct, in order. Strides count elements; head_dim has stride 1; out is contiguous.
// clang-format off
#define GFX1201_SAGE_ARGUMENTS(POINTER, INT64, FLOAT)                            \
    POINTER(q) POINTER(k) POINTER(v) POINTER(out) POINTER(workspace)             \
    INT64(batch) INT64(sequence) INT64(heads)                                    \
    INT64(q_stride_batch) INT64(q_stride_sequence) INT64(q_stride_head)          \
    INT64(k_stride_batch) INT64(k_stride_sequence) INT64(k_stride_head)          \
    INT64(v_stride_batch) INT64(v_stride_sequence) INT64(v_stride_head)          \
    FLOAT(softmax_scale)
// clang-format on

struct Arguments {
#define GFX1201_SAGE_POINTER(name) uint64_t name;
#define GFX1201_SAGE_INT64(name) int64_t name;
#define GFX1201_SAGE_FLOAT(name) float name;
    GFX1201_SAGE_ARGUMENTS(GFX1201_SAGE_POINTER, GFX1201_SAGE_INT64, GFX1201_SAGE_FLOAT)
#undef GFX1201_SAGE_POINTER
#undef GFX1201_SAGE_INT64
#undef GFX1201_SAGE_FLOAT
};

// The launches of one call, in stream order: kernel name, rows of the sequence per work-group.
#define GFX1201_SAGE_LAUNCHES(LAUNCH)                          \
    LAUNCH(gfx1201_sage_statistics, statistics_rows(sequence)) \
    LAUNCH(gfx1201_sage_quantise, kKeysPerQuantiseGroup)       \
    LAUNCH(gfx1201_sage_attention_main, kQueriesPerWorkgroup)

// Work-groups of one launch; the block is (kThreads, 1, 1). HIP wants x * kThreads < 2^32.
struct Grid {
    int64_t x, y, z;
};
constexpr Grid grid(int64_t rows, int64_t batch, int64_t sequence, int64_t heads) {
    int64_t n = batch * heads, y = n < kMaxGridY ? n : kMaxGridY;
    return {divide_up(sequence, rows), y, divide_up(n, y)};
}

}  // namespace gfx1201_sage
