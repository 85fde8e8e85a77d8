// SPDX-License-Identifier: MIT
// Marks an exported entry point. Everything else is hidden: the library's C++ runtime must not meet that of
// the process.
#pragma once

#define VIRTUAL_GPU_API extern "C" __attribute__((visibility("default")))
