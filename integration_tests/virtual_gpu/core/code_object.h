// SPDX-License-Identifier: MIT
// AMDGPU ELF code objects (versions 5 and 6) for gfx1201: loading, kernel descriptors, metadata.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/execute.h"

namespace virtual_gpu {

// The image is not a code object that can be loaded; `wrong_target` says that it is one for another device.
struct BadCodeObject : std::runtime_error {
    explicit BadCodeObject(const std::string& text, bool wrong_target = false)
        : std::runtime_error(text), wrong_target(wrong_target) {}
    bool wrong_target;
};

struct KernelArgument {
    std::string name;  // empty for hidden arguments
    std::string kind;  // "by_value", "global_buffer", "hidden_block_count_x", ...
    uint32_t offset = 0;
    uint32_t size = 0;

    bool hidden() const { return kind.rfind("hidden_", 0) == 0; }
};

// What the kernel descriptor's words say about the initial state of a wave.
struct KernelDescriptor {
    uint32_t group_segment_bytes = 0;
    uint32_t private_segment_bytes = 0;
    uint32_t kernarg_bytes = 0;
    uint64_t entry = 0;  // guest address
    uint32_t mode = 0;   // MODE register at the first instruction
    uint32_t user_sgprs = 0;
    bool wants_dispatch_ptr = false, wants_queue_ptr = false, wants_kernarg_ptr = false;
    bool wants_dispatch_id = false, wants_private_segment_size = false;
    bool wants_workgroup_id[3] = {};
    uint32_t work_item_id_dimensions = 1;
    bool uses_dynamic_stack = false;
    bool workgroup_processor_mode = false;  // a work-group spreads over both CUs of a WGP
};

struct Kernel {
    std::string name;
    KernelDescriptor descriptor;
    std::vector<KernelArgument> arguments;
    uint32_t max_work_group_size = 1024;
    uint32_t vgprs = 0, sgprs = 0, vgpr_spills = 0, sgpr_spills = 0;
};

struct Symbol {
    uint64_t address = 0;
    uint64_t bytes = 0;
};

class CodeObject {
  public:
    // Loads the image into page-aligned memory, which is tracked as one allocation. `image` may be an ELF or
    // an uncompressed offload bundle that holds one for gfx1201. Throws BadCodeObject.
    static std::unique_ptr<CodeObject> load(const uint8_t* image, size_t bytes, const std::string& name);
    ~CodeObject();
    CodeObject(const CodeObject&) = delete;
    CodeObject& operator=(const CodeObject&) = delete;

    const Kernel* find_kernel(const std::string& name) const;
    const Symbol* find_variable(const std::string& name) const;
    const std::map<std::string, Kernel>& kernels() const { return kernels_; }
    const Program& program() const { return *program_; }
    // What the ELF file calls a guest address.
    uint64_t address_in_file(uint64_t address) const { return address - reinterpret_cast<uint64_t>(memory_); }

  private:
    CodeObject() = default;

    uint8_t* memory_ = nullptr;
    size_t memory_bytes_ = 0;
    std::map<std::string, Kernel> kernels_;
    std::map<std::string, Symbol> variables_;
    std::shared_ptr<const Program> program_;

    friend class Loader;
};

// How many bytes can be read from `image` on: HIP passes images without a size, and headers may be damaged.
size_t readable_bytes(const uint8_t* image);

}  // namespace virtual_gpu
