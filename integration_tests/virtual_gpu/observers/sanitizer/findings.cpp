// SPDX-License-Identifier: MIT
#include "observers/sanitizer/findings.h"

#include <cstdio>

#include "core/disassemble.h"

namespace virtual_gpu {
namespace {

std::string place(const Workgroup& group) {
    return "work-group (" + std::to_string(group.id[0]) + ", " + std::to_string(group.id[1]) + ", " +
           std::to_string(group.id[2]) + ")";
}

}  // namespace

void Findings::begin_launch(std::string kernel, uint64_t code) {
    std::lock_guard lock(mutex_);
    kernel_ = std::move(kernel);
    code_ = code;
}

void Findings::add(Fault fault, const Wave& wave, const Instruction& instruction, uint64_t at,
                   const std::string& text) {
    char offset[24];
    std::snprintf(offset, sizeof offset, "+0x%llx ", static_cast<unsigned long long>(at - code_));
    insert(fault, at,
           text + "; " + place(*wave.workgroup) + ", wave " + std::to_string(wave.index) + ", code " +
               offset + describe(instruction, at));
}

void Findings::add(Fault fault, const Workgroup& group, const std::string& text) {
    insert(fault, 0, text + "; " + place(group));
}

void Findings::insert(Fault fault, uint64_t at, std::string text) {
    std::lock_guard lock(mutex_);
    const auto [found, is_new] = known_.emplace(std::tuple(fault, kernel_, at - code_), list_.size());
    if (is_new)
        list_.push_back({fault, kernel_, std::move(text)});
    else
        ++list_[found->second].count;
}

std::vector<Finding> Findings::all() const {
    std::lock_guard lock(mutex_);
    return list_;
}

void Findings::clear() {
    std::lock_guard lock(mutex_);
    list_.clear();
    known_.clear();
}

}  // namespace virtual_gpu
