// SPDX-License-Identifier: MIT
// Main's current stream, for the release: set by Python before each call, per thread.
#pragma once

#include <hip/hip_runtime.h>

namespace aiter {

inline thread_local hipStream_t current_stream = nullptr;
inline hipStream_t getCurrentHIPStream() { return current_stream; }

}  // namespace aiter
