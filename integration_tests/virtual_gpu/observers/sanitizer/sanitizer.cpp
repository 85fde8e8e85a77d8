// SPDX-License-Identifier: MIT
#include "observers/sanitizer/sanitizer.h"

#include <memory>
#include <string_view>

#include "core/code_object.h"
#include "core/fresh_memory.h"
#include "core/json.h"
#include "core/observer.h"
#include "observers/sanitizer/definedness.h"
#include "observers/sanitizer/findings.h"
#include "observers/sanitizer/followed.h"
#include "observers/sanitizer/modes.h"
#include "observers/sanitizer/races.h"
#include "observers/sanitizer/waits.h"

namespace virtual_gpu {
namespace {

class Sanitizer : public Observer {
  public:
    void launch_begins(const ObservedLaunch& launch) override {
        program_ = std::make_unique<FollowedProgram>(launch.program);
        findings.begin_launch(launch.kernel.name, launch.program.address);
        races_.begin_launch();
    }
    void launch_ends(const char*) override { program_.reset(); }

    void workgroup_begins(Workgroup& group, Wave* const* waves) override {
        waits_.begin(group.waves);
        races_.begin_workgroup(group);
        definedness_.begin_workgroup(group, waves);
        barriers_.assign(group.waves, {});
    }
    void workgroup_ends(Workgroup& group) override {
        for (uint32_t i = 1; i < group.waves; ++i) {
            if (barriers_[i].signalled == barriers_[0].signalled) continue;
            findings.add(Fault::kBarrierDivergence, group,
                         "wave 0 signals " + std::to_string(barriers_[0].signalled) + " barriers, wave " +
                             std::to_string(i) + " " + std::to_string(barriers_[i].signalled));
            return;
        }
    }

    void before(Wave& wave, const Instruction&, uint64_t at) override {
        current_ = &program_->at(at);
        at_ = at;
        if (current_->use.kind == Kind::kScalarMemory) check_scalar_alignment(wave);
        waits_.before(wave, *current_, at);
        definedness_.before(wave, *current_, at);
        modes_.before(wave, *current_, at);
    }
    void after(Wave& wave, const Instruction& instruction, uint64_t at) override {
        definedness_.after(wave, *current_, at);
        waits_.after(wave, *current_, at);
        if (instruction.control == Control::kEnd) races_.ended(wave);
    }
    void access(Wave& wave, const MemoryAccess& access) override {
        check_alignment(wave, access);
        races_.access(wave, *current_, at_, access);
        definedness_.access(wave, access);
    }
    void barrier_signalled(Wave& wave, uint32_t generation) override {
        Barriers& mine = barriers_[wave.index];
        if (mine.signalled != mine.passed)
            findings.add(Fault::kBarrierDivergence, wave, current_->instruction, at_,
                         "a barrier is signalled before the wait for the last one");
        ++mine.signalled;
        races_.signalled(wave, generation);
    }
    void barrier_passed(Wave& wave, uint32_t generation) override {
        barriers_[wave.index].passed = barriers_[wave.index].signalled;
        races_.passed(wave, generation);
    }

    Findings findings;

  private:
    struct Barriers {
        uint32_t signalled = 0, passed = 0;
    };

    // Scalar loads of dwords drop the low two bits of an address.
    void check_scalar_alignment(const Wave& wave) {
        using F = fields::SMEM;
        const Instruction& instruction = current_->instruction;
        if (!current_->use.counters ||
            std::string_view(mnemonic_name(instruction.mnemonic)).find("load_b") == std::string_view::npos)
            return;
        const uint32_t low = wave.scalar[F::sbase.of(instruction.words) * 2] +
                             wave.scalar[F::soffset.of(instruction.words)] +
                             static_cast<uint32_t>(instruction.immediate);
        if (low % 4)
            findings.add(Fault::kMisaligned, wave, instruction, at_,
                         "a scalar load drops the low bits of its address, which is no multiple of 4");
    }

    // HIP sets the unaligned modes, so vector accesses work at any address; but rows of 16-bit elements start
    // at even ones, and LDS takes wide accesses apart that are not aligned to their width.
    void check_alignment(const Wave& wave, const MemoryAccess& access) {
        uint32_t alignment = 1;
        if (access.space == Space::kLds)
            alignment = access.bytes == 12 ? 16 : access.bytes;
        else if (access.bytes > 1)
            alignment = 2;
        if (access.address % alignment == 0) return;
        findings.add(Fault::kMisaligned, wave, current_->instruction, at_,
                     "lane " + std::to_string(access.lane) + " accesses " + std::to_string(access.bytes) +
                         " bytes at an address that is no multiple of " + std::to_string(alignment));
    }

    std::unique_ptr<FollowedProgram> program_;
    Waits waits_{findings};
    Races races_{findings, waits_};
    Definedness definedness_{findings};
    Modes modes_{findings, definedness_};
    std::vector<Barriers> barriers_;
    const Followed* current_ = nullptr;
    uint64_t at_ = 0;
};

Sanitizer& sanitizer() {
    static auto* instance = new Sanitizer;  // launches may come until the process is gone
    return *instance;
}

}  // namespace

void sanitize(bool on) {
    watch_fresh_memory(on);
    if (on)
        add_observer(sanitizer());
    else
        remove_observer(sanitizer());
}

std::string findings_json() {
    std::string result = "[";
    for (const Finding& finding : sanitizer().findings.all())
        result += std::string(result.size() > 1 ? "," : "") +
                  "{\"fault\":" + json_string(kFaultNames[static_cast<size_t>(finding.fault)]) +
                  ",\"kernel\":" + json_string(finding.kernel) + ",\"text\":" + json_string(finding.text) +
                  ",\"count\":" + std::to_string(finding.count) + "}";
    return result + "]";
}

std::string fault_classes() {
    std::string result;
    for (const char* name : kFaultNames) result += std::string(result.empty() ? "" : " ") + name;
    return result;
}

void reset_findings() { sanitizer().findings.clear(); }

}  // namespace virtual_gpu
