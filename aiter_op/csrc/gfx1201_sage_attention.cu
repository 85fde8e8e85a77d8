// SPDX-License-Identifier: MIT
#include <hip/hip_runtime.h>

#include <stdexcept>
#include <string>

#include "aiter_stream.h"
#include "gfx1201_sage_attention.h"
#include "sage_attention_device.h"

namespace aiter {
namespace {

using namespace gfx1201_sage;

uint64_t address(const aiter_tensor_t& tensor) { return reinterpret_cast<uint64_t>(tensor.data_ptr()); }

Arguments arguments(const aiter_tensor_t& out, const aiter_tensor_t& workspace, const aiter_tensor_t& q,
                    const aiter_tensor_t& k, const aiter_tensor_t& v, float softmax_scale) {
    Arguments args{};
    args.q = address(q);
    args.k = address(k);
    args.v = address(v);
    args.out = address(out);
    args.workspace = address(workspace);
    args.batch = q.size(0);
    args.sequence = q.size(1);
    args.heads = q.size(2);
    args.q_stride_batch = q.stride(0);
    args.q_stride_sequence = q.stride(1);
    args.q_stride_head = q.stride(2);
    args.k_stride_batch = k.stride(0);
    args.k_stride_sequence = k.stride(1);
    args.k_stride_head = k.stride(2);
    args.v_stride_batch = v.stride(0);
    args.v_stride_sequence = v.stride(1);
    args.v_stride_head = v.stride(2);
    args.softmax_scale = softmax_scale;
    return args;
}

// `rows` is the part of the sequence that one work-group covers.
void launch(const char* name, void (*kernel)(Arguments), int64_t rows, Arguments& args, hipStream_t stream) {
    const Grid size = grid(rows, args.batch, args.sequence, args.heads);
    void* parameters[] = {&args};
    const hipError_t error = hipLaunchKernel(reinterpret_cast<const void*>(kernel),
                                             dim3(uint32_t(size.x), uint32_t(size.y), uint32_t(size.z)),
                                             dim3(kThreads), parameters, 0, stream);
    if (error == hipSuccess) return;
    // Thrown, not HIP_CALL_LAUNCH, which would abort the caller's process. HIP also keeps the error for the
    // next hipGetLastError, where torch would report it against an unrelated operation.
    (void)hipGetLastError();
    throw std::runtime_error(std::string(name) + " failed to launch: " + hipGetErrorString(error));
}

}  // namespace

int64_t gfx1201_sage_attention_workspace_bytes(int64_t batch, int64_t sequence, int64_t heads) {
    return workspace_bytes(batch, sequence, heads);
}

void gfx1201_sage_attention_launch(aiter_tensor_t& out, aiter_tensor_t& workspace, aiter_tensor_t& q,
                                   aiter_tensor_t& k, aiter_tensor_t& v, float softmax_scale) {
    Arguments args = arguments(out, workspace, q, k, v, softmax_scale);
    const int64_t sequence = args.sequence;
    const hipStream_t stream = getCurrentHIPStream();
#define GFX1201_SAGE_LAUNCH(kernel, rows) launch(#kernel, kernel, rows, args, stream);
    GFX1201_SAGE_LAUNCHES(GFX1201_SAGE_LAUNCH)
#undef GFX1201_SAGE_LAUNCH
}

}  // namespace aiter
