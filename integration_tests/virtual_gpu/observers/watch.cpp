// SPDX-License-Identifier: MIT
// Tells a caller everything that one wave does: what traces and the stepper are made of.
#include <algorithm>
#include <memory>
#include <string>

#include "control.h"
#include "core/code_object.h"
#include "core/disassemble.h"
#include "core/observer.h"

namespace virtual_gpu {
namespace {

class Watch : public Observer {
  public:
    Watch(std::string kernel, const uint32_t (&workgroup)[3], uint32_t wave, virtual_gpu_watcher watcher)
        : kernel_(std::move(kernel)), wave_(wave), watcher_(watcher) {
        std::copy_n(workgroup, 3, workgroup_);
    }

    void launch_begins(const ObservedLaunch& launch) override {
        is_wanted_ = launch.kernel.name == kernel_;
        entry_ = launch.kernel.descriptor.entry;
    }
    void launch_ends(const char* fault) override {
        if (!is_wanted_) return;
        virtual_gpu_watched moment = {};
        moment.event = virtual_gpu_watch_end;
        moment.text = fault ? fault : "";
        watcher_(&moment);
    }
    void before(Wave& wave, const Instruction& instruction, uint64_t at) override {
        if (!is_watched(wave)) return;
        text_ = disassemble(instruction);
        offset_ = at - entry_;
        tell(wave, virtual_gpu_watch_before);
    }
    void after(Wave& wave, const Instruction&, uint64_t) override {
        if (is_watched(wave)) tell(wave, virtual_gpu_watch_after);
    }
    void access(Wave& wave, const MemoryAccess& access) override {
        if (!is_watched(wave)) return;
        virtual_gpu_watched moment = seen(wave, virtual_gpu_watch_access);
        moment.space = static_cast<uint32_t>(access.space);
        moment.is_store = access.kind != Access::kLoad;
        moment.bytes = access.bytes;
        moment.lane = access.lane;
        moment.address = access.address;
        watcher_(&moment);
    }

  private:
    bool is_watched(const Wave& wave) const {
        return is_wanted_ && wave.index == wave_ &&
               std::equal(workgroup_, workgroup_ + 3, wave.workgroup->id);
    }
    virtual_gpu_watched seen(const Wave& wave, virtual_gpu_watch_event event) const {
        virtual_gpu_watched moment = {};
        moment.event = event;
        moment.offset = offset_;
        moment.text = text_.c_str();
        moment.vgpr = wave.vgpr[0];
        moment.scalar = wave.scalar;
        moment.scc = wave.scc;
        moment.mode = wave.mode;
        moment.lds = wave.workgroup->lds.data();
        moment.lds_bytes = static_cast<uint32_t>(wave.workgroup->lds.size());
        return moment;
    }
    void tell(const Wave& wave, virtual_gpu_watch_event event) const {
        const virtual_gpu_watched moment = seen(wave, event);
        watcher_(&moment);
    }

    const std::string kernel_;
    uint32_t workgroup_[3];
    const uint32_t wave_;
    const virtual_gpu_watcher watcher_;
    bool is_wanted_ = false;
    uint64_t entry_ = 0, offset_ = 0;
    std::string text_;
};

std::unique_ptr<Watch> watch;

}  // namespace
}  // namespace virtual_gpu

using namespace virtual_gpu;

VIRTUAL_GPU_API void virtual_gpu_watch_stop() {
    if (watch) remove_observer(*watch);
}
VIRTUAL_GPU_API void virtual_gpu_watch(const char* kernel, uint32_t x, uint32_t y, uint32_t z, uint32_t wave,
                                       virtual_gpu_watcher watcher) {
    virtual_gpu_watch_stop();
    const uint32_t workgroup[3] = {x, y, z};
    watch = std::make_unique<Watch>(kernel, workgroup, wave, watcher);
    add_observer(*watch);
}
