// SPDX-License-Identifier: MIT
// A reader for MessagePack, the encoding of the metadata note in AMDGPU code objects.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace virtual_gpu {

struct MessagePackValue {
    enum class Kind { kNil, kBool, kInteger, kFloat, kString, kArray, kMap };
    Kind kind = Kind::kNil;
    int64_t integer = 0;  // also booleans
    std::string string;
    std::vector<MessagePackValue> array;
    std::vector<std::pair<std::string, MessagePackValue>> map;

    // The value under `key`, or a nil value when there is none.
    const MessagePackValue& operator[](const char* key) const;
};

// Throws std::runtime_error when the bytes are not one complete value.
MessagePackValue read_message_pack(const uint8_t* bytes, size_t size);

}  // namespace virtual_gpu
