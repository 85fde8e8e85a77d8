// SPDX-License-Identifier: MIT
// The two ways a launch stops early. They are different types because they ask for different people.
#pragma once

#include <stdexcept>

namespace virtual_gpu {

// The guest program is wrong: a trap, a barrier that cannot complete.
struct KernelFault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

// The commonest guest error has its own type because HIP reports it under its own code.
struct IllegalAccess : KernelFault {
    using KernelFault::KernelFault;
};

// The program may be right, but this device does not implement what it asks for.
struct NotModelled : std::runtime_error {
    using std::runtime_error::runtime_error;
};

}  // namespace virtual_gpu
