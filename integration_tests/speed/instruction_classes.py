# SPDX-License-Identifier: MIT
"""Executed instructions by the class that decides their cost, and the estimate that follows from counts alone.

A SIMD's vector pipe executes matrix instructions, every other VALU (a VOPD pair once) and transcendentals one after the
other; a transcendental takes one of its cycles, and its own unit for four. LDS, memory, scalar instructions, waits and
hints are issued beside it. The sources are in speed/card.py.
"""

from collections import Counter
from collections.abc import Mapping

from integration_tests.speed import card as machine

TRANSCENDENTAL = ("v_exp_", "v_log_", "v_rcp_", "v_rsq_", "v_sqrt_", "v_sin_", "v_cos_", "v_s_")
MEMORY = ("global_", "buffer_", "flat_", "scratch_")
NOT_ACCESSES = ("global_inv", "global_wb", "global_wbinv")
HINTS = ("s_nop", "s_delay_alu", "s_clause", "s_setprio", "s_sleep", "s_endpgm", "s_sendmsg", "s_wakeup", "v_nop")

# Classes that take slots beside the matrix instructions.
BESIDE = ("transcendental", "vector", "dual", "lds", "memory")
MATRIX = ("int8_matrix", "fp8_matrix", "wide_matrix")


def class_of(mnemonic: str) -> str:
    """The class of an instruction, by its name."""
    if mnemonic.startswith("v_wmma_"):
        return "int8_matrix" if "iu8" in mnemonic else "fp8_matrix" if "fp8" in mnemonic else "wide_matrix"
    if mnemonic.startswith(TRANSCENDENTAL):
        return "transcendental"
    if mnemonic.startswith(HINTS) or mnemonic in NOT_ACCESSES:
        return "hint"
    if mnemonic.startswith("s_wait_"):
        return "wait"
    if mnemonic.startswith("s_barrier_"):
        return "barrier"
    if mnemonic.startswith(("s_load_", "s_buffer_load_")):
        return "scalar_memory"
    for prefix, name in (("v_dual_", "dual"), ("v_", "vector"), ("ds_", "lds"), ("s_", "scalar")):
        if mnemonic.startswith(prefix):
            return name
    if mnemonic.startswith(MEMORY):
        return "memory"
    raise ValueError(f"no class for {mnemonic}")


def count(executed: Mapping[str, float]) -> Counter:
    """Executed instructions by class."""
    result: Counter = Counter()
    for mnemonic, times in executed.items():
        result[class_of(mnemonic)] += times
    return result


def matrix_instructions(counts: Mapping[str, float]) -> float:
    return sum(counts[name] for name in MATRIX)


def matrix_cycles(counts: Mapping[str, float]) -> float:
    """Cycles in which the matrix unit has to work."""
    narrow = counts["int8_matrix"] + counts["fp8_matrix"]
    wide = machine.TIMING["wide_matrix_issue"].value * counts["wide_matrix"]
    return machine.TIMING["matrix_issue"].value * narrow + wide


def slots_per_matrix(counts: Mapping[str, float]) -> float:
    """Slots beside the matrix instructions, per matrix instruction; a transcendental counts once."""
    return sum(counts[name] for name in BESIDE) / matrix_instructions(counts)


def pipe_estimate(counts: Mapping[str, float], reading: str = machine.CAUTIOUS) -> float:
    """The share of the vector pipe's cycles in which matrix instructions execute if nothing ever waits for data.

    Parallel reading: the transcendental unit works beside everything, matrix instructions too. Cautious reading: not
    beside matrix instructions, so that other VALU is all that hides it. An estimate: it is as right as these readings.
    """
    vector = counts["transcendental"] + counts["vector"] + counts["dual"]
    unit = machine.TIMING["transcendental_unit"].value * counts["transcendental"]
    matrix = matrix_cycles(counts)
    if reading == machine.CAUTIOUS:
        return matrix / (matrix + max(vector, unit))
    return matrix / max(matrix + vector, unit)
