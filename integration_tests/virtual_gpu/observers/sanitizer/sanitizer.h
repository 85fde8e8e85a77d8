// SPDX-License-Identifier: MIT
// The sanitizer: an observer that looks for what runs well here and fails on hardware, or only sometimes.
#pragma once

#include <string>

namespace virtual_gpu {

// Starts or stops looking, for launches and allocations from now on.
void sanitize(bool on);

// The findings since the last reset, a JSON array in order of their first occurrence.
std::string findings_json();
void reset_findings();
std::string fault_classes();

}  // namespace virtual_gpu
