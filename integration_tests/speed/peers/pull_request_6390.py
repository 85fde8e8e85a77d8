# SPDX-License-Identifier: MIT
"""AMD's hand-scheduled gfx1201 kernel of ROCm/aiter pull request 6390, by its counts.

**Counted by hand in the source text, not executed**: the loop of hsa/gfx1201/sage_attention/attention_pv_early.s at
commit a36273d9, on the path on which no maximum grows. Some of a work-group's waves stage K and V for all; a
count is the mean of those and the others. What the counts do not show (waits, barriers, the clock) is not in the
estimate either, and there is no modelled time: only a row of counts beside kernels that were executed.
"""

from collections import Counter
from dataclasses import dataclass

from integration_tests.speed import instruction_classes


@dataclass(frozen=True)
class HandCounted:
    """What one wave issues for `int8_matrix` and `fp8_matrix` matrix instructions, and what the kernel allocates.

    `vector` leaves out pairs (`dual`, a VOPD pair once) and `transcendental`. `lds_bytes` is a work-group's.
    """

    name: str
    source: str
    int8_matrix: float
    fp8_matrix: float
    vector: float
    dual: float
    transcendental: float
    lds: float
    memory: float
    vgprs: int
    lds_bytes: int
    waves_per_workgroup: int
    waves_per_simd: int

    def counts(self) -> Counter:
        """By the classes of instruction_classes.py."""
        names = (*instruction_classes.BESIDE, "int8_matrix", "fp8_matrix")
        return Counter({name: getattr(self, name) for name in names})

    @property
    def slots_per_matrix(self) -> float:
        """Slots beside the matrix instructions, per matrix instruction."""
        return instruction_classes.slots_per_matrix(self.counts())

    def pipe_estimate(self, reading: str) -> float:
        """The share of the vector pipe's cycles for matrix instructions if nothing ever waits for data."""
        return instruction_classes.pipe_estimate(self.counts(), reading)


PULL_REQUEST_6390 = HandCounted(
    name="PR 6390, by its counts",
    source="ROCm/aiter pull request 6390, attention_pv_early.s at commit a36273d9, counted by hand",
    int8_matrix=32,
    fp8_matrix=32,
    vector=102.5,
    dual=16,
    transcendental=34,
    lds=21,
    memory=2,
    vgprs=256,
    lds_bytes=18_944,
    waves_per_workgroup=16,
    waves_per_simd=4,
)
