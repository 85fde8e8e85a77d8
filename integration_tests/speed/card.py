# SPDX-License-Identifier: MIT
"""Every number of the performance model, each with its source, in one table.

Cycles are the shader clock's. `fitted` marks what was chosen so that the calibration rows of kind "fit" come out right;
everything else was fixed before any row was compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass

LLVM = "LLVM, SISchedule.td, GFX12SpeedModel (a compiler's model, not a measurement)"
TRACES = "hardware traces of a Navi 48 in tinygrad, extra/sqtt/examples/gfx1200 (docs/performance.md)"
MATRIX_CALCULATOR = "AMD matrix instruction calculator, RDNA4: no co-execution with VALU"
ISA = "AMD RDNA4 ISA guide"
GPUOPEN = "GPUOpen, Using the matrix cores of AMD RDNA 4: FLOP per clock and CU"


@dataclass(frozen=True)
class Constant:
    """One number of the model."""

    value: float
    meaning: str
    source: str
    fitted: bool = False


TIMING = {
    "matrix_issue": Constant(8, "cycles of the vector pipe for an iu8 or fp8 WMMA", f"{TRACES}; {MATRIX_CALCULATOR}"),
    "wide_matrix_issue": Constant(16, "the same for an f16 or bf16 WMMA", f"{TRACES}; {MATRIX_CALCULATOR}"),
    "matrix_latency": Constant(27, "iu8 or fp8 WMMA to a dependent instruction", "public reports; AMD gives none"),
    "wide_matrix_latency": Constant(35, "the same for f16 and bf16: 8 cycles more of issue", "as for iu8 and fp8"),
    "transcendental_unit": Constant(
        4, "cycles of the transcendental unit for v_exp_f32 and its like, which take the vector pipe for one", TRACES
    ),
    "scalar_transcendental_unit": Constant(1, "the same for v_s_exp_f32 and its like", TRACES),
    "transcendental_latency": Constant(11, "v_exp_f32 to a dependent instruction", f"{TRACES}; {LLVM} has 10"),
    "matrix_waits_for_transcendental": Constant(
        1,
        "1: a WMMA begins only when the transcendental unit is free; 0: it does not wait",
        "open: two sightings in the traces, so every figure is given for both readings",
    ),
    "matrix_entry": Constant(1, "lost before a WMMA that follows another vector instruction", TRACES),
    "vector_latency": Constant(5, "other VALU to a dependent instruction", f"{TRACES}; {LLVM}"),
    "wide_shift_issue": Constant(2, "cycles of the vector pipe for a 64-bit shift", TRACES),
    "wide_multiply_issue": Constant(4, "the same for v_mad_co_u64_u32", TRACES),
    "vector_pipeline": Constant(8, "from the issue of a vector instruction to its execution", TRACES),
    "vector_queue": Constant(8, "vector instructions of a SIMD that are issued and have not left the pipe", TRACES),
    "vector_drain": Constant(
        9, "from a VALU's execution to an LDS or memory instruction, or past an s_wait_alu, of its wave", TRACES
    ),
    "matrix_drain": Constant(
        80,
        "the same from the beginning of a WMMA",
        "fitted: 31, as for other VALU, puts FlyDSL's LDS-heavy loop 3 % too fast beside Triton's",
        fitted=True,
    ),
    "scalar_latency": Constant(2, "SALU to a dependent instruction", LLVM),
    "scalar_drain": Constant(8, "SALU to past an s_wait_alu of its wave", TRACES),
    "lds_latency": Constant(29, "LDS access without its passes and dwords", TRACES),
    "lds_dword_latency": Constant(2, "more for each dword a lane", f"{TRACES}: b32 32 cycles, b128 from 37 on"),
    "lds_pass_cycles": Constant(1, "a CU's LDS per pass of 128 bytes over its banks", ISA + ", 12.1"),
    "memory_latency": Constant(320, "vector memory access that hits L2", LLVM),
    "memory_sector_cycles": Constant(1, "a CU's vector memory path per 64 bytes", "64 bytes a clock and CU: " + ISA),
    "scalar_memory_latency": Constant(20, "scalar load that hits its cache", LLVM),
    "branch_latency": Constant(9, "branch to the wave's next instruction", TRACES),
    "barrier_latency": Constant(13, "last signal to the end of the wait", TRACES),
    "launch_interval": Constant(200, "between work-groups that start on an empty WGP", "assumed"),
}

# In place of `launch_interval`, one after the other: model.mean_time.
LAUNCH_INTERVALS = (140, 200, 260, 330, 410, 500, 610, 730)

# What the traces leave open, as what it changes in the table: whether a WMMA waits for the transcendental unit.
CAUTIOUS, PARALLEL = "cautious", "parallel"
READINGS = {
    CAUTIOUS: {"matrix_waits_for_transcendental": 1},
    PARALLEL: {"matrix_waits_for_transcendental": 0},
}

# Constants that the micro-benchmarks of the quick run measure under the same name (speed/measured.py).
MEASURABLE = ("matrix_issue", "wide_matrix_issue", "matrix_latency", "transcendental_unit", "vector_latency")


def adopt(measured: Mapping[str, float], source: str) -> list[str]:
    """Puts measured constants in the place of the table's, and leaves the reading that they decide; returns names.

    `measured`: cycles by name, as speed/measured.py gives them; nothing happens when it is empty.
    """
    adopted = [name for name in MEASURABLE if name in measured]
    for name in adopted:
        TIMING[name] = Constant(round(measured[name]), TIMING[name].meaning, source)
    if "matrix_waits_for_transcendental" in measured:
        waits = measured["matrix_waits_for_transcendental"] > TIMING["transcendental_unit"].value / 2
        READINGS.pop(PARALLEL if waits else CAUTIOUS, None)
        adopted.append("matrix_waits_for_transcendental")
    return adopted


LDS_BANK_BYTES_PER_CYCLE = Constant(128, "32 banks of 4 bytes serve one CU", ISA + ", 12.1")
VGPRS_PER_SIMD = Constant(1536, "per lane, wave32", ISA)
VGPR_GRANULE = Constant(24, "VGPRs are allocated in steps of", ISA)
WAVES_PER_SIMD = Constant(16, "wave slots", ISA)
LDS_BYTES_PER_WGP = Constant(131072, "shared by the two CUs of a WGP", ISA + ", 12.1")
SIMDS_PER_WGP, CUS_PER_WGP = 4, 2
MATRIX_FLOP = 2 * 16**3  # of one 16 x 16 x 16 instruction

# Between the end of one kernel and the start of the next on a stream, and of the first after the host's call.
LAUNCH_GAP_SECONDS = Constant(5e-6, "per kernel of a call", "assumed; typical of published HIP launch latencies")


@dataclass(frozen=True)
class Card:
    """One graphics card."""

    name: str
    compute_units: int
    boost_hertz: float
    memory_bytes_per_second: float
    source: str
    # By reading, what its fit rows reach of the speed modelled at boost clock: the clock that power leaves to matrix
    # loops, and whatever else the model does not know.
    sustained: dict[str, Constant]
    caveat: str = ""

    @property
    def wgps(self) -> int:
        return self.compute_units // CUS_PER_WGP

    def peak_flops(self, matrix_issue: float) -> float:
        """Matrix peak of instructions that take `matrix_issue` cycles."""
        return MATRIX_FLOP / matrix_issue * SIMDS_PER_WGP * self.wgps * self.boost_hertz


def _sustained(cautious: float, parallel: float) -> dict[str, Constant]:
    return {
        reading: Constant(value, "share of the boost clock", "fitted: calibration.py, rows of kind fit", fitted=True)
        for reading, value in ((CAUTIOUS, cautious), (PARALLEL, parallel))
    }


ONE_ROW = (
    "The share of this card rests on a single published row, and on our reading that Triton's kernel was timed there: "
    "its TFLOP/s are less certain than the other card's."
)
R9700 = Card("R9700", 64, 2.92e9, 640e9, "AMD product page; " + GPUOPEN, _sustained(0.69, 0.69))
RX_9070_XT = Card("RX 9070 XT", 64, 2.97e9, 640e9, "AMD product page; " + GPUOPEN, _sustained(0.87, 0.87), ONE_ROW)
CARDS = {card.name: card for card in (R9700, RX_9070_XT)}
