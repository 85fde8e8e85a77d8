# SPDX-License-Identifier: MIT
"""Other people's measurements of attention on gfx1201 cards, to be shown beside modelled speeds.

None of these kernels was run here and none of the figures is ours; nothing is fitted on them (calibration.py has what
is). Each row says what was timed, because a kernel alone, a call with its quantisation and a whole workload are three
things. Head dimension 128 throughout.
"""

from dataclasses import dataclass

from integration_tests.speed.card import R9700, RX_9070_XT, Card

KERNEL_ALONE = "the attention kernel alone"
WITH_QUANTISATION = "quantisation and attention"
ATTENTION_CALL = "a call that has nothing to quantise"
WHOLE_WORKLOAD = "a whole workload"


@dataclass(frozen=True)
class Published:
    """One figure as its author gave it: TFLOP/s, or milliseconds, or both.

    `shape` is (batch, sequence, heads), None where no single attention call was timed. `includes` says what the time
    is of. A causal call counts half the products of its shape.
    """

    who: str
    card: Card
    shape: tuple[int, int, int] | None
    includes: str
    source: str
    stated_tflops: float | None = None
    milliseconds: float | None = None
    causal: bool = False

    @property
    def tflops(self) -> float | None:
        """As stated, or what the time means for the shape; None for a whole workload."""
        return self.stated_tflops if self.stated_tflops is not None else self.tflops_of_time

    @property
    def tflops_of_time(self) -> float | None:
        """4 B H S^2 128 / time, half of it where causal; None without a time or a shape."""
        if self.shape is None or self.milliseconds is None:
            return None
        batch, sequence, heads = self.shape
        return 4 * batch * heads * sequence**2 * 128 / (2 if self.causal else 1) / self.milliseconds / 1e9


AITER_4188 = "ROCm/aiter pull request 4188"
AITER_3294 = "ROCm/aiter issue 3294 (ROCm 10.1)"
GCNASM_32 = "carlushuang/gcnasm pull request 32"
RDNA4_SAGE = "crashingalexsan/RDNA4-SageAttention 2.2.0+rdna4.0.2.1, README; shapes from its tests/bench_models.py"
AMAR = "IxMxAMAR/SageAttention-RDNA4 0.2 (Krea2 at 2 MP)"
KITCHEN_78 = "Comfy-Org/comfy-kitchen issue 78, wall time of a Krea2 Turbo workflow"

WAN_14B, QWEN_IMAGE, FLUX_1, FLUX_2 = (1, 32760, 40), (1, 6989, 24), (1, 4352, 24), (1, 4608, 48)
KREA_2 = (1, 8771, 48)


def _whole(who: str, seconds: float) -> Published:
    return Published(who, RX_9070_XT, None, WHOLE_WORKLOAD, KITCHEN_78, milliseconds=1e3 * seconds)


def _rdna4_sage(shape: tuple[int, int, int], milliseconds: float, sdpa_milliseconds: float) -> list[Published]:
    sage = Published("rdna4-sage", RX_9070_XT, shape, WITH_QUANTISATION, RDNA4_SAGE, milliseconds=milliseconds)
    sdpa = Published("torch SDPA", RX_9070_XT, shape, ATTENTION_CALL, RDNA4_SAGE, milliseconds=sdpa_milliseconds)
    return [sage, sdpa]


ROWS = [
    Published("FlyDSL FP8", R9700, (1, 1536, 24), KERNEL_ALONE, AITER_4188, stated_tflops=115.7, milliseconds=0.2506),
    Published("FlyDSL FP8", R9700, (1, 1536, 24), WITH_QUANTISATION, AITER_4188, stated_tflops=81.5),
    Published("FlyDSL FP8", R9700, (1, 4096, 24), WITH_QUANTISATION, AITER_4188, stated_tflops=116.7),
    Published("FlyDSL BF16", R9700, (1, 4096, 24), ATTENTION_CALL, AITER_4188, stated_tflops=99.8),
    Published("FlyDSL", R9700, (1, 2048, 16), ATTENTION_CALL, AITER_3294, stated_tflops=69.0, causal=True),
    Published("torch SDPA", R9700, (1, 2048, 16), ATTENTION_CALL, AITER_3294, stated_tflops=34.0, causal=True),
    # Its page does not say how many batches.
    Published("hand-written BF16", RX_9070_XT, (1, 1536, 32), KERNEL_ALONE, GCNASM_32, stated_tflops=119.8),
    *_rdna4_sage(WAN_14B, 158.0, 272.0),
    *_rdna4_sage(QWEN_IMAGE, 4.46, 7.11),
    *_rdna4_sage(FLUX_1, 1.97, 2.51),
    *_rdna4_sage(FLUX_2, 4.04, 6.43),
    Published("IxMxAMAR", RX_9070_XT, KREA_2, WITH_QUANTISATION, AMAR, stated_tflops=134.0, milliseconds=14.1),
    Published("torch SDPA", RX_9070_XT, KREA_2, ATTENTION_CALL, AMAR, milliseconds=29.6),
    _whole("thu-ml SageAttention 2 built for gfx12", 10.20),
    _whole("FlashAttention 2 in Triton", 10.53),
    _whole("torch SDPA", 10.89),
]
