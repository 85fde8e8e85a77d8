# SPDX-License-Identifier: MIT
"""What the quick run on a gfx1201 says about constants of the timing model."""

from pathlib import Path

from integration_tests.harness import hardware_record
from integration_tests.speed.micro_benchmarks import WAVES_PER_SIMD

# Micro-benchmarks of one instruction: their rate is the constant.
SINGLE = ("fma", "max3", "dual_add", "cvt_fp8", "cvt_u8", "cvt_norm", "dot4_fp8", "mad24", "perm", "permlanex16")


def measured_constants(path: Path = hardware_record.HARDWARE) -> dict[str, float]:
    """Constants in cycles by name, from a record's micro-benchmarks; empty without a record or without these in it.

    ResultsError for any other content, a rehearsal's included. Rates are ratios to plain VALU, six waves on a SIMD, so
    the unit is the cycle of a plain VALU instruction; latencies are cycles of the counter, one wave alone. Nothing is
    rounded: what is no whole number has noise in it, or something that the model does not know.

    | constant | is | from |
    |---|---|---|
    | transcendental_unit | between two transcendentals of a SIMD | exp_alone |
    | transcendental_vector | of the vector pipe that one takes beside VALU | exp_among_valu, less its 3 VALU |
    | transcendental_clustered | the same, sixteen in a row before their VALU | exps_then_valu, less its 3 VALU |
    | transcendental_vector_alone, transcendental_clustered_alone | both, of one wave alone | the same, one wave |
    | matrix_issue, fp8_matrix_issue, wide_matrix_issue | of a SIMD | wmma_independent, wmma_fp8, wmma_f16 |
    | matrix_waits_for_transcendental | what a WMMA waits for the other unit: 0, or unit less vector | exp_and_wmma, \
less matrix_issue and transcendental_vector |
    | matrix_three_banks, matrix_one_bank | on top of matrix_issue | wmma_three_banks, wmma_one_bank |
    | matrix_accumulator_latency | WMMA to a WMMA on its accumulator | wmma_same_accumulator |
    | matrix_latency | WMMA to another instruction that reads it | wmma_then_valu, less vector_latency |
    | vector_latency | VALU to VALU | valu_dependent |
    | lds_latency | ds_load_b32 to VALU | lds_dependent, less vector_latency |
    | lds_load_issue | of a SIMD for ds_load_b128, four SIMDs loading | lds_b128 |
    | access_vector_slots | of the vector pipe for a load | lds_among_valu, less its 16 VALU |
    | access_vector_slots_alone | the same, of one wave alone: it also waits for its own VALU | the same, one wave |
    | access_matrix_slots | of the matrix unit for a load | lds_among_wmma, less 4 matrix_issue |
    | NAME_issue for each of SINGLE | of a SIMD | NAME |
    """
    record = hardware_record.load_measured(path)
    if record is None or not record.micro:
        return {}
    one, full = ([step for step in record.micro if step.waves == waves] for waves in WAVES_PER_SIMD)
    rate = {step.name: step.ratio for step in full}
    alone = {step.name: step.ratio for step in one}
    cycles = {step.name: step.cycles for step in one}
    matrix_issue, vector_latency = rate["wmma_independent"], cycles["valu_dependent"]
    transcendental_vector = rate["exp_among_valu"] - 3
    return {
        "transcendental_unit": rate["exp_alone"],
        "transcendental_vector": transcendental_vector,
        "transcendental_clustered": rate["exps_then_valu"] - 3,
        "transcendental_vector_alone": alone["exp_among_valu"] - 3,
        "transcendental_clustered_alone": alone["exps_then_valu"] - 3,
        "matrix_issue": matrix_issue,
        "fp8_matrix_issue": rate["wmma_fp8"],
        "wide_matrix_issue": rate["wmma_f16"],
        "matrix_waits_for_transcendental": rate["exp_and_wmma"] - matrix_issue - transcendental_vector,
        "matrix_three_banks": rate["wmma_three_banks"] - matrix_issue,
        "matrix_one_bank": rate["wmma_one_bank"] - matrix_issue,
        "matrix_accumulator_latency": cycles["wmma_same_accumulator"],
        "matrix_latency": cycles["wmma_then_valu"] - vector_latency,
        "vector_latency": vector_latency,
        "lds_latency": cycles["lds_dependent"] - vector_latency,
        "lds_load_issue": rate["lds_b128"],
        "access_vector_slots": rate["lds_among_valu"] - 16,
        "access_vector_slots_alone": alone["lds_among_valu"] - 16,
        "access_matrix_slots": rate["lds_among_wmma"] - 4 * matrix_issue,
        **{f"{name}_issue": rate[name] for name in SINGLE},
    }
