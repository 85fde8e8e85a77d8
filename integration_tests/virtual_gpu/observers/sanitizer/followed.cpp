// SPDX-License-Identifier: MIT
#include "observers/sanitizer/followed.h"

#include <string_view>

namespace virtual_gpu {
namespace {

VgprSet set_of(const VgprRanges& ranges) {
    VgprSet set;
    for (const VgprRange& range : ranges)
        for (int i = range.first; i < range.first + range.dwords; ++i) set.set(static_cast<size_t>(i));
    return set;
}

bool is_float_format(Format format) {
    return format == Format::F16 || format == Format::F32 || format == Format::F64 ||
           format == Format::PK2_F16 || format == Format::PK2_F32;
}

}  // namespace

Followed::Followed(const Instruction& decoded) : instruction(decoded), use(register_use(decoded)) {
    vgpr_reads = set_of(use.vgpr_reads);
    vgpr_writes = set_of(use.vgpr_writes);
    const std::string_view name = decoded.dwords ? mnemonic_name(decoded.mnemonic) : "";
    const Kind kind = use.kind;
    loads = kind == Kind::kLdsLoad || kind == Kind::kVmemLoad || kind == Kind::kScalarMemory ||
            kind == Kind::kLdsAtomic || kind == Kind::kVmemAtomic;
    stores = kind == Kind::kLdsStore || kind == Kind::kVmemStore || kind == Kind::kLdsAtomic ||
             kind == Kind::kVmemAtomic;
    const bool lane_rows = decoded.row && decoded.row->lanes && !decoded.permutation;
    writes_active_lanes =
        lane_rows || kind == Kind::kMatrix || kind == Kind::kLdsLoad || kind == Kind::kVmemLoad;
    const bool fp8_result = name.starts_with("v_cvt_pk_fp8_") || name.starts_with("v_cvt_pk_bf8_") ||
                            name.starts_with("v_cvt_sr_fp8_") || name.starts_with("v_cvt_sr_bf8_");
    converts_with_overflow =
        fp8_result || name.starts_with("v_cvt_f16_f32") || name.starts_with("s_cvt_f16_f32");
    is_float = is_float_format(decoded.destination_format);
    for (const Source& source : decoded.source) is_float |= is_float_format(source.format);
    is_float &= lane_rows || kind == Kind::kScalar;
}

}  // namespace virtual_gpu
