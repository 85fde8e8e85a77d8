# SPDX-License-Identifier: MIT
"""Division as compilers expand it: four instructions whose published texts make sense only together."""

import numpy as np
import pytest

from . import machine

# LLVM's expansion of IEEE division: scale both, refine the reciprocal and the quotient, undo the scale.
F32 = """
v_div_scale_f32 v4, null, v1, v1, v0
v_div_scale_f32 v5, vcc_lo, v0, v1, v0
v_rcp_f32_e32 v6, v4
v_fma_f32 v7, -v4, v6, 1.0
v_fma_f32 v6, v7, v6, v6
v_mul_f32_e32 v8, v5, v6
v_fma_f32 v7, -v4, v8, v5
v_fma_f32 v8, v7, v6, v8
v_fma_f32 v7, -v4, v8, v5
v_div_fmas_f32 v7, v7, v6, v8
v_div_fixup_f32 v2, v7, v1, v0
"""
F64 = """
v_div_scale_f64 v[8:9], null, v[2:3], v[2:3], v[0:1]
v_div_scale_f64 v[10:11], vcc_lo, v[0:1], v[2:3], v[0:1]
v_rcp_f64_e32 v[12:13], v[8:9]
v_fma_f64 v[14:15], -v[8:9], v[12:13], 1.0
v_fma_f64 v[12:13], v[12:13], v[14:15], v[12:13]
v_fma_f64 v[14:15], -v[8:9], v[12:13], 1.0
v_fma_f64 v[12:13], v[12:13], v[14:15], v[12:13]
v_mul_f64_e32 v[16:17], v[10:11], v[12:13]
v_fma_f64 v[14:15], -v[8:9], v[16:17], v[10:11]
v_div_fmas_f64 v[14:15], v[14:15], v[12:13], v[16:17]
v_div_fixup_f64 v[4:5], v[14:15], v[2:3], v[0:1]
"""


def numbers(kind, count: int, seed: int) -> np.ndarray:
    """Any magnitude at all, and the special values."""
    rng = np.random.default_rng(seed)
    integer = np.uint32 if kind is np.float32 else np.uint64
    values = rng.integers(0, np.iinfo(integer).max, count, dtype=integer, endpoint=True).view(kind)
    info = np.finfo(kind)
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        1,
        -1,
        info.tiny,
        info.max,
        -info.max,
        info.smallest_subnormal,
        info.eps,
    ]
    values[: len(special)] = rng.permutation(np.array(special, kind))
    return rng.permutation(values)


def halves(values: np.ndarray) -> list[np.ndarray]:
    words = values.view(np.uint32).reshape(len(values), -1)
    return [words[:, i] for i in range(words.shape[1])]


@pytest.mark.parametrize("kind, text", [(np.float32, F32), (np.float64, F64)], ids=["f32", "f64"])
def test_the_division_sequence_is_correctly_rounded(kind, text, tmp_path):
    code = machine.assemble(text, tmp_path)
    width = 1 if kind is np.float32 else 2
    for seed in range(60):
        a, b = numbers(kind, machine.LANES, seed), numbers(kind, machine.LANES, seed + 1000)
        registers = machine.new_registers()
        for i in range(width):
            registers["vgpr"][i], registers["vgpr"][width + i] = halves(a)[i], halves(b)[i]
        after = machine.execute(code, registers)
        words = np.stack([after["vgpr"][2 * width + i] for i in range(width)], axis=1)
        got = np.ascontiguousarray(words).view(kind)[:, 0]
        with np.errstate(all="ignore"):
            expected = a / b
        # The sequence promises correct rounding of normal quotients; denormal ones lose a bit to the last scaling.
        denormal = (np.abs(expected) < np.finfo(kind).tiny) & (
            np.abs(got - expected) <= np.finfo(kind).smallest_subnormal
        )
        same = (got == expected) & (np.signbit(got) == np.signbit(expected)) | np.isnan(got) & np.isnan(expected)
        wrong = ~(same | denormal)
        assert not wrong.any(), [
            (x, y, g, e) for x, y, g, e in zip(a[wrong], b[wrong], got[wrong], expected[wrong], strict=True)
        ][:3]
