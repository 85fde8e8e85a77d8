// SPDX-License-Identifier: MIT
// What single instructions of gfx1201 cost beside one another, in cycles of the shader clock.
//
// A kernel repeats one step, kSteps times in each of `rounds` rounds. Every wave writes how many cycles its
// steps took and how many they were. `nothing` is a round without steps, `valu` the plain instruction that
// others are compared with, at the same number of waves:
//
//   launch                            what the cycles of a step are
//   1 work-group of 32 threads        time of one wave, alone on its SIMD, its own dependencies included
//   1 work-group of 24 * 32 threads   six times what a SIMD takes: six waves on each of a WGP's four
//
//   register      holds
//   v32 .. v47    operands and results of VALU and transcendentals, zero at first
//   v48 .. v79    four accumulators of WMMA, zero at first
//   v80           the lane's address in LDS, 16 bytes a lane
//   v81 .. v84    what is loaded from there; v81 is an address at first
//   s40, s41      rounds left; the counter at the start
//
// All text between the two readings of the counter is one asm statement: no compiler moves a part of it.
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))

constexpr int kWave = 32;
constexpr int kSteps = 256;  // beside these the branch back costs little, and 5 KiB of text stay in the cache

struct Measured {
    unsigned cycles, steps;
};

using LdsAddress = __attribute__((address_space(3))) float*;

// clang-format off
#define CLOBBERED \
    "v32", "v33", "v34", "v35", "v36", "v37", "v38", "v39", "v40", "v41", "v42", "v43", "v44", "v45", "v46", \
    "v47", "v48", "v49", "v50", "v51", "v52", "v53", "v54", "v55", "v56", "v57", "v58", "v59", "v60", "v61", \
    "v62", "v63", "v64", "v65", "v66", "v67", "v68", "v69", "v70", "v71", "v72", "v73", "v74", "v75", "v76", \
    "v77", "v78", "v79", "v80", "v81", "v82", "v83", "v84", "s40", "s41", "scc", "memory"

// `text` holds `steps_in_text` steps.
#define MICRO_BENCHMARK(name, steps_in_text, text)                                                           \
    extern "C" __global__ void name(Measured* out, int rounds) {                                             \
        __shared__ float loaded[4 * kWave];                                                                  \
        const unsigned thread = __builtin_amdgcn_workitem_id_x();                                            \
        float* mine = &loaded[4 * (thread % kWave)];                                                         \
        for (int i = 0; i < 4 && thread < kWave; ++i) mine[i] = 0;                                           \
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");                                               \
        __builtin_amdgcn_s_barrier(); /* waves begin together */                                             \
        unsigned cycles;                                                                                     \
        asm volatile(                                                                                        \
            ".set .Lv, 32\n .rept 53\n v_mov_b32 v[.Lv], 0\n .set .Lv, .Lv + 1\n .endr\n"                    \
            "v_mov_b32 v80, %[address]\n v_mov_b32 v81, %[address]\n"                                        \
            "s_mov_b32 s40, %[rounds]\n s_wait_dscnt 0\n"                                                    \
            "s_getreg_b32 s41, hwreg(HW_REG_SHADER_CYCLES_LO)\n"                                             \
            ".Lround%=:\n"                                                                                   \
            ".rept %[steps] / " #steps_in_text "\n" text ".endr\n"                                           \
            "s_wait_dscnt 0\n s_sub_co_i32 s40, s40, 1\n s_cmp_lg_u32 s40, 0\n s_cbranch_scc1 .Lround%=\n"   \
            "s_getreg_b32 %[cycles], hwreg(HW_REG_SHADER_CYCLES_LO)\n"                                       \
            "s_sub_co_u32 %[cycles], %[cycles], s41\n"                                                       \
            : [cycles] "=s"(cycles)                                                                          \
            : [address] "v"((LdsAddress)mine), [rounds] "s"(rounds), [steps] "n"(kSteps)                     \
            : CLOBBERED);                                                                                    \
        if (thread % kWave == 0) out[thread / kWave] = {cycles, static_cast<unsigned>(rounds) * kSteps};     \
    }

#define ADD(to) "v_add_f32 v" #to ", v33, v34\n"
#define ADD3 ADD(36) ADD(37) ADD(38)
#define ADD16 ADD3 ADD3 ADD3 ADD3 ADD3 ADD(39)
#define EXP(to) "v_exp_f32 v" #to ", v35\n"
#define EXP4 EXP(40) EXP(41) EXP(42) EXP(43)
#define WMMA(kind, c, a, b) "v_wmma_" kind " v[" c "], v[" a "], v[" b "], v[" c "]\n"
#define WMMA_2(kind, a, b) WMMA(kind, "48:55", a, b) WMMA(kind, "56:63", a, b)
// A and C in one of the four register banks, B in another.
#define IU8(c) WMMA("i32_16x16x16_iu8", c, "32:33", "34:35")
#define IU8_FOUR IU8("48:55") IU8("56:63") IU8("64:71") IU8("72:79")

MICRO_BENCHMARK(nothing, 256, "")
MICRO_BENCHMARK(valu, 4, ADD(36) ADD(37) ADD(38) ADD(39))
MICRO_BENCHMARK(valu_dependent, 1, "v_add_f32 v36, v36, v34\n")

// Transcendentals. A step of the last two is one of them and three of VALU, side by side or in clusters.
MICRO_BENCHMARK(exp_alone, 4, EXP4)
MICRO_BENCHMARK(exp_among_valu, 4, EXP(40) ADD3 EXP(41) ADD3 EXP(42) ADD3 EXP(43) ADD3)
MICRO_BENCHMARK(exps_then_valu, 16, EXP4 EXP4 EXP4 EXP4 ADD16 ADD16 ADD16)

// Matrix instructions: on four accumulators in turn, on two, on one; on two with A, B and C in three register
// banks and in one; of other kinds.
MICRO_BENCHMARK(wmma_independent, 4, IU8_FOUR)
MICRO_BENCHMARK(wmma_distance_2, 2, WMMA_2("i32_16x16x16_iu8", "32:33", "34:35"))
MICRO_BENCHMARK(wmma_same_accumulator, 1, IU8("48:55"))
MICRO_BENCHMARK(wmma_then_valu, 1, IU8("48:55") "v_add_nc_u32 v48, v48, v34\n")
MICRO_BENCHMARK(wmma_three_banks, 2, WMMA_2("i32_16x16x16_iu8", "33:34", "38:39"))
MICRO_BENCHMARK(wmma_one_bank, 2, WMMA_2("i32_16x16x16_iu8", "32:33", "36:37"))
MICRO_BENCHMARK(wmma_fp8, 2, WMMA_2("f32_16x16x16_fp8_fp8", "32:33", "34:35"))
MICRO_BENCHMARK(wmma_f16, 2, WMMA_2("f32_16x16x16_f16", "32:35", "36:39"))
MICRO_BENCHMARK(exp_and_wmma, 4,
                EXP(40) IU8("48:55") EXP(41) IU8("56:63") EXP(42) IU8("64:71") EXP(43) IU8("72:79"))
MICRO_BENCHMARK(exp_valu_and_wmma, 2, EXP(40) ADD3 IU8("48:55") EXP(41) ADD3 IU8("56:63"))

// LDS. A step is one load, with so much else that the load's own rate does not decide.
MICRO_BENCHMARK(lds_dependent, 1, "ds_load_b32 v81, v81\n s_wait_dscnt 0\n v_add_nc_u32 v81, v81, v80\n")
MICRO_BENCHMARK(lds_b128, 1, "ds_load_b128 v[81:84], v80\n")
MICRO_BENCHMARK(lds_among_valu, 1, "ds_load_b128 v[81:84], v80\n" ADD16)
MICRO_BENCHMARK(lds_among_wmma, 1, "ds_load_b128 v[81:84], v80\n" IU8_FOUR)

// Rates of single instructions; v_mad_i32_i24 without clamp, a form that the virtual device does not model.
MICRO_BENCHMARK(fma, 2, "v_fma_f32 v36, v32, v33, v34\n v_fma_f32 v37, v32, v33, v34\n")
MICRO_BENCHMARK(max3, 2, "v_max3_i32 v36, v32, v33, v34\n v_max3_i32 v37, v32, v33, v34\n")
MICRO_BENCHMARK(dual_add, 1, "v_dual_add_f32 v36, v33, v34 :: v_dual_add_f32 v39, v34, v35\n")
MICRO_BENCHMARK(cvt_fp8, 2, "v_cvt_pk_fp8_f32 v36, v33, v34\n v_cvt_pk_fp8_f32 v37, v33, v34\n")
MICRO_BENCHMARK(cvt_u8, 2, "v_cvt_pk_u8_f32 v36, v33, 1, v34\n v_cvt_pk_u8_f32 v37, v33, 1, v34\n")
MICRO_BENCHMARK(cvt_norm, 2, "v_cvt_pk_norm_u16_f32 v36, v33, v34\n v_cvt_pk_norm_u16_f32 v37, v33, v34\n")
MICRO_BENCHMARK(dot4_fp8, 1, "v_dot4_f32_fp8_fp8 v36, v32, v33, v34\n")
MICRO_BENCHMARK(mad24, 2, "v_mad_i32_i24 v36, v32, v33, v34\n v_mad_i32_i24 v37, v32, v33, v34\n")
MICRO_BENCHMARK(perm, 2, "v_perm_b32 v36, v32, v33, v34\n v_perm_b32 v37, v32, v33, v34\n")
MICRO_BENCHMARK(permlanex16, 2, "v_permlanex16_b32 v36, v33, s0, s0\n v_permlanex16_b32 v37, v33, s0, s0\n")
// clang-format on
