// SPDX-License-Identifier: MIT
#include "observers/sanitizer/modes.h"

#include <cstring>

namespace virtual_gpu {
namespace {

constexpr uint32_t kKeepDenormals = 0xf0;         // MODE.FP_DENORM as HIP starts kernels
constexpr uint32_t kSaturateOverflow = 1u << 23;  // MODE.FP16_OVFL

}  // namespace

void Modes::before(Wave& wave, const Followed& followed, uint64_t at) {
    if (followed.converts_with_overflow && !(wave.mode & kSaturateOverflow) &&
        differs_under(wave, followed, wave.mode | kSaturateOverflow))
        findings_.add(Fault::kOverflowMode, wave, followed.instruction, at,
                      "a number beyond the format's range becomes NaN or infinity, because FP16_OVFL is 0");
    if (followed.is_float && (wave.mode & kKeepDenormals) != kKeepDenormals &&
        differs_under(wave, followed, wave.mode | kKeepDenormals))
        findings_.add(Fault::kDenormalMode, wave, followed.instruction, at,
                      "a denormal is flushed, because MODE is not what HIP starts kernels with");
}

bool Modes::differs_under(Wave& wave, const Followed& followed, uint32_t mode) {
    const uint32_t own_mode = wave.mode;
    uint32_t scalars[kScalars];
    const bool scc = wave.scc;
    std::memcpy(scalars, wave.scalar, sizeof scalars);
    std::vector<uint32_t> vgprs;
    for (const VgprRange& range : followed.use.vgpr_writes)
        for (int i = range.first; i < range.first + range.dwords; ++i)
            vgprs.insert(vgprs.end(), wave.vgpr[i], wave.vgpr[i] + kLanes);
    const auto restore = [&] {
        size_t next = 0;
        for (const VgprRange& range : followed.use.vgpr_writes)
            for (int i = range.first; i < range.first + range.dwords; ++i, next += kLanes)
                std::memcpy(wave.vgpr[i], &vgprs[next], sizeof wave.vgpr[i]);
        std::memcpy(wave.scalar, scalars, sizeof scalars);
        wave.scc = scc;
        wave.mode = own_mode;
    };
    try {
        followed.instruction.execute(wave, followed.instruction);
        copy_results(wave, followed, first_);
        restore();
        wave.mode = mode;
        followed.instruction.execute(wave, followed.instruction);
        copy_results(wave, followed, second_);
        restore();
    } catch (...) {
        restore();
        return false;  // the instruction will say so itself
    }
    return first_ != second_;
}

// Results that rest on undefined inputs are the business of Definedness.
void Modes::copy_results(const Wave& wave, const Followed& followed, std::vector<uint32_t>& out) const {
    out.clear();
    uint32_t unusable = 0;
    for (const VgprRange& range : followed.use.vgpr_reads)
        for (int i = range.first; i < range.first + range.dwords; ++i)
            for (int lane = 0; lane < kLanes; ++lane)
                unusable |= static_cast<uint32_t>(
                                definedness_.undefined_vgpr(wave, static_cast<uint32_t>(i), lane) != 0 &&
                                !followed.vgpr_writes[static_cast<size_t>(i)])
                            << lane;
    for (const VgprRange& range : followed.use.vgpr_writes)
        for (int i = range.first; i < range.first + range.dwords; ++i)
            for (int lane = 0; lane < kLanes; ++lane)
                out.push_back(unusable >> lane & 1 ? 0 : wave.vgpr[i][lane]);
    for (size_t i = 0; i < kScalars; ++i)
        if (followed.use.scalar_writes[i]) out.push_back(wave.scalar[i] & ~unusable);
}

}  // namespace virtual_gpu
