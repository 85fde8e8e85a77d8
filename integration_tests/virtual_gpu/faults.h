// SPDX-License-Identifier: MIT
// The two ways a launch stops early. They are different types because they ask for different people.
#pragma once

#include <stdexcept>

namespace virtual_gpu {

// The guest program is wrong: an access outside every allocation, a barrier that cannot complete.
struct KernelFault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The program may be right, but this device does not implement what it asks for.
struct NotModelled : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace virtual_gpu
