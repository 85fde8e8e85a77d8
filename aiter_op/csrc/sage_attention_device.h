// SPDX-License-Identifier: MIT
// SageAttention for gfx1201: all device code. Needs compiler builtins only; every delivery includes this.
//
//   O = softmax(softmax_scale * Q K^T) V        Q, K, V, O: bfloat16 [batch, sequence, heads, 128]
//
// Three rewritings are exact in real arithmetic and make 8-bit operands accurate (docs/algorithm.md):
//   K' = K - m            m = K's mean; adds one constant to each row of scores, which softmax does not see
//   Q^ = Q H, K^ = K' H   H = 128-point Hadamard matrix / sqrt(128), orthogonal: scores do not change
//   V' = V - mean_s(V)    weights sum to one, so O gets back the mean, less the mean of V' after rounding
//
// Launches, in stream order:
//   gfx1201_sage_statistics      per channel: sum of sampled K, sum and range of V over a part of the rows
//   gfx1201_sage_quantise        K^ -> int8, one scale per 32 keys; V' -> e4m3, one scale per channel;
//                                both in operand order; per channel: sum of V' after rounding over 256 keys
//   gfx1201_sage_attention_main  Q^ -> int8, one scale per query; then, for each tile of 32 keys,
//                                S^T = K^ Q^^T (int8),  P = exp2(S - reference + log2(448)) (e4m3),
//                                O^T += V'^T P^T (fp8)
//
// How one wave32 holds the 16x16x16 8-bit matrix operands on gfx12 (AMD matrix instruction calculator):
//
//   operand      element   lane               slot in that lane
//   A (rows i)   A[i][k]   i + 16 * (k / 8)   byte k % 8
//   B (cols j)   B[k][j]   j + 16 * (k / 8)   byte k % 8
//   D (result)   D[i][j]   j + 16 * (i / 8)   VGPR i % 8
//
// Scores are computed transposed, so D[key][query] of the first product is, lane for lane and slot for slot,
// B[key][query] of the second: converting to e4m3 in place is the whole hand-over.
//
// The order of a contraction is free while A and B agree. Channels (Q, K) and keys (P, V) are ordered so that
// 16 consecutive bytes of one lane feed two products: one 128-bit LDS read per lane, free of bank conflicts.
//
//   fragment               lane                     bytes 0..15 of that lane
//   K^, Q^ pair p          row % 16 + 16 * half     channels 32 p + 16 half + 0..15
//   V'^T slice channel/16  channel % 16 + 16 half   keys 8 half + 0..7, then 16 + 8 half + 0..7
//
// A tile of the workspace is, for 32 keys, 4096 + 4096 bytes:
//   K^ [row / 16][pair][lane][16], then V'^T [slice][lane][16]
#pragma once

#include "sage_attention_launch.h"

namespace gfx1201_sage {

struct Place {
    int lane, slot;
    constexpr bool operator==(const Place& other) const { return lane == other.lane && slot == other.slot; }
};
constexpr Place place_in_b(int k, int j) { return {j + 16 * (k / 8), k % 8}; }
constexpr Place place_in_d(int i, int j) { return {j + 16 * (i / 8), i % 8}; }

constexpr bool scores_need_no_shuffle() {
    for (int key = 0; key < 16; ++key)
        for (int query = 0; query < 16; ++query)
            if (!(place_in_d(key, query) == place_in_b(key, query))) return false;
    return true;
}
static_assert(scores_need_no_shuffle());

constexpr int kLanes = 32;
constexpr int kFragmentBytes = 16 * kLanes;  // one 128-bit read per lane
constexpr int kRowTiles = 2;                 // 32 rows (queries or keys) = 2 x 16
constexpr int kPairs = kHeadDim / 32;        // contraction of Q K^T: 4 fragments, two products each
constexpr int kSlices = kHeadDim / 16;       // rows of O^T
constexpr int kKeyTileBytes = kKeysPerTile * kHeadDim;
static_assert(kKeyTileBytes == kRowTiles * kPairs * kFragmentBytes);
static_assert(kKeyTileBytes == kSlices * kFragmentBytes);
static_assert(kKeyTileBytes == 16 * kThreads, "each thread moves 16 bytes of K and 16 of V per tile");

constexpr float kInt8Max = 127.0f;
constexpr float kFp8Max = 448.0f;
constexpr float kLog2Fp8Max = 8.807354922057604f;  // P fills e4m3: no weight exceeds 448

// Bits by which a maximum may grow before sums are rescaled: a row's largest weight is between 224 and 448. A
// whole bit, because 224 is an e4m3 number, too, and a row's largest weight often is its only large one.
constexpr float kMargin = 1.0f;
constexpr float kLog2E = 1.4426950408889634f;
constexpr float kHadamardScale = 0.08838834764831845f;  // 1 / sqrt(128), folded into the scales of Q and K

// Below this a block counts as zero: the reciprocal of its scale would leave float32.
constexpr float kSmallestRange = 0x1p-110f;

// 1.5 * 2^23: adding it to a float below 2^22 rounds that to an integer, which the sum's low bits spell out.
constexpr float kIntegerBias = 12582912.0f;

// Where the int32 accumulators of scores start: the bit pattern of 1 / (2 pi), which every instruction can
// name as an inline constant. |q.k| stays inside that float's binade, so start + score, read as a float, is
// kScoreBias + score * kScoreUnit exactly: no conversion, and no register for the start.
constexpr int kScoreStart = 0x3E22F983;
constexpr float kScoreBias = 0x1.45F306p-3f;
constexpr float kScoreUnit = 0x1p-26f;
constexpr int kMaxScore = kHeadDim * 127 * 127, kMantissa = (1 << 23) - 1;
static_assert((kScoreStart & kMantissa) - kMaxScore >= 0 &&
              (kScoreStart & kMantissa) + kMaxScore <= kMantissa);

// What a score's bits are worth stays below the largest, so that scores are finite: 2^100 for a step of a
// score. In a tile with masked keys it stays above the smallest, so that exp2(-inf * scale) is zero where Q
// or K is.
constexpr float kSmallestScoreScale = 0x1p-100f, kLargestScoreScale = 0x1p+126f;

// Their product turns what a step is worth into what the bits are worth. One factor for each scale, because
// K's may be as large as 2^117.
constexpr float kQueryUnits = 0x1p16f, kKeyUnits = 0x1p10f;
static_assert(kQueryUnits * kKeyUnits * kScoreUnit == 1);

// Taking the bias out rounds a score to about one step. Where that decides how near to 448 the largest
// weight comes, a step may be worth no more than this power of two: int8 rounding blurs scores by more.
constexpr float kLargestStep = 0x1p-4f;

#if defined(__gfx1201__)

#define SAGE_INLINE __device__ static inline __attribute__((always_inline))

typedef int int2v __attribute__((ext_vector_type(2)));
typedef int int4v __attribute__((ext_vector_type(4)));
typedef int int8v __attribute__((ext_vector_type(8)));
typedef float float2v __attribute__((ext_vector_type(2)));
typedef float float4v __attribute__((ext_vector_type(4)));
typedef float float8v __attribute__((ext_vector_type(8)));
typedef int4v int4v_unaligned __attribute__((aligned(2)));  // views of bfloat16 tensors promise no more
typedef int int_unaligned __attribute__((aligned(2)));

#define SAGE_GLOBAL __attribute__((address_space(1)))
#define SAGE_CONSTANT __attribute__((address_space(4)))  // read-only for the whole kernel: scalar loads

template <typename T>
SAGE_INLINE SAGE_GLOBAL T* global(uint64_t address) {
    return reinterpret_cast<SAGE_GLOBAL T*>(address);
}

SAGE_INLINE float as_float(int bits) { return __builtin_bit_cast(float, bits); }
SAGE_INLINE int as_int(float value) { return __builtin_bit_cast(int, value); }
SAGE_INLINE float bf16_low(int pair) { return as_float(pair << 16); }
SAGE_INLINE float bf16_high(int pair) { return as_float(pair & 0xffff0000); }
// Byte i of the result is byte selector[i] of low (0 to 3) or of high (4 to 7), or zero (12).
SAGE_INLINE int pick_bytes(int high, int low, uint32_t selector) {
    return __builtin_amdgcn_perm(high, low, selector);
}
SAGE_INLINE float exp2_approximate(float value) { return __builtin_amdgcn_exp2f(value); }

// Two floats as bfloat16, round to nearest even, straight from float32 (a detour through half overflows).
// Adding to the bits carries into the exponent as it should. A NaN stays one: those that bfloat16 inputs lead
// to have no low bits set, so nothing carries out of them.
SAGE_INLINE int to_bf16_pair(float low, float high) {
    auto rounded = [](float value) {
        uint32_t bits = uint32_t(as_int(value));
        return bits + 0x7fff + (bits >> 16 & 1);
    };
    return pick_bytes(rounded(high), rounded(low), 0x07060302);
}

// v_cvt_pk_fp8_f32 turns overflow into NaN unless MODE.FP16_OVFL (bit 23) is set; then it saturates at 448.
SAGE_INLINE void saturate_fp8_conversions() {
    constexpr int kModeBit23 = 1 | (23 << 6) | (0 << 11);  // hwreg(HW_REG_MODE, 23, 1)
    __builtin_amdgcn_s_setreg(kModeBit23, 1);
}
SAGE_INLINE int to_fp8_x4(float a, float b, float c, float d) {
    return __builtin_amdgcn_cvt_pk_fp8_f32(c, d, __builtin_amdgcn_cvt_pk_fp8_f32(a, b, 0, false), true);
}
// Two values in one half of a register. A conversion keeps the half that it does not write: naming a register
// that dies here as `kept` needs no zeroing and no move.
SAGE_INLINE int to_fp8_low(float a, float b, int kept) {
    int result = __builtin_amdgcn_cvt_pk_fp8_f32(a, b, kept, false);
    asm("" : "+v"(result));
    return result;
}
SAGE_INLINE int to_fp8_high(float a, float b, int kept) {
    int result = __builtin_amdgcn_cvt_pk_fp8_f32(a, b, kept, true);
    asm("" : "+v"(result));
    return result;
}

// Puts the elements of a vector into consecutive registers. Two operations issue as one (VOPD) only when
// their registers lie in different banks, as neighbours do; left alone, the compiler scatters elements.
template <typename Vector>
SAGE_INLINE void keep_in_consecutive_registers(Vector& vector) {
    asm("" : "+v"(vector));
}

// Rounded to float32 before it is used: left alone, the compiler fuses a product with the sum that follows.
SAGE_INLINE float rounded_product(float a, float b) {
    float product = a * b;
    asm("" : "+v"(product));
    return product;
}

SAGE_INLINE float sum_of_fp8_x4(int x) {
    float2v low = __builtin_amdgcn_cvt_pk_f32_fp8(x, false), high = __builtin_amdgcn_cvt_pk_f32_fp8(x, true);
    return low[0] + low[1] + high[0] + high[1];
}

SAGE_INLINE int8v multiply_int8(int2v a, int2v b, int8v c) {
    return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, a, true, b, c, false);
}
SAGE_INLINE float8v multiply_fp8(int2v a, int2v b, float8v c) {
    return __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(a, b, c);
}

// Where this thread and its work-group are in the launch.
SAGE_INLINE int thread_index() { return __builtin_amdgcn_workitem_id_x(); }
SAGE_INLINE int64_t group_index() { return __builtin_amdgcn_workgroup_id_x(); }
SAGE_INLINE int64_t head_index() {
    return int64_t(__builtin_amdgcn_workgroup_id_y()) +
           int64_t(kMaxGridY) * __builtin_amdgcn_workgroup_id_z();
}

// A value that is the same in all lanes, moved to a scalar register.
SAGE_INLINE int uniform(int value) { return __builtin_amdgcn_readfirstlane(value); }
SAGE_INLINE float uniform(float value) { return as_float(uniform(as_int(value))); }
SAGE_INLINE uint32_t lanes_where(bool value) { return __builtin_amdgcn_ballot_w32(value); }
SAGE_INLINE bool any_lane(bool value) { return lanes_where(value) != 0; }

// The value that lane ^ 16 holds.
SAGE_INLINE float other_half(float value) {
    int bits = as_int(value);
    return as_float(__builtin_amdgcn_permlanex16(bits, bits, 0x76543210, 0xfedcba98, true, false));
}
template <int kMask>
SAGE_INLINE float lane_xor_in_row(float value) {
    constexpr int kRowXmask = 0x160;
    return as_float(__builtin_amdgcn_update_dpp(0, as_int(value), kRowXmask | kMask, 0xf, 0xf, true));
}
SAGE_INLINE float wave_maximum(float value) {
    value = __builtin_fmaxf(value, lane_xor_in_row<1>(value));
    value = __builtin_fmaxf(value, lane_xor_in_row<2>(value));
    value = __builtin_fmaxf(value, lane_xor_in_row<4>(value));
    value = __builtin_fmaxf(value, lane_xor_in_row<8>(value));
    value = __builtin_fmaxf(value, other_half(value));
    return uniform(value);
}

// A barrier in two halves: after arriving, a wave may work on what it holds in registers until it must wait
// for the others. Arriving waits for this wave's LDS accesses; global loads may stay in flight.
SAGE_INLINE void arrive_at_workgroup_barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
    __builtin_amdgcn_s_barrier_signal(-1);
}
SAGE_INLINE void wait_at_workgroup_barrier() {
    __builtin_amdgcn_s_barrier_wait(-1);
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}
SAGE_INLINE void workgroup_barrier() {
    arrive_at_workgroup_barrier();
    wait_at_workgroup_barrier();
}

// No instruction moves past this. Left alone, the compiler moves each LDS read next to its use.
SAGE_INLINE void keep_order() { __builtin_amdgcn_sched_barrier(0); }

// What a work-group works on: one head of one batch, and the workspace regions of that head.
struct Head {
    int64_t index, batch, head;
    SAGE_INLINE bool locate(Head& h, const Arguments& args) {
        h.index = head_index();
        if (h.index >= args.batch * args.heads) return false;
        h.batch = uint32_t(h.index) / uint32_t(args.heads);
        h.head = h.index - h.batch * args.heads;
        return true;
    }
};

SAGE_INLINE uint64_t tile_address(const Arguments& args, int64_t head_index, int64_t tile) {
    return args.workspace + (head_index * tiles(args.sequence) + tile) * kOperandBytesPerTile;
}
SAGE_INLINE uint64_t centre_address(const Arguments& args, int64_t head_index) {
    int64_t heads = args.batch * args.heads;
    return args.workspace + heads * tiles(args.sequence) * kOperandBytesPerTile +
           head_index * kCentreBytesPerHead;
}
SAGE_INLINE uint64_t partial_address(const Arguments& args, int64_t head_index, int64_t group) {
    return centre_address(args, args.batch * args.heads) +
           (head_index * statistics_groups(args.sequence) + group) * kPartialBytesPerGroup;
}
SAGE_INLINE uint64_t key_scale_address(const Arguments& args, int64_t head_index) {
    return partial_address(args, args.batch * args.heads, 0) +
           head_index * tiles(args.sequence) * kScaleBytesPerTile;
}
SAGE_INLINE uint64_t value_sum_address(const Arguments& args, int64_t head_index, int64_t group) {
    return key_scale_address(args, args.batch * args.heads) +
           (head_index * quantise_groups(args.sequence) + group) * kValueSumBytesPerGroup;
}

constexpr int kOctets = kHeadDim / 2 / 8;  // half of a row's channels in one lane, by eights

// 32 rows of Q or K in operand order: value[t][o][b] is row 16 t + lane % 16,
// channel 32 (o / 2) + 16 (lane / 16) + 8 (o % 2) + b.
struct Rows {
    float8v value[kRowTiles][kOctets];
};
// The same rows as int8 operands, fragment[t][p], and what one step of row 16 t + lane % 16 is worth before
// 1 / sqrt(128).
struct QuantisedRows {
    int4v fragment[kRowTiles][kPairs];
    float scale[kRowTiles];
    float not_finite[kRowTiles];  // NaN if this lane's part of row 16 t + lane % 16 is not finite, else 0
};

// Reads rows first_row .. first_row + 31 of one head, bfloat16 [sequence][128] at `rows` with `row_stride`
// elements from row to row. Rows from `sequence` on read as zero.
SAGE_INLINE void load_rows(Rows& out, uint64_t rows, int64_t row_stride, int64_t first_row, int64_t sequence,
                           int lane) {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
        int64_t row = first_row + 16 * t + lane % 16;
        bool is_row = row < sequence;
        uint64_t address = rows + 2 * ((is_row ? row : 0) * row_stride + 16 * (lane / 16));
#pragma unroll
        for (int o = 0; o < kOctets; ++o) {
            int4v pairs = global<const int4v_unaligned>(address + 64 * (o / 2))[o % 2];
            pairs = is_row ? pairs : int4v{};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                out.value[t][o][2 * i] = bf16_low(pairs[i]);
                out.value[t][o][2 * i + 1] = bf16_high(pairs[i]);
            }
        }
    }
}

// Multiplies each row by the 128-point Hadamard matrix (entries +-1). The channel is p1 p0 half b3 b2 b1 b0,
// one butterfly per bit: six inside a lane, one between the half-waves.
SAGE_INLINE void rotate_rows(Rows& rows, int lane) {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
#pragma unroll
        for (int bit = 1; bit < 8; bit *= 2)
#pragma unroll
            for (int o = 0; o < kOctets; ++o) {
                float8v x = rows.value[t][o], rotated;
#pragma unroll
                for (int b = 0; b < 8; ++b) rotated[b] = b & bit ? x[b ^ bit] - x[b] : x[b] + x[b ^ bit];
                keep_in_consecutive_registers(rotated);
                rows.value[t][o] = rotated;
            }
#pragma unroll
        for (int bit = 1; bit < kOctets; bit *= 2)
#pragma unroll
            for (int o = 0; o < kOctets; ++o)
                if (!(o & bit)) {
                    float8v a = rows.value[t][o], b = rows.value[t][o | bit];
                    float8v sum = a + b, difference = a - b;
                    keep_in_consecutive_registers(sum);
                    keep_in_consecutive_registers(difference);
                    rows.value[t][o] = sum;
                    rows.value[t][o | bit] = difference;
                }
        float sign = lane < 16 ? 1.0f : -1.0f;
#pragma unroll
        for (int o = 0; o < kOctets; ++o)
#pragma unroll
            for (int b = 0; b < 8; ++b)
                rows.value[t][o][b] =
                    __builtin_fmaf(sign, rows.value[t][o][b], other_half(rows.value[t][o][b]));
        // One 16-row tile at a time: interleaved, the two need more registers than there are.
        keep_order();
    }
}

// The low byte of kIntegerBias + n, as a bit pattern, is n in two's complement. Four make one operand dword.
SAGE_INLINE int pack_low_bytes(float a, float b, float c, float d) {
    int ab = pick_bytes(as_int(b), as_int(a), 0x0c0c0400);
    int cd = pick_bytes(as_int(d), as_int(c), 0x04000c0c);
    return ab | cd;
}

// The largest magnitude of each row, or of all 32 rows; 0 where it does not count.
enum class Scale { kPerRow, kPerBlock };

template <Scale kScale>
SAGE_INLINE void find_ranges(float (&range)[kRowTiles], float (&not_finite)[kRowTiles], const Rows& rows) {
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
        float largest = 0.0f;
#pragma unroll
        for (int o = 0; o < kOctets; ++o)
#pragma unroll
            for (int b = 0; b < 8; ++b)
                largest = __builtin_fmaxf(largest, __builtin_fabsf(rows.value[t][o][b]));
        // The rotation mixes all channels of a row, so one NaN or infinity makes every value of it NaN or
        // infinite, and looking at one value and the maximum (which ignores NaN) is enough. Such a row has no
        // part in the scale. Its operands are nonsense that nobody sees: its outputs, or its head's, are NaN.
        not_finite[t] = 0.0f * rows.value[t][0][0] + 0.0f * largest;
        range[t] = __builtin_fmaxf(0.0f, largest + not_finite[t]);
        if (kScale == Scale::kPerRow) range[t] = __builtin_fmaxf(range[t], other_half(range[t]));
    }
    if (kScale == Scale::kPerBlock) range[0] = range[1] = wave_maximum(__builtin_fmaxf(range[0], range[1]));
}

// `sign` is +1, or -1 to quantise the rows' negatives.
template <Scale kScale>
SAGE_INLINE void quantise_rows(QuantisedRows& out, const Rows& rows, float sign) {
    float range[kRowTiles];
    find_ranges<kScale>(range, out.not_finite, rows);
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
        bool is_zero = range[t] < kSmallestRange;
        float steps = is_zero ? 0.0f : sign * kInt8Max / range[t];
        out.scale[t] = is_zero ? 0.0f : range[t] / kInt8Max;
#pragma unroll
        for (int p = 0; p < kPairs; ++p)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float8v& x = rows.value[t][2 * p + i / 2];
                int b = 4 * (i % 2);
                // Adding the bias rounds to the nearest integer, ties to even.
                out.fragment[t][p][i] = pack_low_bytes(__builtin_fmaf(x[b], steps, kIntegerBias),
                                                       __builtin_fmaf(x[b + 1], steps, kIntegerBias),
                                                       __builtin_fmaf(x[b + 2], steps, kIntegerBias),
                                                       __builtin_fmaf(x[b + 3], steps, kIntegerBias));
            }
    }
}

// ---- gfx1201_sage_statistics ----

constexpr int kThreadsPerRow = kHeadDim / 8;
constexpr int kRowsAtOnce = kThreads / kThreadsPerRow;

// Rows of K whose mean stands for the mean of all: up to 256, evenly spaced. A sample is enough, because
// softmax does not see which vector is subtracted from all of K.
struct KeySample {
    int per_thread_row, stride;
    float weight;  // 1 / rows sampled
};
SAGE_INLINE KeySample key_sample(int64_t sequence) {
    int groups = statistics_groups(sequence);
    int64_t rows = statistics_rows(sequence);
    int per_thread_row = kKeySamples / (kRowsAtOnce * groups);
    int stride = int(rows) / (kRowsAtOnce * per_thread_row);
    int whole = kRowsAtOnce * per_thread_row,
        last = int((sequence - (groups - 1) * rows + stride - 1) / stride);
    return {per_thread_row, stride, 1.0f / float((groups - 1) * whole + (last < whole ? last : whole))};
}

// 16 threads cover one row (8 channels each), 16 rows at a time. Sums are of x / rows: they cannot overflow.
SAGE_INLINE void collect_statistics(const Arguments& args) {
    constexpr int kKinds = 4;  // sum K, sum V, max -V, max V
    __attribute__((shared)) static float shared[kKinds][kRowsAtOnce][kHeadDim];
    Head head;
    if (!Head::locate(head, args)) return;

    int thread = thread_index();
    int channel = 8 * (thread % kThreadsPerRow), thread_row = thread / kThreadsPerRow;
    int64_t rows = statistics_rows(args.sequence), group = group_index();
    int64_t end = rows * (group + 1) < args.sequence ? rows * (group + 1) : args.sequence;
    uint64_t k = args.k + 2 * (head.batch * args.k_stride_batch + head.head * args.k_stride_head + channel);
    uint64_t v = args.v + 2 * (head.batch * args.v_stride_batch + head.head * args.v_stride_head + channel);
    float sum_k[8] = {}, sum_v[8] = {}, max_minus_v[8], max_v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) max_minus_v[i] = max_v[i] = -__builtin_inff();

    KeySample sample = key_sample(args.sequence);
    int64_t key = rows * group + thread_row * sample.per_thread_row * sample.stride;
    for (int s = 0; s < sample.per_thread_row && key < end; ++s, key += sample.stride) {
        int4v pairs = *global<const int4v_unaligned>(k + 2 * key * args.k_stride_sequence);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float value = i % 2 ? bf16_high(pairs[i / 2]) : bf16_low(pairs[i / 2]);
            sum_k[i] = __builtin_fmaf(value, sample.weight, sum_k[i]);
        }
    }
    float weight = 1.0f / float(args.sequence);
    for (int64_t row = rows * group + thread_row; row < end; row += kRowsAtOnce) {
        int4v pairs = *global<const int4v_unaligned>(v + 2 * row * args.v_stride_sequence);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float value = i % 2 ? bf16_high(pairs[i / 2]) : bf16_low(pairs[i / 2]);
            sum_v[i] = __builtin_fmaf(value, weight, sum_v[i]);
            max_minus_v[i] = __builtin_fmaxf(max_minus_v[i], -value);
            max_v[i] = __builtin_fmaxf(max_v[i], value);
        }
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        shared[0][thread_row][channel + i] = sum_k[i];
        shared[1][thread_row][channel + i] = sum_v[i];
        shared[2][thread_row][channel + i] = max_minus_v[i];
        shared[3][thread_row][channel + i] = max_v[i];
    }
    workgroup_barrier();
    auto partial = global<float>(partial_address(args, head.index, group));
    int kind = thread / kHeadDim, column = thread % kHeadDim;
    float sum = shared[kind][0][column], maximum = shared[2 + kind][0][column];
    for (int r = 1; r < kRowsAtOnce; ++r) {
        sum += shared[kind][r][column];
        maximum = __builtin_fmaxf(maximum, shared[2 + kind][r][column]);
    }
    partial[thread] = sum;
    partial[2 * kHeadDim + thread] = maximum;
}

// ---- gfx1201_sage_quantise ----

// Per-channel constants of one head, in LDS.
struct Centre {
    float k_mean[kHeadDim], v_mean[kHeadDim], v_steps[kHeadDim];
};

// Adds up what the statistics groups found. The first work-group of a head also keeps V's part of it for the
// attention kernel.
SAGE_INLINE void combine_statistics(Centre& centre, const Arguments& args, const Head& head) {
    int thread = thread_index(), channel = thread % kHeadDim;
    int groups = statistics_groups(args.sequence);
    auto partial = global<const float>(partial_address(args, head.index, 0)) + channel;
    constexpr int kGroupStride = kPartialBytesPerGroup / sizeof(float);
    if (thread >= kHeadDim) {
        float mean = 0.0f;
        for (int group = 0; group < groups; ++group) mean += partial[group * kGroupStride];
        centre.k_mean[channel] = mean;
    } else {
        float mean = 0.0f, low = __builtin_inff(), high = -__builtin_inff();
        for (int group = 0; group < groups; ++group) {
            mean += partial[group * kGroupStride + kHeadDim];
            low = __builtin_fminf(low, -partial[group * kGroupStride + 2 * kHeadDim]);
            high = __builtin_fmaxf(high, partial[group * kGroupStride + 3 * kHeadDim]);
        }
        float range = __builtin_fmaxf(high - mean, mean - low);
        bool is_zero = range < kSmallestRange;
        centre.v_mean[channel] = mean;
        centre.v_steps[channel] = is_zero ? 0.0f : kFp8Max / range;
        if (group_index() == 0) {
            auto kept = global<float>(centre_address(args, head.index));
            kept[channel] = mean;
            kept[kHeadDim + channel] = is_zero ? 0.0f : range / kFp8Max;
        }
    }
    workgroup_barrier();
}

// One wave: 32 keys of K, centred, rotated, as int8 in operand order. Returns NaN if a key is not finite,
// else 0.
SAGE_INLINE float quantise_key_tile(const Centre& centre, const Arguments& args, const Head& head,
                                    int64_t tile, int lane) {
    Rows rows;
    int64_t first_key = tile * kKeysPerTile;
    uint64_t k = args.k + 2 * (head.batch * args.k_stride_batch + head.head * args.k_stride_head);
    load_rows(rows, k, args.k_stride_sequence, first_key, args.sequence, lane);
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
        bool is_key = first_key + 16 * t + lane % 16 < args.sequence;
#pragma unroll
        for (int o = 0; o < kOctets; ++o)
#pragma unroll
            for (int b = 0; b < 8; ++b) {
                int channel = 32 * (o / 2) + 16 * (lane / 16) + 8 * (o % 2) + b;
                rows.value[t][o][b] = is_key ? rows.value[t][o][b] - centre.k_mean[channel] : 0.0f;
            }
    }
    rotate_rows(rows, lane);
    QuantisedRows quantised;
    quantise_rows<Scale::kPerBlock>(quantised, rows, 1.0f);
    auto fragments = global<int4v>(tile_address(args, head.index, tile));
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
        for (int p = 0; p < kPairs; ++p)
            fragments[(t * kPairs + p) * kLanes + lane] = quantised.fragment[t][p];
    if (lane == 0)
        global<float>(key_scale_address(args, head.index))[tile] = quantised.scale[0] * kHadamardScale;
    bool not_finite = __builtin_isnan(quantised.not_finite[0] + quantised.not_finite[1]);
    return any_lane(not_finite) ? __builtin_nanf("") : 0.0f;
}

// One wave: the same 32 keys of V, centred, as e4m3 in operand order of V^T. A lane reads two channels of 16
// keys: each row is read as whole 128-byte lines, and the lane ends up with two complete fragments of 16
// bytes. sums[channel] becomes `start` (0, or NaN) plus the sum of the channel's 32 values after rounding.
SAGE_INLINE void quantise_value_tile(float (&sums)[kHeadDim], float start, const Centre& centre,
                                     const Arguments& args, const Head& head, int64_t tile, int lane) {
    uint64_t v = args.v + 2 * (head.batch * args.v_stride_batch + head.head * args.v_stride_head);
    auto fragments = global<int4v>(tile_address(args, head.index, tile) + kKeyTileBytes);
    float2v sum = {};
    for (int part = 0; part < 4; ++part) {
        int half = part % 2, channel = 2 * (lane + kLanes * (part / 2));
        if (half == 0) sum = float2v{start, start};
        float2v mean = {centre.v_mean[channel], centre.v_mean[channel + 1]};
        float2v steps = {centre.v_steps[channel], centre.v_steps[channel + 1]};
        float low[16], high[16];
#pragma unroll
        for (int b = 0; b < 16; ++b) {
            int64_t key = tile * kKeysPerTile + 16 * (b / 8) + 8 * half + b % 8;
            low[b] = high[b] = 0.0f;
            if (key < args.sequence) {
                int pair = *global<const int_unaligned>(v + 2 * (key * args.v_stride_sequence + channel));
                low[b] = (bf16_low(pair) - mean[0]) * steps[0];
                high[b] = (bf16_high(pair) - mean[1]) * steps[1];
            }
        }
        int4v first, second;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            first[i] = to_fp8_x4(low[4 * i], low[4 * i + 1], low[4 * i + 2], low[4 * i + 3]);
            second[i] = to_fp8_x4(high[4 * i], high[4 * i + 1], high[4 * i + 2], high[4 * i + 3]);
        }
        int fragment_lane = (channel / 16) * kLanes + 16 * half + channel % 16;
        fragments[fragment_lane] = first;
        fragments[fragment_lane + 1] = second;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            sum[0] += sum_of_fp8_x4(first[i]);
            sum[1] += sum_of_fp8_x4(second[i]);
        }
        // A lane has its channels' other half of the keys in the next part.
        sums[channel] = sum[0];
        sums[channel + 1] = sum[1];
    }
}

SAGE_INLINE void quantise(const Arguments& args) {
    constexpr int kWaves = kThreads / kLanes;
    static_assert(kWaves * kKeysPerTile == kKeysPerQuantiseGroup, "one tile per wave");
    __attribute__((shared)) static Centre centre;
    __attribute__((shared)) static float value_sums[kWaves][kHeadDim];
    Head head;
    if (!Head::locate(head, args)) return;
    saturate_fp8_conversions();
    combine_statistics(centre, args, head);
    int thread = thread_index(), lane = thread % kLanes;
    int wave = uniform(thread / kLanes);
    int64_t group = group_index(), tile = group * kWaves + wave;
    if (tile < tiles(args.sequence)) {
        // A key that is not finite reaches every output of the head through V's sums.
        float not_finite = quantise_key_tile(centre, args, head, tile, lane);
        quantise_value_tile(value_sums[wave], not_finite, centre, args, head, tile, lane);
    } else {
        for (int channel = lane; channel < kHeadDim; channel += kLanes) value_sums[wave][channel] = 0.0f;
    }
    workgroup_barrier();
    if (thread >= kHeadDim) return;
    float sum = 0.0f;
    for (int w = 0; w < kWaves; ++w) sum += value_sums[w][thread];
    global<float>(value_sum_address(args, head.index, group))[thread] = sum;
}

// ---- gfx1201_sage_attention_main ----

// What a wave carries from tile to tile, for 2 x 16 queries. Lane l serves query l % 16; the half-waves hold
// different keys of the scores and different channels of O^T. `sum` counts the keys of this half-wave only,
// while the reference is that of all keys: at least the maximum, and at most kMargin above it.
struct OnlineSoftmax {
    float8v output[kSlices][kRowTiles];
    float headroom[kRowTiles];  // log2(448) - reference: added to a score before exp2
    float2v sum[kRowTiles];     // of even and of odd keys: independent, so that they issue in pairs
};

typedef int4v OperandTile[kOperandBytesPerTile / 16];

// Fragments of K^ for contraction steps 2 pair and 2 pair + 1.
struct KeyPair {
    int4v rows[kRowTiles];
    SAGE_INLINE KeyPair load(const OperandTile& tile, int pair, int lane) {
        return {tile[pair * kLanes + lane], tile[(kPairs + pair) * kLanes + lane]};
    }
};
constexpr int kPairsAhead = 2;  // read from the next tile before this one is done

// D[key][query] for 32 keys x 32 queries, as bit patterns of kScoreBias + score * kScoreUnit.
SAGE_INLINE void multiply_keys(int8v (&scores)[kRowTiles][kRowTiles], const KeyPair (&ahead)[kPairsAhead],
                               const OperandTile& tile, const QuantisedRows& q, int lane) {
    const int8v start = int8v(kScoreStart);
    KeyPair keys[kPairs];
#pragma unroll
    for (int p = 0; p < kPairs; ++p) keys[p] = p < kPairsAhead ? ahead[p] : KeyPair::load(tile, p, lane);
#pragma unroll
    for (int p = 0; p < kPairs; ++p)
#pragma unroll
        for (int step = 0; step < 2; ++step)
#pragma unroll
            for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
                for (int n = 0; n < kRowTiles; ++n) {
                    int2v a = step ? keys[p].rows[t].zw : keys[p].rows[t].xy;
                    int2v b = step ? q.fragment[n][p].zw : q.fragment[n][p].xy;
                    scores[t][n] = multiply_int8(a, b, p + step == 0 ? start : scores[t][n]);
                }
}

// The last tile has only `keys` keys. The scores of the others become -inf, which as an integer, too, is
// below every biased score.
SAGE_INLINE void mask_tail(int8v (&scores)[kRowTiles][kRowTiles], float (&scale)[kRowTiles], int keys,
                           int lane) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) scale[n] = __builtin_fmaxf(scale[n], kSmallestScoreScale);
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            bool is_key = 16 * t + 8 * (lane / 16) + i < keys;
#pragma unroll
            for (int n = 0; n < kRowTiles; ++n)
                scores[t][n][i] = is_key ? scores[t][n][i] : as_int(-__builtin_inff());
        }
}

// The largest score of each query, among the lane's keys. As integers, and as trees for both queries at once:
// in a chain each step would wait for the one before.
SAGE_INLINE void find_best(int (&best)[kRowTiles], const int8v (&scores)[kRowTiles][kRowTiles]) {
    auto larger = [](int a, int b) { return a > b ? a : b; };
    auto largest = [&](int a, int b, int c) { return larger(larger(a, b), c); };
    int threes[5][kRowTiles];
#pragma unroll
    for (int i = 0; i < 5; ++i)
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
            auto score = [&](int key) { return scores[key / 8][n][key % 8]; };
            threes[i][n] = largest(score(3 * i), score(3 * i + 1), score(3 * i + 2));
        }
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
        int low = largest(threes[0][n], threes[1][n], threes[2][n]);
        best[n] = larger(low, largest(threes[3][n], threes[4][n], scores[1][n][7]));
        asm volatile("" : "+v"(best[n]));  // here: the compiler would move one tree behind a branch
    }
}

// Brings the running maximum up to date and says how scores become weights: a weight of the tile is
// exp2(fma(bits of the score, scale[n], offset[n])). What was summed up is rescaled when a maximum has grown
// above the reference, which then leads it by kMargin. Half-waves exchange their maxima only when they have
// to rescale.
//
// `scale` comes as what a score's bits are worth. `is_coarse`: one step of some score may be worth more than
// kLargestStep. Then every tile is treated so, because the rounding of the reference would decide.
SAGE_INLINE void update_maximum(OnlineSoftmax& state, float (&scale)[kRowTiles], float (&offset)[kRowTiles],
                                const int8v (&scores)[kRowTiles][kRowTiles], bool is_coarse) {
    int best[kRowTiles];
    find_best(best, scores);
    uint32_t grew[kRowTiles];
    float limit = is_coarse ? -__builtin_inff() : kLog2Fp8Max;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
        offset[n] = __builtin_fmaf(-kScoreBias, scale[n], state.headroom[n]);
        grew[n] = lanes_where(__builtin_fmaf(as_float(best[n]), scale[n], offset[n]) > limit);
    }
    if ((grew[0] | grew[1]) == 0) return;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
        if (grew[n] == 0) continue;
        float tile_scale = scale[n];
        float top = __builtin_fmaxf(as_float(best[n]), other_half(as_float(best[n])));
        float maximum = rounded_product(top - kScoreBias, tile_scale);
        float headroom = __builtin_fminf(state.headroom[n], kLog2Fp8Max - kMargin - maximum);
        float once = exp2_approximate(headroom - state.headroom[n]);
        float2v factor = {once, once};  // twice, in two banks: VOPD pairs may not share a source register
        keep_in_consecutive_registers(factor);
        state.headroom[n] = headroom;
        // Weights are taken relative to the tile's own best score, so that none exceeds 448 whatever the
        // scores' magnitude: above, the sum would count what e4m3 cannot hold; far below, all would vanish.
        scale[n] = __builtin_fminf(tile_scale, kLargestStep / kScoreUnit);
        offset[n] = __builtin_fmaf(-top, scale[n], __builtin_fminf(headroom + maximum, kLog2Fp8Max));
        state.sum[n] *= factor;
#pragma unroll
        for (int c = 0; c < kSlices; ++c) state.output[c][n] *= factor.xyxyxyxy;
    }
}

// Scores become weights by octets: octet 2 n + t is a lane's eight keys 16 t + 8 (lane / 16) + 0..7 of query
// 16 n + lane % 16.
constexpr int kScoreOctets = kRowTiles * kRowTiles;
SAGE_INLINE float exp2_argument(int octet, int i, const float (&scale)[kRowTiles],
                                const float (&offset)[kRowTiles],
                                const int8v (&scores)[kRowTiles][kRowTiles]) {
    int n = octet / kRowTiles, t = octet % kRowTiles;
    return __builtin_fmaf(as_float(scores[t][n][i]), scale[n], offset[n]);
}

// One of the eight instructions that sum an octet up and convert it: for every two weights an addition, then
// a conversion.
SAGE_INLINE void finish_octet(int4v (&operand)[kRowTiles], OnlineSoftmax& state, int octet, int step,
                              const float8v& p) {
    int n = octet / kRowTiles, i = step / 2 * 2;
    int dword = 2 * (octet % kRowTiles) + i / 4;
    if (step % 2 == 0) {
        state.sum[n] += float2v{p[i], p[i + 1]};
        keep_in_consecutive_registers(state.sum[n]);
    } else if (i % 4 == 0) {
        operand[n][dword] = to_fp8_low(p[i], p[i + 1], as_int(p[i / 4]));
    } else {
        operand[n][dword] = to_fp8_high(p[i], p[i + 1], operand[n][dword]);
    }
}

// P as the B operand of the second product: operand[n] holds keys 0..15 in .xy and keys 16..31 in .zw. A
// transcendental keeps its unit busy for four cycles and the vector pipe for one, so between two of them
// stand an argument of the next octet and an addition or a conversion of the one before.
SAGE_INLINE void exponentiate(int4v (&operand)[kRowTiles], OnlineSoftmax& state,
                              const float (&scale)[kRowTiles], const float (&offset)[kRowTiles],
                              const int8v (&scores)[kRowTiles][kRowTiles]) {
    float8v arguments[kScoreOctets], weights[kScoreOctets];
#pragma unroll
    for (int i = 0; i < 8; ++i) arguments[0][i] = exp2_argument(0, i, scale, offset, scores);
    keep_order();
#pragma unroll
    for (int o = 0; o < kScoreOctets; ++o) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            weights[o][i] = exp2_approximate(arguments[o][i]);
            if (o + 1 < kScoreOctets) arguments[o + 1][i] = exp2_argument(o + 1, i, scale, offset, scores);
            if (o > 0) finish_octet(operand, state, o - 1, i, weights[o - 1]);
            keep_order();
        }
        keep_in_consecutive_registers(weights[o]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) finish_octet(operand, state, kScoreOctets - 1, i, weights[kScoreOctets - 1]);
}

// O^T += V'^T P^T for slices [kFirst, kEnd), two at a time, so that three others stand between two products
// on the same accumulator: a result arrives long after its eight cycles. Nothing moves past them.
template <int kFirst, int kEnd>
SAGE_INLINE void multiply_values(OnlineSoftmax& state, const int4v (&values)[kSlices],
                                 const int4v (&weights)[kRowTiles]) {
#pragma unroll
    for (int pair = kFirst; pair < kEnd; pair += 2)
#pragma unroll
        for (int step = 0; step < 2; ++step)
#pragma unroll
            for (int c = pair; c < pair + 2; ++c)
#pragma unroll
                for (int n = 0; n < kRowTiles; ++n)
                    state.output[c][n] =
                        multiply_fp8(step ? values[c].zw : values[c].xy, step ? weights[n].zw : weights[n].xy,
                                     state.output[c][n]);
    keep_order();
}

// Reads slices [kFirst, kEnd) of V from LDS.
template <int kFirst, int kEnd>
SAGE_INLINE void load_values(int4v (&values)[kSlices], const OperandTile& tile, int lane) {
    constexpr int kStart = kKeyTileBytes / 16;
#pragma unroll
    for (int c = kFirst; c < kEnd; ++c) values[c] = tile[kStart + c * kLanes + lane];
}

// V was centred, so its mean has to be added to O: the mean of V, less the mean of V' after rounding. The
// latter is not zero: where V's mean is below the grid of bfloat16, V' rounds to what V itself would round
// to, and the mean would count twice. With both, uniform weights give V's mean exactly.
SAGE_INLINE float mean_to_add_back(const Arguments& args, const Head& head, int channel) {
    auto centre = global<const float>(centre_address(args, head.index)) + channel;
    auto sums = global<const float>(value_sum_address(args, head.index, 0)) + channel;
    int groups = quantise_groups(args.sequence);
    float weight = 1.0f / float(args.sequence), rounded = 0.0f;
    for (int group = 0; group < groups; ++group)
        rounded = __builtin_fmaf(sums[group * kHeadDim], weight, rounded);
    return __builtin_fmaf(-rounded, centre[kHeadDim], centre[0]);
}

SAGE_INLINE void store_output(const OnlineSoftmax& state, const float (&means)[kHeadDim],
                              const Arguments& args, const Head& head, int64_t first_query, int lane) {
    auto centre = global<const float>(centre_address(args, head.index));
    float inverse[kRowTiles];
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
        float sum = state.sum[n].x + state.sum[n].y;
        inverse[n] = 1.0f / (sum + other_half(sum));
    }
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
        int64_t query = first_query + 16 * n + lane % 16;
        if (query >= args.sequence) continue;
        int64_t row = (head.batch * args.sequence + query) * args.heads + head.head;
#pragma unroll
        for (int c = 0; c < kSlices; ++c) {
            int channel = 16 * c + 8 * (lane / 16);
            auto mean = (const float8v*)(means + channel);
            auto scale = (SAGE_GLOBAL const float8v*)(centre + kHeadDim + channel);
            float8v o = state.output[c][n] * (*scale * inverse[n]) + *mean;
            *global<int4v>(args.out + 2 * (row * kHeadDim + channel)) =
                int4v{to_bf16_pair(o[0], o[1]), to_bf16_pair(o[2], o[3]), to_bf16_pair(o[4], o[5]),
                      to_bf16_pair(o[6], o[7])};
        }
    }
}

// Reads, rotates and quantises this wave's 32 queries. All factors of the exponent but K's scale go into
// theirs; the sign of softmax_scale goes into the integers.
SAGE_INLINE void quantise_queries(QuantisedRows& q, const Arguments& args, const Head& head,
                                  int64_t first_query, int lane) {
    Rows rows;
    uint64_t address = args.q + 2 * (head.batch * args.q_stride_batch + head.head * args.q_stride_head);
    load_rows(rows, address, args.q_stride_sequence, first_query, args.sequence, lane);
    rotate_rows(rows, lane);
    quantise_rows<Scale::kPerRow>(q, rows, __builtin_copysignf(1.0f, args.softmax_scale));
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t)
        q.scale[t] =
            q.scale[t] * (kHadamardScale * kLog2E) * __builtin_fabsf(args.softmax_scale) * kQueryUnits;
}

SAGE_INLINE void start_softmax(OnlineSoftmax& state, const QuantisedRows& q) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
        state.headroom[n] = __builtin_inff();
        state.sum[n] = float2v{q.not_finite[n], 0.0f};  // makes NaN of this query's outputs
#pragma unroll
        for (int c = 0; c < kSlices; ++c) state.output[c][n] = float8v{};
    }
}

// One thread's 32 bytes of a tile on its way from the workspace to LDS.
struct TileInFlight {
    int4v keys, values;
    SAGE_INLINE TileInFlight fetch(uint64_t tile, uint32_t thread) {
        auto operands = global<const int4v>(tile);
        return {operands[thread], operands[thread + kThreads]};
    }
    SAGE_INLINE void land(OperandTile& tile, const TileInFlight& it, uint32_t thread) {
        tile[thread] = it.keys;
        tile[thread + kThreads] = it.values;
    }
};

SAGE_INLINE void load_ahead(KeyPair (&ahead)[kPairsAhead], const OperandTile& tile, int lane) {
#pragma unroll
    for (int p = 0; p < kPairsAhead; ++p) ahead[p] = KeyPair::load(tile, p, lane);
}

// What a score's bits are worth in this tile, for each query of the lane; both at once, so that
// they issue in pairs.
SAGE_INLINE void scale_scores(float (&scale)[kRowTiles], const QuantisedRows& q, float key_scale) {
    static_assert(kRowTiles == 2);
    float2v step = float2v{q.scale[0], q.scale[1]} * key_scale;
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) step[n] = __builtin_fminf(step[n], kLargestScoreScale);
    keep_in_consecutive_registers(step);
    scale[0] = step[0];
    scale[1] = step[1];
}

SAGE_INLINE void attend(const Arguments& args) {
    __attribute__((shared)) static OperandTile buffers[2];
    __attribute__((shared)) static float means[kHeadDim];
    Head head;
    if (!Head::locate(head, args)) return;
    saturate_fp8_conversions();
    uint32_t thread = thread_index();
    int lane = thread % kLanes;
    int wave = uniform(int(thread / kLanes));
    int64_t first_query = group_index() * kQueriesPerWorkgroup + wave * kQueriesPerWave;
    QuantisedRows q;
    quantise_queries(q, args, head, first_query, lane);
    float largest_q_scale = wave_maximum(__builtin_fmaxf(q.scale[0], q.scale[1]));

    int tile_count = tiles(args.sequence);
    __builtin_assume(tile_count > 0);
    int tail_keys = args.sequence - int64_t(tile_count - 1) * kKeysPerTile;
    int ragged_tile = tail_keys < kKeysPerTile ? tile_count - 1 : -1;
    uint64_t operands = tile_address(args, head.index, 0);  // uniform: loads add the thread's 32-bit offset
    auto key_scales = (const SAGE_CONSTANT float*)key_scale_address(args, head.index);

    OnlineSoftmax state;
    start_softmax(state, q);
    TileInFlight::land(buffers[0], TileInFlight::fetch(operands, thread), thread);
    if (thread < kHeadDim) means[thread] = mean_to_add_back(args, head, thread);
    workgroup_barrier();
    KeyPair ahead[kPairsAhead];
    load_ahead(ahead, buffers[0], lane);

    float key_scale = key_scales[0];

    // Two tiles a round make the LDS addresses of both buffers constants.
    auto attend_tile = [&](const OperandTile& current, OperandTile& next, int tile) {
        bool is_last = tile + 1 == tile_count;
        int8v scores[kRowTiles][kRowTiles];
        multiply_keys(scores, ahead, current, q, lane);
        keep_order();  // K's fragments and the prefetched tile together would spill
        // The last round fetches its own tile again: no branch, and nobody reads it.
        int fetched = is_last ? tile : tile + 1;
        auto coming =
            TileInFlight::fetch(operands + uint64_t(uint32_t(fetched)) * kOperandBytesPerTile, thread);

        float scale[kRowTiles], offset[kRowTiles];
        key_scale *= kKeyUnits;
        scale_scores(scale, q, key_scale);
        bool is_coarse = largest_q_scale * key_scale > kLargestStep / kScoreUnit;
        if (tile == ragged_tile) mask_tail(scores, scale, tail_keys, lane);
        key_scale = key_scales[fetched];  // of the next tile
        update_maximum(state, scale, offset, scores, is_coarse);
        int4v weights[kRowTiles], values[kSlices];
        // An LDS instruction waits until all earlier vector instructions of its wave are done. So they stand
        // where the wave has just waited (here, for the branch), and together; none stands between products
        // on V.
        load_values<0, 2>(values, current, lane);
        keep_order();
        exponentiate(weights, state, scale, offset, scores);
        keep_order();

        load_values<2, kSlices>(values, current, lane);
        TileInFlight::land(next, coming, thread);
        keep_order();
        multiply_values<0, 2>(state, values, weights);  // while the other slices arrive
        // One barrier per tile: it ends both the reads of this buffer and the writes of the other.
        arrive_at_workgroup_barrier();
        keep_order();
        multiply_values<2, kSlices>(state, values, weights);
        wait_at_workgroup_barrier();
        load_ahead(ahead, next, lane);
        keep_order();
    };
    for (int tile = 0; tile < tile_count; tile += 2) {
        attend_tile(buffers[0], buffers[1], tile);
        if (tile + 1 == tile_count) break;
        attend_tile(buffers[1], buffers[0], tile + 1);
    }
    store_output(state, means, args, head, first_query, lane);
}

#define SAGE_KERNEL_BODY(body) body
#else
// Other targets of a multi-architecture build get empty kernels: the launcher refuses such a GPU before it
// comes to that.
#define SAGE_KERNEL_BODY(body)
#endif

// <= 240 VGPRs: six waves per SIMD on gfx1201's 1536 registers.
#define SAGE_KERNEL       \
    extern "C" __global__ \
        __attribute__((amdgpu_flat_work_group_size(kThreads, kThreads), amdgpu_waves_per_eu(6)))

SAGE_KERNEL void gfx1201_sage_statistics(Arguments args) { SAGE_KERNEL_BODY(collect_statistics(args)); }
SAGE_KERNEL void gfx1201_sage_quantise(Arguments args) { SAGE_KERNEL_BODY(quantise(args)); }
SAGE_KERNEL void gfx1201_sage_attention_main(Arguments args) { SAGE_KERNEL_BODY(attend(args)); }

}  // namespace gfx1201_sage
