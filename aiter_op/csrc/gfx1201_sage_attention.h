// SPDX-License-Identifier: MIT
// SageAttention for gfx1201. The caller checks shapes, dtypes and device, and makes the tensors' device
// current.
#pragma once

#include <cstdint>

#include "aiter_tensor.h"

namespace aiter {

// Bytes of scratch memory that one call needs.
int64_t gfx1201_sage_attention_workspace_bytes(int64_t batch, int64_t sequence, int64_t heads);

// out = softmax(softmax_scale * q k^T) v on the current stream; returns before the GPU is done.
//   out        bfloat16 [batch, sequence, heads, 128], contiguous
//   workspace  uint8 [gfx1201_sage_attention_workspace_bytes(...)], contents do not matter
//   q, k, v    bfloat16 [batch, sequence, heads, 128], stride 1 in the last dimension
// Throws std::runtime_error when HIP refuses a launch.
void gfx1201_sage_attention_launch(aiter_tensor_t& out, aiter_tensor_t& workspace, aiter_tensor_t& q,
                                   aiter_tensor_t& k, aiter_tensor_t& v, float softmax_scale);

}  // namespace aiter
