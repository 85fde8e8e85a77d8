// SPDX-License-Identifier: MIT
// Text for the tests' side of the device.
#pragma once

#include <cstdio>
#include <string>

namespace virtual_gpu {

inline std::string json_string(const std::string& text) {
    std::string result = "\"";
    for (const char c : text) {
        char escaped[8];
        std::snprintf(escaped, sizeof escaped, "\\u%04x", static_cast<unsigned char>(c));
        result += c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20 ? escaped : std::string(1, c);
    }
    return result + "\"";
}

}  // namespace virtual_gpu
