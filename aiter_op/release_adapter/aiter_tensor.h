// SPDX-License-Identifier: MIT
// The part of main's aiter_tensor_t that gfx1201_sage_attention.cu reads, for the release, whose C++
// operators take torch tensors.
#pragma once

#include <cstdint>
#include <vector>

struct aiter_tensor_t {
    void* ptr;
    std::vector<int64_t> shape, strides;

    void* data_ptr() const { return ptr; }
    int64_t size(int dimension) const { return shape[dimension]; }
    int64_t stride(int dimension) const { return strides[dimension]; }
};
