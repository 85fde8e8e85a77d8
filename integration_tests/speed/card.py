# SPDX-License-Identifier: MIT
"""Every number of the performance model, each with its source, in one table.

Cycles are the shader clock's. `fitted` marks what was chosen so that the calibration rows of kind "fit" come out right;
everything else was fixed before any row was compared.
"""

from dataclasses import dataclass

LLVM = "LLVM, SISchedule.td, GFX12SpeedModel (a compiler's model, not a measurement)"
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
    "matrix_issue": Constant(8, "cycles a SIMD is taken by an iu8 or fp8 WMMA", MATRIX_CALCULATOR),
    "wide_matrix_issue": Constant(16, "cycles a SIMD is taken by an f16 or bf16 WMMA", MATRIX_CALCULATOR),
    "matrix_latency": Constant(27, "iu8 or fp8 WMMA to a dependent instruction", "public reports; AMD gives none"),
    "wide_matrix_latency": Constant(35, "the same for f16 and bf16: 8 cycles more of issue", "as for iu8 and fp8"),
    "transcendental_issue": Constant(4, "cycles a SIMD is taken by v_exp_f32 and its like", "quarter rate: " + LLVM),
    "transcendental_latency": Constant(10, "v_exp_f32 to a dependent instruction", LLVM),
    "vector_latency": Constant(5, "other VALU to a dependent instruction", LLVM),
    "scalar_latency": Constant(2, "SALU to a dependent instruction", LLVM),
    "lds_latency": Constant(64, "LDS access without its passes", "fitted; " + LLVM + " has 20", fitted=True),
    "lds_pass_cycles": Constant(1, "a CU's LDS per pass of 128 bytes over its banks", ISA + ", 12.1"),
    "access_vector_slots": Constant(
        1,
        "cycles of the vector unit taken by an LDS or vector memory instruction, for its registers",
        "fitted: 0 puts FlyDSL's LDS-heavy loop 17 % too fast beside Triton's, 2 puts it 11 % too slow",
        fitted=True,
    ),
    "memory_latency": Constant(320, "vector memory access that hits L2", LLVM),
    "memory_sector_cycles": Constant(1, "a CU's vector memory path per 64 bytes", "64 bytes a clock and CU: " + ISA),
    "scalar_memory_latency": Constant(20, "scalar load that hits its cache", LLVM),
    "branch_latency": Constant(32, "branch to the wave's next instruction", LLVM),
    "barrier_latency": Constant(10, "last signal to the end of the wait", "assumed"),
    "launch_interval": Constant(200, "between work-groups that start on an empty WGP", "assumed"),
}

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
    # What its fit rows reach of the speed modelled at boost clock: the clock that power leaves to matrix loops, and
    # whatever else the model does not know.
    sustained: Constant

    @property
    def wgps(self) -> int:
        return self.compute_units // CUS_PER_WGP

    def peak_flops(self, matrix_issue: float) -> float:
        """Matrix peak of instructions that take `matrix_issue` cycles."""
        return MATRIX_FLOP / matrix_issue * SIMDS_PER_WGP * self.wgps * self.boost_hertz


def _sustained(value: float) -> Constant:
    return Constant(value, "share of the boost clock", "fitted: calibration.py, rows of kind fit", fitted=True)


R9700 = Card("R9700", 64, 2.92e9, 640e9, "AMD product page; " + GPUOPEN, _sustained(0.77))
RX_9070_XT = Card("RX 9070 XT", 64, 2.97e9, 640e9, "AMD product page; " + GPUOPEN, _sustained(0.83))
CARDS = {card.name: card for card in (R9700, RX_9070_XT)}
