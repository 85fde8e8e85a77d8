// SPDX-License-Identifier: MIT
// The Hub kernel's code object: the shared device code, compiled without any HIP header.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))

#include "sage_attention_device.h"
