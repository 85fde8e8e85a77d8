// SPDX-License-Identifier: MIT
#include "core/register_use.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "control.h"

namespace virtual_gpu {

// Rows with a lane mask as result are told by how they execute.
void execute_compare(Wave& wave, const Instruction& instruction);
void execute_with_carry(Wave& wave, const Instruction& instruction);

namespace {

using Name = std::string_view;

bool contains(Name name, Name part) { return name.find(part) != Name::npos; }
bool starts_with_any(Name name, std::initializer_list<Name> starts) {
    return std::any_of(starts.begin(), starts.end(), [&](Name start) { return name.starts_with(start); });
}
bool is_any(Name name, std::initializer_list<Name> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

// The number that a mnemonic ends in: global_load_b96 has 96.
uint32_t bits_in_name(Name name) {
    uint32_t bits = 0, scale = 1;
    for (size_t i = name.size(); i-- && name[i] >= '0' && name[i] <= '9'; scale *= 10)
        bits += static_cast<uint32_t>(name[i] - '0') * scale;
    return bits;
}
uint32_t dwords_in_name(Name name) {
    return contains(name, "d16") ? 1 : std::max(bits_in_name(name) / 32, 1u);
}

void add_scalars(ScalarSet& set, uint32_t first, uint32_t dwords) {
    if (first == kNull) return;
    for (uint32_t code = first; code < first + dwords && code < kScalars; ++code)
        if (code != kNull) set.set(code);
}
uint32_t dwords_of(Format format) { return format_bits(format) == 64 ? 2 : 1; }

class Collector {
  public:
    explicit Collector(const Instruction& instruction)
        : in_(instruction), name_(mnemonic_name(instruction.mnemonic)) {}

    RegisterUse collect() {
        if (!in_.dwords) return use_;
        switch (in_.encoding) {
            case Encoding::VOPD:
                dual();
                break;
            case Encoding::VOP1:
            case Encoding::VOP2:
            case Encoding::VOPC:
            case Encoding::VOP3:
            case Encoding::VOP3SD:
            case Encoding::VOP3P:
                vector();
                break;
            case Encoding::SOP1:
            case Encoding::SOP2:
            case Encoding::SOPC:
            case Encoding::SOPK:
            case Encoding::SOPP:
                scalar();
                break;
            case Encoding::SMEM:
                scalar_memory();
                break;
            case Encoding::VGLOBAL:
            case Encoding::VFLAT:
            case Encoding::VSCRATCH:
            case Encoding::VBUFFER:
                vector_memory();
                break;
            case Encoding::DS:
                lds();
                break;
        }
        return use_;
    }

  private:
    void read_scalars(uint32_t first, uint32_t dwords, Role role = Role::kData) {
        add_scalars(use_.scalar_reads, first, dwords);
        if (role == Role::kAddress) add_scalars(use_.scalar_addresses, first, dwords);
    }
    void write_scalars(uint32_t first, uint32_t dwords) { add_scalars(use_.scalar_writes, first, dwords); }
    void read_source(const Source& source, uint32_t dwords, Role role = Role::kData) {
        switch (source.kind) {
            case Source::kVgpr:
                use_.vgpr_reads.add(source.index, dwords, role);
                break;
            case Source::kScalar:
                read_scalars(source.index, dwords, role);
                break;
            case Source::kScc:
                use_.scalar_reads.set(kSccBit);
                break;
            case Source::kVccz:
                read_scalars(kVccLo, 1);
                break;
            case Source::kExecz:
                read_scalars(kExecLo, 1);
                break;
            default:
                break;
        }
    }

    // --- vector ALU

    static bool accumulates(Name name) {
        return starts_with_any(name, {"v_fmac_", "v_pk_fmac_", "v_dual_fmac_", "v_dual_dot2acc_"});
    }
    static bool reads_mask(Name name) {
        return contains(name, "cndmask") || contains(name, "_co_ci_") || name.starts_with("v_div_fmas_");
    }

    // One vector ALU instruction, or one half of a pair.
    void lanes(const Instruction& part) {
        Name name = mnemonic_name(part.mnemonic);
        for (const Source& source : part.source) read_source(source, dwords_of(source.format));
        if (reads_mask(name)) read_scalars(part.mask_source, 1);
        if (part.row->execute == execute_compare) return;
        int bits = format_bits(part.destination_format);
        bool partial = bits == 8 || bits == 16;
        if (accumulates(name) || partial)
            use_.vgpr_reads.add(part.destination, dwords_of(part.destination_format));
        use_.vgpr_writes.add(part.destination, dwords_of(part.destination_format));
    }

    void dual() {
        use_.kind = Kind::kDual;
        read_scalars(kExecLo, 1);
        if (!in_.second) return;
        lanes(in_);
        lanes(*in_.second);
    }

    void vector() {
        use_.kind = in_.issue == Issue::kTranscendental ? Kind::kTranscendental : Kind::kVector;
        if (is_any(name_, {"v_nop", "v_pipeflush"})) {
            use_.kind = Kind::kOther;
        } else if (in_.row->lanes) {
            lanes(in_);
            read_scalars(kExecLo, 1);
            if (in_.row->execute == execute_compare || in_.row->execute == execute_with_carry)
                write_scalars(in_.scalar_destination, 1);
        } else if (name_.starts_with("v_wmma_")) {
            matrix();
        } else {
            lane_move();
        }
    }

    void matrix() {
        use_.kind = Kind::kMatrix;
        read_scalars(kExecLo, 1);
        // Half of K elements of A and B a lane; the last parts of the name are D's, then A's and B's formats.
        bool sixteen = name_.ends_with("_f16") || name_.ends_with("_bf16");
        uint32_t dwords = sixteen ? 4 : name_.ends_with("16x16x16_iu4") ? 1 : 2;
        for (int i = 0; i < 2; ++i) read_source(in_.source[i], dwords);
        uint32_t result = starts_with_any(name_, {"v_wmma_f16_", "v_wmma_bf16_"}) ? 4 : 8;
        read_source(in_.source[2], in_.source[2].kind == Source::kVgpr ? result : 1);
        use_.vgpr_writes.add(in_.destination, result);
    }

    void lane_move() {
        const Source* source = in_.source;
        if (name_ == "v_permlane64_b32") return;  // does nothing in wave32
        if (name_.starts_with("v_s_")) {
            read_source(source[0], 1);
            write_scalars(in_.destination, 1);
        } else if (name_ == "v_readfirstlane_b32") {
            read_source(source[0], 1);
            read_scalars(kExecLo, 1);
            write_scalars(in_.destination, 1);
        } else if (name_ == "v_readlane_b32") {
            read_source(source[0], 1);
            read_source(source[1], 1);
            write_scalars(in_.destination, 1);
        } else if (name_ == "v_writelane_b32") {
            read_source(source[0], 1);
            read_source(source[1], 1);
            use_.vgpr_writes.add(in_.destination, 1);
        } else {
            read_scalars(kExecLo, 1);
            uint32_t steps = name_.starts_with("v_movrel") ? kVgprs : 1;
            bool steps_source = steps > 1 && !name_.starts_with("v_movreld_");
            bool steps_destination = steps > 1 && !name_.starts_with("v_movrels_");
            for (int i = 0; i < 3; ++i) read_source(source[i], i == 0 && steps_source ? steps : 1);
            if (steps > 1) read_scalars(kM0, 1, Role::kAddress);
            if (name_.starts_with("v_swap_")) {
                use_.vgpr_reads.add(in_.destination, 1);
                if (source[0].kind == Source::kVgpr) use_.vgpr_writes.add(source[0].index, 1);
            }
            use_.vgpr_writes.add(in_.destination, steps_destination ? steps : 1);
        }
    }

    // --- scalar ALU and program control

    bool writes_scc() const {
        if (in_.encoding == Encoding::SOPC) return true;
        if (in_.encoding == Encoding::SOPK) return name_ == "s_addk_co_i32";
        if (in_.encoding == Encoding::SOP1)
            return starts_with_any(name_, {"s_not_", "s_abs_", "s_bcnt", "s_quadmask_", "s_wqm_"}) ||
                   contains(name_, "saveexec") || contains(name_, "wrexec") ||
                   name_ == "s_barrier_signal_isfirst";
        if (in_.encoding != Encoding::SOP2 || contains(name_, "_f16") || contains(name_, "_f32"))
            return false;
        return !starts_with_any(name_,
                                {"s_mul", "s_cselect_", "s_pack_", "s_bfm_", "s_add_nc_", "s_sub_nc_"});
    }
    bool reads_scc() const {
        return starts_with_any(name_,
                               {"s_cmov", "s_cselect_", "s_add_co_ci_", "s_sub_co_ci_", "s_cbranch_scc"});
    }
    bool reads_destination() const {
        return starts_with_any(name_, {"s_cmov", "s_bitset", "s_fmac_", "s_addk_", "s_mulk_"});
    }

    void scalar() {
        use_.kind = Kind::kScalar;
        if (in_.encoding == Encoding::SOPP) return program_control();
        for (const Source& source : in_.source) read_source(source, dwords_of(source.format));
        if (reads_scc()) use_.scalar_reads.set(kSccBit);
        if (writes_scc()) use_.scalar_writes.set(kSccBit);
        if (contains(name_, "exec_b")) {
            uint32_t dwords = name_.ends_with("64") ? 2 : 1;
            read_scalars(kExecLo, dwords);
            write_scalars(kExecLo, dwords);
        }
        if (starts_with_any(name_, {"s_barrier_signal", "s_barrier_wait"})) {
            use_.kind = Kind::kBarrier;
        } else if (name_.starts_with("s_setreg_")) {
            if (name_ == "s_setreg_b32") read_scalars(in_.destination, 1);
        } else if (name_.starts_with("s_movrel")) {
            read_scalars(kM0, 1, Role::kAddress);
            if (name_.starts_with("s_movrels") && in_.source[0].kind == Source::kScalar)
                read_scalars(in_.source[0].index, kScalars);
            write_scalars(in_.destination,
                          name_.starts_with("s_movreld") ? kScalars : dwords_of(in_.destination_format));
        } else if (is_any(name_, {"s_getpc_b64", "s_swappc_b64", "s_call_b64"})) {
            write_scalars(in_.destination, 2);
        } else if (name_ == "s_getreg_b32") {
            write_scalars(in_.destination, 1);
        } else if (in_.destination_format != Format::Absent && in_.encoding != Encoding::SOPC) {
            if (reads_destination()) read_scalars(in_.destination, dwords_of(in_.destination_format));
            write_scalars(in_.destination, dwords_of(in_.destination_format));
        }
    }

    void program_control() {
        if (reads_scc()) use_.scalar_reads.set(kSccBit);
        if (name_.starts_with("s_cbranch_vcc")) read_scalars(kVccLo, 1);
        if (name_.starts_with("s_cbranch_exec")) read_scalars(kExecLo, 1);
        if (name_ == "s_barrier_wait")
            use_.kind = Kind::kBarrier;
        else if (name_.starts_with("s_wait_") && !is_any(name_, {"s_wait_alu", "s_wait_event"}))
            wait();
        else if (!starts_with_any(name_, {"s_branch", "s_cbranch_"}))
            use_.kind = Kind::kOther;
    }

    void wait() {
        use_.kind = Kind::kWait;
        auto limit = [&](Counter counter) -> uint8_t& { return use_.wait[static_cast<size_t>(counter)]; };
        uint8_t low = in_.immediate & 63, high = in_.immediate >> 8 & 63;
        if (name_ == "s_wait_idle") {
            use_.wait.fill(0);
        } else if (name_ == "s_wait_loadcnt_dscnt") {
            limit(Counter::kDs) = low, limit(Counter::kLoad) = high;
        } else if (name_ == "s_wait_storecnt_dscnt") {
            limit(Counter::kDs) = low, limit(Counter::kStore) = high;
        } else {
            static constexpr std::pair<Name, Counter> kSingle[] = {
                {"s_wait_loadcnt", Counter::kLoad},     {"s_wait_storecnt", Counter::kStore},
                {"s_wait_dscnt", Counter::kDs},         {"s_wait_kmcnt", Counter::kKm},
                {"s_wait_samplecnt", Counter::kSample}, {"s_wait_bvhcnt", Counter::kBvh},
                {"s_wait_expcnt", Counter::kExp}};
            for (const auto& [name, counter] : kSingle)
                if (name_ == name) limit(counter) = low;
        }
    }

    // --- memory

    void scalar_memory() {
        using F = fields::SMEM;
        use_.kind = Kind::kScalarMemory;
        if (name_ == "s_dcache_inv") return;
        const uint32_t* words = in_.words;
        bool buffer = contains(name_, "buffer");
        if (!contains(name_, "_pc_rel") && name_ != "s_prefetch_inst_pc_rel")
            read_scalars(F::sbase.of(words) * 2, buffer ? 4 : 2, Role::kAddress);
        read_scalars(F::soffset.of(words), 1, Role::kAddress);
        if (contains(name_, "prefetch")) return;
        use_.counters = counter_bit(Counter::kKm);
        write_scalars(F::sdata.of(words), dwords_in_name(name_));
    }

    void vector_memory() {
        if (name_ == "global_inv") use_.counters = counter_bit(Counter::kLoad);
        if (is_any(name_, {"global_wb", "global_wbinv"})) use_.counters = counter_bit(Counter::kStore);
        if (use_.counters) return;
        using F = fields::VGLOBAL;  // the other encodings keep these fields in the same place
        const uint32_t* words = in_.words;
        read_scalars(kExecLo, 1);
        bool returns = addresses();
        bool atomic = contains(name_, "_atomic_"), store = contains(name_, "_store_");
        uint32_t dwords = dwords_in_name(name_);
        uint32_t data = F::vsrc.of(words), destination = F::vdst.of(words);
        if (in_.encoding == Encoding::VBUFFER) data = destination = fields::VBUFFER::vdata.of(words);
        use_.kind = atomic ? Kind::kVmemAtomic : store ? Kind::kVmemStore : Kind::kVmemLoad;
        if (atomic || store) use_.vgpr_reads.add(data, contains(name_, "cmpswap") ? 2 * dwords : dwords);
        bool loads = (atomic && returns) || (!atomic && !store);
        if (loads) {
            if (contains(name_, "d16")) use_.vgpr_reads.add(destination, 1);
            use_.vgpr_writes.add(destination, dwords);
        }
        use_.counters = counter_bit(loads ? Counter::kLoad : Counter::kStore);
        if (in_.encoding == Encoding::VFLAT) use_.counters |= counter_bit(Counter::kDs);
    }

    // Address registers of the four encodings; whether an atomic returns the old value.
    bool addresses() {
        const uint32_t* words = in_.words;
        if (in_.encoding == Encoding::VSCRATCH) {
            using F = fields::VSCRATCH;
            if (F::sve.of(words)) use_.vgpr_reads.add(F::vaddr.of(words), 1, Role::kAddress);
            read_scalars(F::saddr.of(words), 1, Role::kAddress);
            return false;
        }
        if (in_.encoding == Encoding::VBUFFER) {
            using F = fields::VBUFFER;
            uint32_t count = F::idxen.of(words) + F::offen.of(words);
            if (count) use_.vgpr_reads.add(F::vaddr.of(words), count, Role::kAddress);
            read_scalars(F::rsrc.of(words), 4, Role::kAddress);
            read_scalars(F::soffset.of(words), 1, Role::kAddress);
            return F::th.of(words) & 1;
        }
        using F = fields::VGLOBAL;
        uint32_t saddr = F::saddr.of(words);
        if (!contains(name_, "addtid"))
            use_.vgpr_reads.add(F::vaddr.of(words), saddr == kNull ? 2 : 1, Role::kAddress);
        read_scalars(saddr, 2, Role::kAddress);
        return F::th.of(words) & 1;
    }

    void lds() {
        using F = fields::DS;
        const uint32_t* words = in_.words;
        if (name_ == "ds_nop") return;
        use_.counters = counter_bit(Counter::kDs);
        read_scalars(kExecLo, 1);
        uint32_t address = F::addr.of(words), data0 = F::data0.of(words), data1 = F::data1.of(words),
                 destination = F::vdst.of(words);
        uint32_t dwords = dwords_in_name(name_);
        bool two = contains(name_, "_2addr_"), through_m0 = contains(name_, "addtid");
        if (through_m0) read_scalars(kM0, 1, Role::kAddress);
        if (is_any(name_, {"ds_append", "ds_consume"})) {
            use_.kind = Kind::kLdsAtomic;
            use_.vgpr_writes.add(destination, 1);
        } else if (name_ == "ds_swizzle_b32") {
            use_.kind = Kind::kLdsMove;
            use_.vgpr_reads.add(address, 1);
            use_.vgpr_writes.add(destination, 1);
        } else if (contains(name_, "permute")) {
            use_.kind = Kind::kLdsMove;
            use_.vgpr_reads.add(address, 1);
            use_.vgpr_reads.add(data0, 1);
            use_.vgpr_writes.add(destination, 1);
        } else {
            if (!through_m0) use_.vgpr_reads.add(address, 1, Role::kAddress);
            if (name_.starts_with("ds_load_")) {
                use_.kind = Kind::kLdsLoad;
                if (contains(name_, "d16")) use_.vgpr_reads.add(destination, 1);
                use_.vgpr_writes.add(destination, two ? 2 * dwords : dwords);
                return;
            }
            bool store = starts_with_any(name_, {"ds_store_"});
            use_.kind = store ? Kind::kLdsStore : Kind::kLdsAtomic;
            use_.vgpr_reads.add(data0, dwords);
            if (two || contains(name_, "mskor") || contains(name_, "cmpstore"))
                use_.vgpr_reads.add(data1, dwords);
            if (contains(name_, "_rtn_")) use_.vgpr_writes.add(destination, two ? 2 * dwords : dwords);
        }
    }

    const Instruction& in_;
    const Name name_;
    RegisterUse use_;
};

}  // namespace

void VgprRanges::add(uint32_t first, uint32_t dwords, Role role) {
    dwords = std::min<uint32_t>(dwords, kVgprs - first);
    // A range of all 256 does not fit its count.
    for (; dwords > 255; first += 255, dwords -= 255) add(first, 255, role);
    range.at(count++) = {static_cast<uint16_t>(first), static_cast<uint8_t>(dwords), role};
}

RegisterUse register_use(const Instruction& instruction) { return Collector(instruction).collect(); }

}  // namespace virtual_gpu

VIRTUAL_GPU_API int virtual_gpu_register_use_of(const uint8_t* code, size_t bytes,
                                                virtual_gpu_register_use* out) {
    using namespace virtual_gpu;
    auto program = decode_program(code, bytes, reinterpret_cast<uint64_t>(code));
    if (program->code.empty() || !program->code[0].dwords) return 0;
    const RegisterUse use = register_use(program->code[0]);
    *out = {};
    for (const VgprRange& range : use.vgpr_reads)
        for (int i = range.first; i < range.first + range.dwords; ++i)
            out->vgpr_read[i] = 1, out->vgpr_address[i] |= range.role == Role::kAddress;
    for (const VgprRange& range : use.vgpr_writes)
        std::memset(out->vgpr_written + range.first, 1, range.dwords);
    for (int i = 0; i <= kScalars; ++i) {
        out->scalar_read[i] = use.scalar_reads[static_cast<size_t>(i)];
        out->scalar_written[i] = use.scalar_writes[static_cast<size_t>(i)];
        out->scalar_address[i] = use.scalar_addresses[static_cast<size_t>(i)];
    }
    out->kind = static_cast<uint8_t>(use.kind);
    out->counters = use.counters;
    std::copy(use.wait.begin(), use.wait.end(), out->wait);
    return 1;
}
