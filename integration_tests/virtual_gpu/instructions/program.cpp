// SPDX-License-Identifier: MIT
// Program control: branches, barriers, waits, hardware registers.
#include "core/faults.h"
#include "core/observer.h"
#include "core/tables.h"
#include "core/vector.h"

namespace virtual_gpu {
namespace {

void nothing(Wave&, const Instruction&) {}

void branch(Wave& wave, const Instruction& instruction) {
    wave.pc += static_cast<uint64_t>(static_cast<int64_t>(instruction.immediate) * 4);
}
void branch_scc0(Wave& wave, const Instruction& instruction) {
    if (!wave.scc) branch(wave, instruction);
}
void branch_scc1(Wave& wave, const Instruction& instruction) {
    if (wave.scc) branch(wave, instruction);
}
void branch_vccz(Wave& wave, const Instruction& instruction) {
    if (wave.scalar[kVccLo] == 0) branch(wave, instruction);
}
void branch_vccnz(Wave& wave, const Instruction& instruction) {
    if (wave.scalar[kVccLo] != 0) branch(wave, instruction);
}
void branch_execz(Wave& wave, const Instruction& instruction) {
    if (wave.scalar[kExecLo] == 0) branch(wave, instruction);
}
void branch_execnz(Wave& wave, const Instruction& instruction) {
    if (wave.scalar[kExecLo] != 0) branch(wave, instruction);
}
// wave.pc is already the address of the next instruction.
void get_pc(Wave& wave, const Instruction& instruction) {
    write_scalar64(wave, instruction.destination, wave.pc);
}
void set_pc(Wave& wave, const Instruction& instruction) {
    wave.pc = read_scalar64(wave, instruction.source[0]);
}
void swap_pc(Wave& wave, const Instruction& instruction) {
    uint64_t target = read_scalar64(wave, instruction.source[0]);
    write_scalar64(wave, instruction.destination, wave.pc);
    wave.pc = target;
}
void call(Wave& wave, const Instruction& instruction) {
    write_scalar64(wave, instruction.destination, wave.pc);
    branch(wave, instruction);
}

void trap(Wave&, const Instruction& instruction) {
    throw KernelFault("the kernel trapped (trap " + std::to_string(instruction.immediate & 0xff) + ")");
}
void past_the_end(Wave&, const Instruction&) {
    throw KernelFault("execution ran past the end of the program");
}

constexpr int kWorkgroupBarrier = -1;

// The work-group barrier, counted for s_barrier_wait by generation. Returns whether this wave signals first.
bool signal(Wave& wave, const Instruction& instruction) {
    const Source& source = instruction.source[0];
    int barrier = static_cast<int>(read_scalar32(wave, source));
    if (source.kind == Source::kScalar) barrier &= 31;
    if (barrier == 0) return false;
    if (barrier != kWorkgroupBarrier) throw NotModelled("only the work-group barrier (-1) is modelled");
    Workgroup& group = *wave.workgroup;
    bool first = group.signalled == 0;
    wave.barrier_target = group.barrier_generation;
    if (++group.signalled >= group.waves_in_barrier) {
        group.signalled = 0;
        ++group.barrier_generation;
    }
    if (wave.observer) wave.observer->barrier_signalled(wave, wave.barrier_target);
    return first;
}
void barrier_signal(Wave& wave, const Instruction& instruction) { signal(wave, instruction); }
void barrier_signal_is_first(Wave& wave, const Instruction& instruction) {
    wave.scc = signal(wave, instruction);
}

constexpr uint32_t kModeRegister = 1, kShaderCyclesLow = 29, kShaderCyclesHigh = 30;

struct RegisterField {
    uint32_t id, offset, width;
    uint32_t mask() const { return (width == 32 ? ~0u : (1u << width) - 1) << offset; }
};
RegisterField field_of(const Instruction& instruction) {
    uint32_t bits = static_cast<uint32_t>(instruction.immediate);
    return {bits & 63, bits >> 6 & 31, (bits >> 11 & 31) + 1};
}
uint32_t hardware_register(const Wave& wave, const RegisterField& field) {
    if (field.id == kModeRegister) return wave.mode;
    // There is no clock: a kernel that takes differences of the counter gets instructions of the wave.
    if (field.id == kShaderCyclesLow) return static_cast<uint32_t>(wave.executed);
    if (field.id == kShaderCyclesHigh) return static_cast<uint32_t>(wave.executed >> 32);
    throw NotModelled("of the hardware registers only MODE and SHADER_CYCLES are modelled");
}
void get_register(Wave& wave, const Instruction& instruction) {
    RegisterField field = field_of(instruction);
    write_scalar32(wave, instruction.destination,
                   (hardware_register(wave, field) & field.mask()) >> field.offset);
}
void store_register(Wave& wave, const Instruction& instruction, uint32_t value) {
    RegisterField field = field_of(instruction);
    if (field.id != kModeRegister) throw NotModelled("of the hardware registers only MODE can be written");
    wave.mode = (wave.mode & ~field.mask()) | (value << field.offset & field.mask());
}
void set_register(Wave& wave, const Instruction& instruction) {
    store_register(wave, instruction, wave.scalar[instruction.destination]);
}
void set_register_literal(Wave& wave, const Instruction& instruction) {
    store_register(wave, instruction, instruction.literal);
}
void set_round_mode(Wave& wave, const Instruction& instruction) {
    wave.mode = (wave.mode & ~0xfu) | (static_cast<uint32_t>(instruction.immediate) & 0xf);
}
void set_denormal_mode(Wave& wave, const Instruction& instruction) {
    wave.mode = (wave.mode & ~0xf0u) | (static_cast<uint32_t>(instruction.immediate) & 0xf) << 4;
}

constexpr int kDeallocateVgprs = 3;
void send_message(Wave&, const Instruction& instruction) {
    if ((instruction.immediate & 0xff) != kDeallocateVgprs)
        throw NotModelled("only s_sendmsg DEALLOC_VGPRS is modelled");
}

}  // namespace

void add_program_rows(RowTable& table) {
    auto add = [&table](Mnemonic mnemonic, Execute execute, Issue issue = Issue::kOther) {
        table[static_cast<size_t>(mnemonic)] = {execute, nullptr, issue, false};
    };
    using enum Mnemonic;
    // No effect on results: the device executes in order and waves see memory at once.
    for (Mnemonic mnemonic : {s_nop,
                              s_sleep,
                              s_sleep_var,
                              s_clause,
                              s_delay_alu,
                              s_wait_alu,
                              s_wait_idle,
                              s_wait_event,
                              s_setprio,
                              s_icache_inv,
                              s_wait_loadcnt,
                              s_wait_storecnt,
                              s_wait_samplecnt,
                              s_wait_bvhcnt,
                              s_wait_expcnt,
                              s_wait_dscnt,
                              s_wait_kmcnt,
                              s_wait_loadcnt_dscnt,
                              s_wait_storecnt_dscnt,
                              s_wakeup,
                              s_incperflevel,
                              s_decperflevel,
                              s_ttracedata,
                              s_ttracedata_imm,
                              s_version,
                              v_nop,
                              v_pipeflush})
        add(mnemonic, nothing);
    add(s_endpgm, nothing);        // run_wave stops at it
    add(s_barrier_wait, nothing);  // run_wave blocks at it
    add(s_code_end, past_the_end);
    add(s_trap, trap);
    add(s_branch, branch, Issue::kScalar);
    add(s_cbranch_scc0, branch_scc0, Issue::kScalar);
    add(s_cbranch_scc1, branch_scc1, Issue::kScalar);
    add(s_cbranch_vccz, branch_vccz, Issue::kScalar);
    add(s_cbranch_vccnz, branch_vccnz, Issue::kScalar);
    add(s_cbranch_execz, branch_execz, Issue::kScalar);
    add(s_cbranch_execnz, branch_execnz, Issue::kScalar);
    add(s_getpc_b64, get_pc, Issue::kScalar);
    add(s_setpc_b64, set_pc, Issue::kScalar);
    add(s_swappc_b64, swap_pc, Issue::kScalar);
    add(s_call_b64, call, Issue::kScalar);
    add(s_barrier_signal, barrier_signal);
    add(s_barrier_signal_isfirst, barrier_signal_is_first);
    add(s_getreg_b32, get_register, Issue::kScalar);
    add(s_setreg_b32, set_register, Issue::kScalar);
    add(s_setreg_imm32_b32, set_register_literal, Issue::kScalar);
    add(s_round_mode, set_round_mode);
    add(s_denorm_mode, set_denormal_mode);
    add(s_sendmsg, send_message);
}

}  // namespace virtual_gpu
