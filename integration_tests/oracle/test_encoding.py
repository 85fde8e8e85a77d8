# SPDX-License-Identifier: MIT
"""The encoder against clang's assembler: the tests below mean nothing when their machine code is not what they say."""

from . import machine
from .machine import DPP8, DPP16, EXEC, LITERAL, M0, NULL, encode

V = machine.VGPR0

EXAMPLES = [
    ("v_mov_b32_e32 v1, s2", encode("VOP1", "V_MOV_B32", vdst=1, src0=2)),
    ("v_cvt_f32_f16_e32 v1, v2.h", encode("VOP1", "V_CVT_F32_F16", vdst=1, src0=V + 2 + 128)),
    ("v_cvt_f16_f32_e32 v1.h, v2", encode("VOP1", "V_CVT_F16_F32", vdst=1 + 128, src0=V + 2)),
    ("v_readfirstlane_b32 s5, v9", encode("VOP1", "V_READFIRSTLANE_B32", vdst=5, src0=V + 9)),
    (
        "v_add_f32_e32 v1, 0x12345678, v3",
        encode("VOP2", "V_ADD_F32", "LIT", vdst=1, src0=LITERAL, vsrc1=3, literal=0x12345678),
    ),
    (
        "v_fmaak_f32 v1, v2, v3, 0x42280000",
        encode("VOP2", "V_FMAAK_F32", "LIT", vdst=1, src0=V + 2, vsrc1=3, literal=0x42280000),
    ),
    ("v_cmp_lt_f32_e32 vcc_lo, v1, v2", encode("VOPC", "V_CMP_LT_F32", src0=V + 1, vsrc1=2)),
    ("v_cmpx_lt_f32_e64 v1, v2", encode("VOP3", "V_CMPX_LT_F32", vdst=EXEC, src0=V + 1, src1=V + 2)),
    ("v_cmp_lt_f32_e64 s7, |v1|, -v2", encode("VOP3", "V_CMP_LT_F32", vdst=7, src0=V + 1, src1=V + 2, abs=1, neg=2)),
    ("v_fma_f32 v1, v2, s3, 1.0 clamp", encode("VOP3", "V_FMA_F32", vdst=1, src0=V + 2, src1=3, src2=242, clmp=1)),
    ("v_mul_f32_e64 v1, v2, v3 mul:4", encode("VOP3", "V_MUL_F32", vdst=1, src0=V + 2, src1=V + 3, omod=2)),
    (
        "v_fma_f16 v1.h, v2.l, v3.h, v4.l",
        encode("VOP3", "V_FMA_F16", vdst=1, src0=V + 2, src1=V + 3, src2=V + 4, opsel=0b1010),
    ),
    (
        "v_add_co_ci_u32_e64 v1, s2, v3, v4, s5",
        encode("VOP3SD", "V_ADD_CO_CI_U32", vdst=1, sdst=2, src0=V + 3, src1=V + 4, src2=5),
    ),
    (
        "v_pk_add_f16 v1, v2, v3 op_sel:[1,0] op_sel_hi:[0,1] neg_lo:[1,0] neg_hi:[0,1]",
        encode("VOP3P", "V_PK_ADD_F16", vdst=1, src0=V + 2, src1=V + 3, opsel=1, opsel_hi=2, neg=1, neg_hi=2),
    ),
    (
        "v_pk_fma_f16 v1, v2, v3, v4 op_sel_hi:[1,1,0]",
        encode("VOP3P", "V_PK_FMA_F16", vdst=1, src0=V + 2, src1=V + 3, src2=V + 4, opsel_hi2=0),
    ),
    ("v_cvt_pk_fp8_f32 v1.h, v2, v3", encode("VOP3", "V_CVT_PK_FP8_F32", vdst=1, src0=V + 2, src1=V + 3, opsel=8)),
    (
        "v_cvt_sr_fp8_f32 v1, v2, v3 byte_sel:2",
        encode("VOP3", "V_CVT_SR_FP8_F32", vdst=1, src0=V + 2, src1=V + 3, opsel=8),
    ),
    ("v_cvt_f32_fp8_e64 v1, v2 byte_sel:1", encode("VOP3", "V_CVT_F32_FP8", vdst=1, src0=V + 2, opsel=2)),
    ("v_cvt_f32_fp8_e64 v1, v2 byte_sel:2", encode("VOP3", "V_CVT_F32_FP8", vdst=1, src0=V + 2, opsel=1)),
    (
        "v_wmma_i32_16x16x16_iu8 v[0:7], v[8:9], v[10:11], v[12:19] neg_lo:[1,1,0] clamp",
        encode("VOP3P", "V_WMMA_I32_16X16X16_IU8", vdst=0, src0=V + 8, src1=V + 10, src2=V + 12, neg=3, clmp=1),
    ),
    (
        "v_wmma_f32_16x16x16_fp8_fp8 v[0:7], v[8:9], v[10:11], 0",
        encode("VOP3P", "V_WMMA_F32_16X16X16_FP8_FP8", vdst=0, src0=V + 8, src1=V + 10, src2=128),
    ),
    (
        "v_add_f32_dpp v1, v2, v3 row_shr:1 row_mask:0x5 bank_mask:0xa bound_ctrl:1 fi:1",
        encode(
            "VOP2",
            "V_ADD_F32",
            "DPP16",
            vdst=1,
            src0=DPP16,
            vsrc0=2,
            vsrc1=3,
            dpp=0x111,
            row_mask=5,
            bank_mask=10,
            bc=1,
            fi=1,
        ),
    ),
    (
        "v_mov_b32_dpp v1, v2 dpp8:[7,6,5,4,3,2,1,0]",
        encode("VOP1", "V_MOV_B32", "DPP8", vdst=1, src0=DPP8, vsrc0=2, **{f"lane_sel_{i}": 7 - i for i in range(8)}),
    ),
    (
        "v_dual_mul_f32 v0, v1, v2 :: v_dual_add_f32 v3, v4, v5",
        encode(
            "VOPD",
            ("V_DUAL_MUL_F32", "V_DUAL_ADD_F32"),
            vdstx=0,
            srcx0=V + 1,
            vsrcx1=2,
            vdsty=3 >> 1,
            srcy0=V + 4,
            vsrcy1=5,
        ),
    ),
    (
        "s_add_co_u32 s1, s2, 0x12345678",
        encode("SOP2", "S_ADD_CO_U32", "LIT", sdst=1, ssrc0=2, ssrc1=LITERAL, literal=0x12345678),
    ),
    ("s_movk_i32 s1, 0x8000", encode("SOPK", "S_MOVK_I32", sdst=1, simm16=0x8000)),
    ("s_cmp_lt_i32 s1, m0", encode("SOPC", "S_CMP_LT_I32", ssrc0=1, ssrc1=M0)),
    ("s_and_saveexec_b32 s1, vcc_lo", encode("SOP1", "S_AND_SAVEEXEC_B32", sdst=1, ssrc0=106)),
    (
        "s_load_b64 s[2:3], s[4:5], s6 offset:0x10",
        encode("SMEM", "S_LOAD_B64", sdata=2, sbase=2, soffset=6, ioffset=16),
    ),
    ("s_load_b32 s2, s[4:5], null", encode("SMEM", "S_LOAD_B32", sdata=2, sbase=2, soffset=NULL)),
    ("ds_load_b128 v[4:7], v1 offset:0x1234", encode("DS", "DS_LOAD_B128", vdst=4, addr=1, offset0=0x34, offset1=0x12)),
    (
        "ds_store_2addr_b32 v1, v2, v3 offset0:5 offset1:9",
        encode("DS", "DS_STORE_2ADDR_B32", addr=1, data0=2, data1=3, offset0=5, offset1=9),
    ),
    (
        "global_load_b128 v[4:7], v[2:3], off offset:-16",
        encode("VGLOBAL", "GLOBAL_LOAD_B128", vdst=4, vaddr=2, ioffset=-16),
    ),
    (
        "global_store_b64 v1, v[2:3], s[4:5] offset:8",
        encode("VGLOBAL", "GLOBAL_STORE_B64", vaddr=1, vsrc=2, saddr=4, ioffset=8),
    ),
    (
        "global_atomic_add_u32 v4, v[2:3], v5, off th:TH_ATOMIC_RETURN",
        encode("VGLOBAL", "GLOBAL_ATOMIC_ADD_U32", vdst=4, vaddr=2, vsrc=5, th=1),
    ),
    (
        "buffer_load_b32 v1, v2, s[4:7], s8 offen offset:4",
        encode("VBUFFER", "BUFFER_LOAD_B32", vdata=1, vaddr=2, rsrc=4, soffset=8, offen=1, ioffset=4, format=1),
    ),
    ("scratch_store_b32 off, v2, off offset:4", encode("VSCRATCH", "SCRATCH_STORE_B32", vsrc=2, ioffset=4)),
    ("flat_load_b32 v1, v[2:3]", encode("VFLAT", "FLAT_LOAD_B32", vdst=1, vaddr=2)),
]


def test_encodings_match_the_assembler(tmp_path):
    assembled = machine.assemble("\n".join(text for text, _ in EXAMPLES), tmp_path)
    for text, code in EXAMPLES:
        head, assembled = assembled[: len(code)], assembled[len(code) :]
        assert head == code, f"{text}: {head.hex()} but encoded as {code.hex()}"
    assert assembled == b""
