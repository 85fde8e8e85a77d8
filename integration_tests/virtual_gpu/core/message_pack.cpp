// SPDX-License-Identifier: MIT
#include "core/message_pack.h"

#include <stdexcept>

namespace virtual_gpu {
namespace {

using Kind = MessagePackValue::Kind;

class Reader {
  public:
    Reader(const uint8_t* bytes, size_t size) : next_(bytes), end_(bytes + size) {}

    MessagePackValue value(int depth = 0) {
        if (depth > 32) throw std::runtime_error("metadata is nested too deeply");
        const uint8_t tag = uint8_t(integer(1));
        if (tag < 0x80) return make_integer(tag);
        if (tag < 0x90) return make_map(tag & 0x0f, depth);
        if (tag < 0xa0) return make_array(tag & 0x0f, depth);
        if (tag < 0xc0) return make_string(tag & 0x1f);
        if (tag >= 0xe0) return make_integer(int8_t(tag));
        switch (tag) {
            case 0xc0:
                return {};
            case 0xc2:
            case 0xc3:
                return make(Kind::kBool, tag & 1);
            case 0xc4:
            case 0xc5:
            case 0xc6:
                return make_string(integer(1 << (tag - 0xc4)));
            case 0xca:
            case 0xcb:
                return make(Kind::kFloat, int64_t(integer(tag == 0xca ? 4 : 8)));
            case 0xcc:
            case 0xcd:
            case 0xce:
            case 0xcf:
                return make_integer(int64_t(integer(1 << (tag - 0xcc))));
            case 0xd0:
                return make_integer(int8_t(integer(1)));
            case 0xd1:
                return make_integer(int16_t(integer(2)));
            case 0xd2:
                return make_integer(int32_t(integer(4)));
            case 0xd3:
                return make_integer(int64_t(integer(8)));
            case 0xd9:
            case 0xda:
            case 0xdb:
                return make_string(integer(1 << (tag - 0xd9)));
            case 0xdc:
            case 0xdd:
                return make_array(integer(tag == 0xdc ? 2 : 4), depth);
            case 0xde:
            case 0xdf:
                return make_map(integer(tag == 0xde ? 2 : 4), depth);
            default:
                throw std::runtime_error("metadata holds a MessagePack extension type");
        }
    }

  private:
    void need(uint64_t bytes) const {
        if (bytes > uint64_t(end_ - next_)) throw std::runtime_error("metadata is truncated");
    }
    uint64_t integer(int bytes) {
        need(bytes);
        uint64_t result = 0;
        for (int i = 0; i < bytes; ++i) result = result << 8 | *next_++;
        return result;
    }
    static MessagePackValue make(Kind kind, int64_t integer) {
        MessagePackValue result;
        result.kind = kind;
        result.integer = integer;
        return result;
    }
    static MessagePackValue make_integer(int64_t integer) { return make(Kind::kInteger, integer); }
    MessagePackValue make_string(uint64_t bytes) {
        need(bytes);
        MessagePackValue result = make(Kind::kString, 0);
        result.string.assign(reinterpret_cast<const char*>(next_), bytes);
        next_ += bytes;
        return result;
    }
    MessagePackValue make_array(uint64_t count, int depth) {
        need(count);
        MessagePackValue result = make(Kind::kArray, 0);
        for (uint64_t i = 0; i < count; ++i) result.array.push_back(value(depth + 1));
        return result;
    }
    MessagePackValue make_map(uint64_t count, int depth) {
        need(count);
        MessagePackValue result = make(Kind::kMap, 0);
        for (uint64_t i = 0; i < count; ++i) {
            MessagePackValue key = value(depth + 1);
            result.map.emplace_back(std::move(key.string), value(depth + 1));
        }
        return result;
    }

    const uint8_t* next_;
    const uint8_t* end_;
};

}  // namespace

const MessagePackValue& MessagePackValue::operator[](const char* key) const {
    static const MessagePackValue nil;
    for (const auto& [name, value] : map)
        if (name == key) return value;
    return nil;
}

MessagePackValue read_message_pack(const uint8_t* bytes, size_t size) { return Reader(bytes, size).value(); }

}  // namespace virtual_gpu
