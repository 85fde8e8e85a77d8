// SPDX-License-Identifier: MIT
#include "observers/sanitizer/races.h"

#include <algorithm>
#include <cstdio>

namespace virtual_gpu {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr size_t kKeptPages = 4096;

// Accesses beyond the work-group (scope DEV or SYS) are how relaxed atomic loads and stores look.
bool reaches_other_groups(const Instruction& instruction) {
    return instruction.encoding != Encoding::DS && instruction.encoding != Encoding::SMEM &&
           fields::VGLOBAL::scope.of(instruction.words) >= 2;
}

std::string at_text(const char* space, uint64_t address) {
    char text[48];
    std::snprintf(text, sizeof text, "%s 0x%llx", space, static_cast<unsigned long long>(address));
    return text;
}

}  // namespace

void Races::begin_launch() {
    ++launch_;
    // Large launches leave much behind.
    if (pages_.size() > kKeptPages) pages_.clear();
    group_ = 0;
    released_.clear();
    group_names_.clear();
    group_names_[0] = "(several)";
}

void Races::begin_workgroup(const Workgroup& group) {
    ++group_;
    epoch_ = 1;
    clock_.clear();
    waves_.assign(group.waves, {});
    lds_.assign(group.lds.size(), {});
    lds_reads_.assign(group.lds.size() * group.waves, 0);
    group_names_[group_] = "(" + std::to_string(group.id[0]) + ", " + std::to_string(group.id[1]) + ", " +
                           std::to_string(group.id[2]) + ")";
}

void Races::signalled(const Wave& wave, uint32_t generation) {
    Signal signal{generation, {}};
    for (int i = 0; i < kCounters; ++i) signal.done[i] = waits_.progress(wave, static_cast<Counter>(i)).done;
    waves_[wave.index].signals.push_back(signal);
}
void Races::passed(const Wave& wave, uint32_t generation) {
    waves_[wave.index].passed = std::max(waves_[wave.index].passed, generation + 1);
}
// A wave that has ended has completed everything, for barriers that complete later.
void Races::ended(const Wave& wave) { waves_[wave.index].ended_at = wave.workgroup->barrier_generation; }

bool Races::ordered(uint32_t first_wave, uint64_t issued, Counter counter, uint32_t second_wave) const {
    if (first_wave == second_wave) return true;
    const WaveOrder& first = waves_[first_wave];
    const uint32_t passed = waves_[second_wave].passed;
    if (first.ended_at < passed) return true;
    for (auto signal = first.signals.rbegin(); signal != first.signals.rend(); ++signal)
        if (signal->generation < passed) return signal->done[static_cast<size_t>(counter)] > issued;
    return false;
}

void Races::access(const Wave& wave, const Followed& followed, uint64_t at, const MemoryAccess& access) {
    if (access.space == Space::kLds) lds(wave, followed, at, access);
    if (access.space == Space::kGlobal) global(wave, followed, at, access);
}

void Races::lds(const Wave& wave, const Followed& followed, uint64_t at, const MemoryAccess& access) {
    // `before` ran, `after` has not: this instruction's number on its counter is what is issued so far.
    const uint64_t issued = waits_.progress(wave, Counter::kDs).issued;
    const uint32_t me = wave.index, waves = static_cast<uint32_t>(waves_.size());
    const bool writes = access.kind != Access::kLoad, atomic = access.kind == Access::kAtomic;
    for (uint64_t address = access.address; address < access.address + access.bytes; ++address) {
        LdsByte& byte = lds_[address];
        uint64_t* reads = &lds_reads_[address * waves];
        const auto report = [&](const char* what, uint32_t other) {
            findings_.add(Fault::kLdsRace, wave, followed.instruction, at,
                          at_text("LDS", address) + " is " + what + " wave " + std::to_string(other) +
                              ", and no barrier lies between the two");
        };
        if (byte.write && byte.writer != me && !(atomic && byte.atomic) &&
            !ordered(byte.writer, byte.write - 1, Counter::kDs, me))
            return report(writes ? "overwritten after a write of" : "read after a write of", byte.writer);
        if (!writes) {
            byte.readers |= 1u << me;
            reads[me] = issued + 1;
            continue;
        }
        for (uint32_t mask = byte.readers & ~(1u << me); mask; mask &= mask - 1) {
            const uint32_t reader = static_cast<uint32_t>(__builtin_ctz(mask));
            if (!ordered(reader, reads[reader] - 1, Counter::kDs, me))
                return report("overwritten after a read of", reader);
        }
        byte = {issued + 1, 0, static_cast<uint8_t>(me), atomic};
    }
}

Races::Page& Races::page_at(uint64_t address) {
    Page& page = pages_[address / kPageBytes];
    if (page.launch != launch_) {
        page.launch = launch_;
        page.dwords.assign(kPageBytes / 4, {});
        page.split.clear();
    }
    return page;
}

bool Races::ordered(const Event& event, const Event& now) const {
    if (event.group == now.group) {
        if (event.atomic && now.atomic) return true;
        return ordered(event.wave, event.issued, event.counter, now.wave);
    }
    if (event.atomic && now.atomic) return true;
    const auto known = clock_.find(event.group);
    return known != clock_.end() && known->second >= event.epoch;
}

void Races::synchronise(uint64_t address) {
    GroupClock& at_address = released_[address];
    for (const auto& [group, epoch] : at_address) clock_[group] = std::max(clock_[group], epoch);
    at_address = clock_;
    at_address[group_] = epoch_++;
}

void Races::report_global(const Wave& wave, const Followed& followed, uint64_t at, uint64_t address,
                          const Event& before, const Event& now, const char* what) {
    const bool inside = before.group == now.group;
    findings_.add(
        Fault::kGlobalRace, wave, followed.instruction, at,
        at_text("global", address) + " is " + what + " " +
            (inside ? "wave " + std::to_string(before.wave) + ", and no barrier lies between the two"
                    : "work-group " + group_names_[before.group] + ", which nothing orders"));
}

// One byte or one whole dword; false after a report.
bool Races::global_bytes(const Wave& wave, const Followed& followed, uint64_t at, uint64_t address,
                         bool writes, const Event& now, Accesses& accesses) {
    const auto report = [&](const Event& before, const char* what) {
        report_global(wave, followed, at, address, before, now, what);
        return false;
    };
    if (accesses.write.group && !ordered(accesses.write, now))
        return report(accesses.write, writes ? "overwritten after a write of" : "read after a write of");
    if (writes && accesses.read.group && !ordered(accesses.read, now))
        return report(accesses.read, "overwritten after a read of");
    if (writes && accesses.many_readers) return report({}, "overwritten after reads of");
    if (writes) {
        accesses = {now, {}, false};
    } else {
        accesses.many_readers |= accesses.read.group && accesses.read.group != group_;
        accesses.read = now;
    }
    return true;
}

void Races::global(const Wave& wave, const Followed& followed, uint64_t at, const MemoryAccess& access) {
    const bool writes = access.kind != Access::kLoad;
    const bool atomic = access.kind == Access::kAtomic || reaches_other_groups(followed.instruction);
    const bool store = followed.use.counters & counter_bit(Counter::kStore);
    const Counter counter = access.lane == kScalarLane ? Counter::kKm
                            : store                    ? Counter::kStore
                                                       : Counter::kLoad;
    Event now;
    now.issued = static_cast<uint32_t>(waits_.progress(wave, counter).issued);
    now.group = group_, now.epoch = static_cast<uint16_t>(std::min(epoch_, 65535u)),
    now.wave = static_cast<uint8_t>(wave.index);
    now.counter = counter, now.atomic = atomic;
    if (atomic) synchronise(access.address);
    const uint64_t end = access.address + access.bytes;
    for (uint64_t address = access.address; address < end;) {
        Page& page = page_at(address);
        const uint64_t dword = address % kPageBytes / 4;
        const bool whole = address % 4 == 0 && end - address >= 4;
        if (whole && !page.split.contains(dword)) {
            if (!global_bytes(wave, followed, at, address, writes, now, page.dwords[dword])) return;
            address += 4;
            continue;
        }
        const Accesses& so_far = page.dwords[dword];
        auto& bytes = page.split.try_emplace(dword, std::array{so_far, so_far, so_far, so_far}).first->second;
        if (!global_bytes(wave, followed, at, address, writes, now, bytes[address % 4])) return;
        ++address;
    }
}

}  // namespace virtual_gpu
