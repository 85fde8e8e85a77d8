// SPDX-License-Identifier: MIT
#include "core/observer.h"

#include <algorithm>
#include <vector>

namespace virtual_gpu {
namespace {

std::vector<Observer*> all;

// Passes everything on to all of them.
class Several : public Observer {
  public:
    void launch_begins(const ObservedLaunch& launch) override {
        for (Observer* one : all) one->launch_begins(launch);
    }
    void launch_ends(const char* fault) override {
        for (Observer* one : all) one->launch_ends(fault);
    }
    void workgroup_begins(Workgroup& group, Wave* const* waves) override {
        for (Observer* one : all) one->workgroup_begins(group, waves);
    }
    void workgroup_ends(Workgroup& group) override {
        for (Observer* one : all) one->workgroup_ends(group);
    }
    void before(Wave& wave, const Instruction& instruction, uint64_t at) override {
        for (Observer* one : all) one->before(wave, instruction, at);
    }
    void after(Wave& wave, const Instruction& instruction, uint64_t at) override {
        for (Observer* one : all) one->after(wave, instruction, at);
    }
    void access(Wave& wave, const MemoryAccess& access) override {
        for (Observer* one : all) one->access(wave, access);
    }
    void barrier_signalled(Wave& wave, uint32_t generation) override {
        for (Observer* one : all) one->barrier_signalled(wave, generation);
    }
    void barrier_passed(Wave& wave, uint32_t generation) override {
        for (Observer* one : all) one->barrier_passed(wave, generation);
    }
};

}  // namespace

void add_observer(Observer& observer) {
    if (std::find(all.begin(), all.end(), &observer) == all.end()) all.push_back(&observer);
}
void remove_observer(Observer& observer) { std::erase(all, &observer); }

Observer* installed_observers() {
    static Several several;
    return all.empty() ? nullptr : all.size() == 1 ? all.front() : &several;
}

}  // namespace virtual_gpu
