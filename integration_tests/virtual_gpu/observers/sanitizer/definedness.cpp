// SPDX-License-Identifier: MIT
#include "observers/sanitizer/definedness.h"

#include <algorithm>
#include <cstring>

#include "core/dispatch.h"
#include "core/fresh_memory.h"

namespace virtual_gpu {
namespace {

// What undefined bits are changed to. All flipped shows what they pass through to; zeros, ones and the other
// operand's bits decide comparisons; the random ones decide what is left.
enum Variant { kFlipped, kZeros, kOnes, kOtherOperand, kRandom1, kRandom2, kVariants };

// The bits of `value` that a variant changes; `place` tells registers, lanes and bytes from each other.
uint32_t changed_bits(int variant, uint64_t place, uint32_t value, uint32_t other) {
    switch (variant) {
        case kFlipped:
            return ~0u;
        case kZeros:
            return value;
        case kOnes:
            return ~value;
        case kOtherOperand:
            return value ^ other;
        default:
            break;
    }
    uint64_t mixed = (place * kVariants + static_cast<uint64_t>(variant)) * 0x9e3779b97f4a7c15ull;
    mixed = (mixed ^ mixed >> 31) * 0x94d049bb133111ebull;
    return static_cast<uint32_t>(mixed >> 32);
}

// The first two sources of an ALU instruction, each with the other: what `kOtherOperand` compares.
class Opposites {
  public:
    Opposites(const Wave& wave, const Instruction& instruction) : wave_(wave), instruction_(instruction) {}
    uint32_t of(Source::Kind kind, size_t index, int lane) const {
        for (int i = 0; i < 2; ++i) {
            const Source& source = instruction_.source[i];
            const size_t dword = index - source.index;
            if (source.kind == kind && index >= source.index && dword < 2)
                return value(instruction_.source[1 - i], dword, lane);
        }
        return 0;
    }

  private:
    uint32_t value(const Source& source, size_t dword, int lane) const {
        const size_t index = source.index + dword;
        if (source.kind == Source::kVgpr) return index < kVgprs ? wave_.vgpr[index][lane] : 0;
        if (source.kind == Source::kScalar) return index < kScalars ? wave_.scalar[index] : 0;
        return source.constant[dword];
    }
    const Wave& wave_;
    const Instruction& instruction_;
};

bool has_side_effects(Kind kind) {
    return kind == Kind::kBarrier || kind == Kind::kWait || kind == Kind::kOther;
}

std::string scalar_name(size_t code) {
    if (code == kSccBit) return "SCC";
    if (code == kVccLo) return "VCC";
    if (code == kM0) return "M0";
    return code < kVccLo ? "s" + std::to_string(code) : "scalar register " + std::to_string(code);
}

// Runs an instruction unseen.
class Unobserved {
  public:
    explicit Unobserved(Wave& wave) : wave_(wave), observer_(wave.observer) { wave.observer = nullptr; }
    ~Unobserved() { wave_.observer = observer_; }
    Unobserved(const Unobserved&) = delete;
    Unobserved& operator=(const Unobserved&) = delete;

  private:
    Wave& wave_;
    Observer* observer_;
};

}  // namespace

void Definedness::begin_workgroup(const Workgroup& group, Wave* const* waves) {
    lds_.assign(group.lds.size(), 0xff);
    while (shadows_.size() < group.waves) shadows_.push_back(std::make_unique<Shadow>());
    for (uint32_t i = 0; i < group.waves; ++i) {
        Shadow& shadow = *shadows_[i];
        const Wave& wave = *waves[i];
        // A launch leaves the pattern wherever it puts nothing.
        for (int v = 0; v < kVgprs; ++v) {
            shadow.lanes[v] = 0;
            for (int lane = 0; lane < kLanes; ++lane) {
                shadow.vgpr[v][lane] = wave.vgpr[v][lane] == kUninitialised ? ~0u : 0;
                shadow.lanes[v] |= static_cast<uint32_t>(shadow.vgpr[v][lane] != 0) << lane;
            }
        }
        for (size_t s = 0; s < kScalars; ++s)
            shadow.set_scalar(s, wave.scalar[s] == kUninitialised ? ~0u : 0);
        shadow.set_scalar(kSccBit, 1);
        shadow.scratch.assign(wave.scratch.size(), 0xff);
    }
}

bool Definedness::any_undefined(const Shadow& shadow, const VgprRanges& vgprs,
                                const ScalarSet& scalars) const {
    for (const VgprRange& range : vgprs)
        for (int i = range.first; i < range.first + range.dwords; ++i)
            if (shadow.lanes[i]) return true;
    return (scalars & shadow.scalars).any();
}

// What an instruction with defined inputs leaves undefined is what lanes that are off kept.
void Definedness::define_active_lanes(const Wave& wave, Shadow& shadow, const Followed& followed) {
    const uint32_t exec = followed.use.kind == Kind::kMatrix ? ~0u : exec_;
    for (const VgprRange& range : followed.use.vgpr_writes) {
        for (int i = range.first; i < range.first + range.dwords; ++i) {
            if (!shadow.lanes[i]) continue;
            for (int lane = 0; lane < kLanes; ++lane)
                if (exec >> lane & 1) shadow.vgpr[i][lane] = 0;
            shadow.lanes[i] &= ~exec;
        }
    }
    for (size_t i = 0; i <= kScalars; ++i)
        if (followed.use.scalar_writes[i]) shadow.set_scalar(i, 0);
    for (const Touched& touched : touched_)
        if (touched.access.kind != Access::kLoad && touched.access.space != Space::kGlobal)
            std::memset(shadow_of(wave, shadow, touched.access), 0, touched.access.bytes);
}

void Definedness::check_addresses(Wave& wave, Shadow& shadow, const Followed& followed, uint64_t at) {
    const uint32_t exec = wave.scalar[kExecLo];
    for (const VgprRange& range : followed.use.vgpr_reads) {
        if (range.role != Role::kAddress) continue;
        for (int i = range.first; i < range.first + range.dwords; ++i) {
            const uint32_t lanes = shadow.lanes[i] & exec;
            if (!lanes) continue;
            findings_.add(Fault::kUndefinedAddress, wave, followed.instruction, at,
                          "v" + std::to_string(i) + " of lane " + std::to_string(__builtin_ctz(lanes)) +
                              " is an address, or part of one, that nobody has set");
            // Reported once; what it reads from there is another matter.
            for (int lane = 0; lane < kLanes; ++lane)
                if (lanes >> lane & 1) shadow.vgpr[i][lane] = 0;
            shadow.lanes[i] &= ~lanes;
        }
    }
    if ((followed.use.scalar_addresses & shadow.scalars).none()) return;
    for (size_t i = 0; i < kScalars; ++i) {
        if (!followed.use.scalar_addresses[i] || !shadow.scalar[i]) continue;
        findings_.add(Fault::kUndefinedAddress, wave, followed.instruction, at,
                      scalar_name(i) + " is an address, or part of one, that nobody has set");
        shadow.set_scalar(i, 0);
    }
}

void Definedness::save(const Wave& wave, State& state) const {
    state.vgprs.resize(touched_vgprs_.size() * kLanes);
    for (size_t i = 0; i < touched_vgprs_.size(); ++i)
        std::memcpy(&state.vgprs[i * kLanes], wave.vgpr[touched_vgprs_[i]], sizeof wave.vgpr[0]);
    std::memcpy(state.scalar, wave.scalar, sizeof state.scalar);
    state.scc = wave.scc;
    state.mode = wave.mode;
    state.pc = wave.pc;
}
void Definedness::restore(Wave& wave, const State& state) const {
    for (size_t i = 0; i < touched_vgprs_.size(); ++i)
        std::memcpy(wave.vgpr[touched_vgprs_[i]], &state.vgprs[i * kLanes], sizeof wave.vgpr[0]);
    std::memcpy(wave.scalar, state.scalar, sizeof state.scalar);
    wave.scc = state.scc;
    wave.mode = state.mode;
    wave.pc = state.pc;
}

void Definedness::before(Wave& wave, const Followed& followed, uint64_t at) {
    saved_ = undefined_input_ = undefined_output_ = undefined_memory_ = false;
    touched_.clear();
    if (has_side_effects(followed.use.kind)) return;
    Shadow& shadow = *shadows_[wave.index];
    undefined_input_ = any_undefined(shadow, followed.use.vgpr_reads, followed.use.scalar_reads);
    if (undefined_input_) check_addresses(wave, shadow, followed, at);
    undefined_output_ = any_undefined(shadow, followed.use.vgpr_writes, followed.use.scalar_writes);
    exec_ = wave.scalar[kExecLo];
    // Where lanes that are on may keep something, only execution tells which do.
    if (undefined_output_ && followed.use.vgpr_writes.count && !followed.writes_active_lanes)
        undefined_input_ = true;
    if (!undefined_input_ && !followed.loads) return;
    touched_vgprs_.clear();
    const VgprSet touched = followed.vgpr_reads | followed.vgpr_writes;
    for (uint16_t i = 0; i < kVgprs; ++i)
        if (touched[i]) touched_vgprs_.push_back(i);
    save(wave, before_);
    before_.pc = at + followed.instruction.dwords * 4u;
    saved_ = true;
}

uint8_t* Definedness::shadow_of(const Wave& wave, Shadow& shadow, const MemoryAccess& access) {
    if (access.space == Space::kLds) return lds_.data() + access.address;
    return shadow.scratch.data() + static_cast<size_t>(access.lane) * wave.scratch_bytes_per_lane +
           access.address;
}

void Definedness::access(const Wave& wave, const MemoryAccess& access) {
    Touched& touched = touched_.emplace_back();
    touched.access = access;
    std::memcpy(touched.before, access.host, access.bytes);
    std::memset(touched.undefined, 0, access.bytes);
    if (access.kind == Access::kStore) return;
    if (access.space == Space::kGlobal) {
        const uint64_t fresh = fresh_bytes(access.address, access.bytes, wave.hint.end);
        for (uint32_t i = 0; fresh && i < access.bytes; ++i) touched.undefined[i] = fresh >> i & 1 ? 0xff : 0;
        undefined_memory_ |= fresh != 0;
    } else {
        std::memcpy(touched.undefined, shadow_of(wave, *shadows_[wave.index], access), access.bytes);
        for (uint32_t i = 0; i < access.bytes; ++i) undefined_memory_ |= touched.undefined[i] != 0;
    }
}

void Definedness::after(Wave& wave, const Followed& followed, uint64_t at) {
    Shadow& shadow = *shadows_[wave.index];
    if (!undefined_input_ && !undefined_memory_) {
        if (undefined_output_ || !touched_.empty()) define_active_lanes(wave, shadow, followed);
        return;
    }
    if (!saved_) return;
    execute_changed(wave, shadow, followed);
    define_results(wave, shadow, followed);
    report(wave, shadow, followed, at);
}

void Definedness::change_inputs(Wave& wave, const Shadow& shadow, const Followed& followed, int variant) {
    restore(wave, before_);
    const Opposites opposites(wave, followed.instruction);
    for (const uint16_t v : touched_vgprs_) {
        if (!shadow.lanes[v]) continue;
        for (int lane = 0; lane < kLanes; ++lane)
            wave.vgpr[v][lane] ^=
                shadow.vgpr[v][lane] & changed_bits(variant, v * kLanes + static_cast<uint64_t>(lane),
                                                    wave.vgpr[v][lane], opposites.of(Source::kVgpr, v, lane));
    }
    const ScalarSet scalars = (followed.use.scalar_reads | followed.use.scalar_writes) & shadow.scalars;
    for (size_t i = 0; i < kScalars; ++i)
        if (scalars[i])
            wave.scalar[i] ^= shadow.scalar[i] & changed_bits(variant, 1 << 20 | i, wave.scalar[i],
                                                              opposites.of(Source::kScalar, i, 0));
    if (scalars[kSccBit] && (changed_bits(variant, 1 << 21, wave.scc, 0) & 1)) wave.scc = !wave.scc;
    // Backwards, so that where lanes overlap the memory of before the first of them is what comes back.
    for (auto touched = touched_.rbegin(); touched != touched_.rend(); ++touched) {
        const MemoryAccess& access = touched->access;
        for (uint32_t i = 0; i < access.bytes; ++i) {
            const uint64_t place = reinterpret_cast<uint64_t>(access.host) + i;
            access.host[i] = touched->before[i] ^
                             (touched->undefined[i] &
                              static_cast<uint8_t>(changed_bits(variant, place, touched->before[i], 0)));
        }
    }
}

void Definedness::collect_differences(const Wave& wave, const Followed& followed) {
    for (size_t i = 0; i < touched_vgprs_.size(); ++i)
        for (int lane = 0; lane < kLanes; ++lane)
            vgpr_differs_[i * kLanes + static_cast<size_t>(lane)] |=
                wave.vgpr[touched_vgprs_[i]][lane] ^ after_.vgprs[i * kLanes + static_cast<size_t>(lane)];
    const ScalarSet& scalars = followed.use.scalar_writes;
    for (size_t i = 0; i < kScalars; ++i)
        if (scalars[i]) scalar_differs_[i] |= wave.scalar[i] ^ after_.scalar[i];
    scalar_differs_[kSccBit] |= wave.scc != after_.scc;
    pc_differs_ |= wave.pc != after_.pc;
    mode_differs_ |= wave.mode != after_.mode;
    for (Touched& touched : touched_)
        if (touched.access.kind != Access::kLoad)
            for (uint32_t i = 0; i < touched.access.bytes; ++i)
                touched.differs[i] |= touched.access.host[i] ^ touched.after[i];
}

void Definedness::execute_changed(Wave& wave, Shadow& shadow, const Followed& followed) {
    Unobserved unobserved(wave);
    save(wave, after_);
    vgpr_differs_.assign(touched_vgprs_.size() * kLanes, 0);
    std::fill(std::begin(scalar_differs_), std::end(scalar_differs_), 0);
    pc_differs_ = mode_differs_ = false;
    for (Touched& touched : touched_) {
        std::memcpy(touched.after, touched.access.host, touched.access.bytes);
        std::memset(touched.differs, 0, touched.access.bytes);
    }
    for (int variant = 0; variant < kVariants; ++variant) {
        change_inputs(wave, shadow, followed, variant);
        try {
            followed.instruction.execute(wave, followed.instruction);
        } catch (const std::exception&) {
            // Other values would have been a fault: as far from the result as can be.
            pc_differs_ = true;
        }
        collect_differences(wave, followed);
    }
    restore(wave, after_);
    for (const Touched& touched : touched_)
        if (touched.access.kind != Access::kLoad || undefined_memory_)
            std::memcpy(touched.access.host, touched.after, touched.access.bytes);
}

void Definedness::define_results(const Wave& wave, Shadow& shadow, const Followed& followed) {
    for (size_t i = 0; i < touched_vgprs_.size(); ++i) {
        const uint16_t v = touched_vgprs_[i];
        if (!followed.vgpr_writes[v]) continue;
        shadow.lanes[v] = 0;
        for (int lane = 0; lane < kLanes; ++lane) {
            shadow.vgpr[v][lane] = vgpr_differs_[i * kLanes + static_cast<size_t>(lane)];
            shadow.lanes[v] |= static_cast<uint32_t>(shadow.vgpr[v][lane] != 0) << lane;
        }
    }
    for (size_t i = 0; i <= kScalars; ++i)
        if (followed.use.scalar_writes[i]) shadow.set_scalar(i, scalar_differs_[i]);
    for (const Touched& touched : touched_)
        if (touched.access.kind != Access::kLoad && touched.access.space != Space::kGlobal)
            std::memcpy(shadow_of(wave, shadow, touched.access), touched.differs, touched.access.bytes);
}

void Definedness::report(Wave& wave, Shadow& shadow, const Followed& followed, uint64_t at) {
    const auto add = [&](Fault fault, const std::string& text) {
        findings_.add(fault, wave, followed.instruction, at, text);
    };
    if (pc_differs_) add(Fault::kUndefinedBranch, "what runs next depends on bits that nobody has set");
    if (mode_differs_) add(Fault::kUndefinedMode, "MODE is set from bits that nobody has set");
    if (shadow.scalar[kExecLo]) {
        add(Fault::kUndefinedExec, "EXEC depends on bits that nobody has set");
        shadow.set_scalar(kExecLo, 0);
    }
    for (const Touched& touched : touched_) {
        if (touched.access.space != Space::kGlobal || touched.access.kind == Access::kLoad) continue;
        for (uint32_t i = 0; i < touched.access.bytes; ++i) {
            if (!touched.differs[i]) continue;
            add(Fault::kUndefinedResult, "byte " + std::to_string(i) + " of what lane " +
                                             std::to_string(touched.access.lane) +
                                             " stores to global memory depends on bits that nobody has set");
            return;
        }
    }
}

}  // namespace virtual_gpu
