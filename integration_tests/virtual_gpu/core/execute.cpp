// SPDX-License-Identifier: MIT
#include "core/execute.h"

#include <cstdio>
#include <cstring>
#include <iterator>

#include "control.h"
#include "core/decode.h"
#include "core/disassemble.h"
#include "core/faults.h"
#include "core/observer.h"
#include "core/tables.h"

namespace virtual_gpu {
namespace {

thread_local InstructionCounts counts;

static_assert(std::size(kInstructionCounters) == kIssueClasses);

struct LocalCounts {
    uint64_t by_class[kIssueClasses] = {};
    Wave& wave;
    explicit LocalCounts(Wave& w) : wave(w) {}
    ~LocalCounts() {
        uint64_t total = 0;
        for (int i = 0; i < kIssueClasses; ++i) {
            counts.*kInstructionCounters[i].count += by_class[i];
            total += by_class[i];
        }
        wave.workgroup->instructions += total;
    }
};

const Instruction& fetch(const Program& program, uint64_t pc) {
    uint64_t offset = pc - program.address;
    if (offset % 4 || offset / 4 >= program.code.size()) throw KernelFault("execution left the program");
    return program.code[offset / 4];
}

bool barrier_is_open(const Wave& wave) { return wave.workgroup->barrier_generation > wave.barrier_target; }

template <bool observed>
Stop run(Wave& wave, const Program& program, uint64_t max_instructions, uint64_t& at) {
    LocalCounts local(wave);
    for (uint64_t i = 0; i < max_instructions; ++i) {
        at = wave.pc;
        const Instruction& instruction = fetch(program, wave.pc);
        if (instruction.control == Control::kBarrierWait) {
            if (instruction.immediate != -1)
                throw NotModelled("only the work-group barrier (-1) is modelled");
            if (!barrier_is_open(wave)) return Stop::kBarrier;
            if constexpr (observed) wave.observer->barrier_passed(wave, wave.barrier_target);
        }
        if constexpr (observed) wave.observer->before(wave, instruction, at);
        wave.pc += instruction.dwords * 4u;
        instruction.execute(wave, instruction);
        if constexpr (observed) wave.observer->after(wave, instruction, at);
        ++local.by_class[static_cast<int>(instruction.issue)];
        ++wave.executed;
        if (instruction.control == Control::kEnd) return Stop::kEnd;
    }
    return Stop::kBudget;
}

std::string locate(const Program& program, uint64_t pc) {
    uint64_t offset = pc - program.address;
    if (offset % 4 || offset / 4 >= program.code.size()) {
        char text[40];
        std::snprintf(text, sizeof text, "pc 0x%llx", static_cast<unsigned long long>(pc));
        return text;
    }
    return describe(program.code[offset / 4], pc);
}

}  // namespace

const RowTable& rows() {
    static const RowTable* table = [] {
        auto* built = new RowTable;
        for (auto add : {add_vop1_rows, add_vop2_rows, add_vop3_rows, add_vop3p_rows, add_vopc_rows,
                         add_vopd_rows, add_lane_move_rows, add_matrix_rows, add_scalar_rows,
                         add_scalar_memory_rows, add_program_rows, add_lds_rows, add_global_rows})
            add(*built);
        return built;
    }();
    return *table;
}

InstructionCounts& thread_instruction_counts() { return counts; }

Stop run_wave(Wave& wave, const Program& program, uint64_t max_instructions) {
    uint64_t at = wave.pc;
    try {
        return wave.observer ? run<true>(wave, program, max_instructions, at)
                             : run<false>(wave, program, max_instructions, at);
    } catch (const IllegalAccess& fault) {
        wave.pc = at;
        throw IllegalAccess(locate(program, at) + ": " + fault.what());
    } catch (const KernelFault& fault) {
        wave.pc = at;
        throw KernelFault(locate(program, at) + ": " + fault.what());
    } catch (const NotModelled& fault) {
        wave.pc = at;
        throw NotModelled(locate(program, at) + ": " + fault.what());
    }
}

}  // namespace virtual_gpu

using virtual_gpu::Wave;

namespace {

void copy_in(const virtual_gpu_registers& registers, Wave& wave, virtual_gpu::Workgroup& group) {
    std::memcpy(wave.vgpr, registers.vgpr, sizeof wave.vgpr);
    std::memcpy(wave.scalar, registers.scalar, sizeof wave.scalar);
    wave.scalar[virtual_gpu::kNull] = 0;
    wave.scc = registers.scc != 0;
    wave.mode = registers.mode;
    group.lds.assign(registers.lds,
                     registers.lds + std::min<size_t>(registers.lds_bytes, sizeof registers.lds));
    group.waves_in_barrier = 1;
    wave.workgroup = &group;
}
void copy_out(const Wave& wave, const virtual_gpu::Workgroup& group, virtual_gpu_registers& registers) {
    std::memcpy(registers.vgpr, wave.vgpr, sizeof wave.vgpr);
    std::memcpy(registers.scalar, wave.scalar, sizeof wave.scalar);
    registers.scc = wave.scc;
    registers.mode = wave.mode;
    std::copy(group.lds.begin(), group.lds.end(), registers.lds);
}

}  // namespace

VIRTUAL_GPU_API int virtual_gpu_execute(const uint8_t* code, size_t bytes, virtual_gpu_registers* registers,
                                        char* error, size_t error_bytes) {
    constexpr uint32_t kEndOfProgram = 0xbfb00000;  // s_endpgm
    constexpr uint64_t kMaxInstructions = 1 << 20;
    std::vector<uint8_t> text(code, code + bytes);
    text.resize(bytes + 4);
    std::memcpy(text.data() + bytes, &kEndOfProgram, 4);
    try {
        auto address = reinterpret_cast<uint64_t>(text.data());
        auto program = virtual_gpu::decode_program(text.data(), text.size(), address);
        virtual_gpu::Workgroup group;
        auto wave = std::make_unique<Wave>();
        copy_in(*registers, *wave, group);
        wave->pc = address;
        if (virtual_gpu::run_wave(*wave, *program, kMaxInstructions) != virtual_gpu::Stop::kEnd)
            throw virtual_gpu::KernelFault("the program did not end");
        copy_out(*wave, group, *registers);
        return 0;
    } catch (const std::exception& failure) {
        std::snprintf(error, error_bytes, "%s", failure.what());
        return 1;
    }
}

VIRTUAL_GPU_API const char* virtual_gpu_implemented(void) {
    using namespace virtual_gpu;
    static const std::string* names = [] {
        auto* text = new std::string;
        for (const Opcode& opcode : kOpcodes)
            if (rows()[static_cast<size_t>(opcode.mnemonic)].execute)
                *text += std::string(encoding_format(opcode.encoding).name) + " " +
                         mnemonic_name(opcode.mnemonic) + "\n";
        return text;
    }();
    return names->c_str();
}
