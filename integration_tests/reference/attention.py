# SPDX-License-Identifier: MIT
"""What the kernel must compute: attention in float64, and a model of the kernel's own numerics.

Both take and return [batch, sequence, heads, head_dim] like the op. The model repeats the kernel's arithmetic step by
step (docs/algorithm.md): same statistics, block scales, roundings and running maximum, float32 where the kernel has
float32. Only the order of additions inside one matrix instruction is not modelled, because nobody documents it.
It runs on any torch device, so long sequences can be studied where a CPU would be slow.
"""

import torch

HEAD_DIM = 128
ROWS_PER_BLOCK = 32  # queries of a wave, keys per K scale, keys per step of the online softmax
ROWS_PER_PASS = 16  # rows that one pass of the statistics kernel reads
STATISTICS_ROWS = 256
MAX_STATISTICS_GROUPS = 16
KEY_SAMPLES = 256  # rows of K whose mean centres K, at most
INT8_MAX, FP8_MAX = 127.0, 448.0
SCORE_BIAS, SCORE_UNIT = float.fromhex("0x1.45F306p-3"), 2.0**-26  # the accumulator's start, and its last bit
SMALLEST_RANGE, SMALLEST_SCORE_SCALE, LARGEST_SCORE_SCALE = 2.0**-110, 2.0**-100, 2.0**100
LARGEST_STEP = 2.0**-4  # in powers of two, in tiles with a new maximum
QUERIES_PER_RESCALE = 16
MARGIN = 1.0  # bits that a maximum may grow by before anything is rescaled

_f32 = torch.float32


def attention_float64(q, k, v, softmax_scale):
    """softmax(softmax_scale * q k^T) v, every step in float64. One head at a time: a score matrix is S x S doubles."""
    out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    for b in range(q.shape[0]):
        for h in range(q.shape[2]):
            scores = q[b, :, h].double() @ k[b, :, h].double().T * softmax_scale
            out[b, :, h] = torch.softmax(scores, dim=-1) @ v[b, :, h].double()
    return out


def sage_attention_model(q, k, v, softmax_scale, query_blocks=None):
    """The kernel's result, bfloat16 [batch, sequence, heads, 128], for bfloat16 inputs of that shape.

    `query_blocks`, numbers of blocks of 32 rows, limits the result to those rows: [batch, 32 * blocks, heads, 128].
    No query influences another block's.
    """
    batch, sequence, heads, _ = q.shape
    by_head = [x.permute(0, 2, 1, 3).reshape(batch * heads, sequence, HEAD_DIM).to(_f32) for x in (q, k, v)]
    blocks = -(-sequence // ROWS_PER_BLOCK)
    q32, k32, v32 = by_head
    k_mean, v_mean, v_low, v_high = _statistics(k32, v32)

    q32 = _pad(q32, blocks)
    if query_blocks is not None:
        q32 = q32.reshape(-1, blocks, ROWS_PER_BLOCK, HEAD_DIM)[:, query_blocks].flatten(1, 2)
    queries = sequence if query_blocks is None else q32.shape[1]
    q8, q_step, q_is_finite = _quantise(q32 if softmax_scale >= 0 else -q32, rows_per_scale=1)
    k8, k_step, k_is_finite = _quantise(_pad(k32 - k_mean[:, None], blocks), rows_per_scale=ROWS_PER_BLOCK)
    v8, v_step = _quantise_values(_pad(v32, blocks), sequence, v_mean, v_low, v_high)

    hadamard_scale, log2_e = _scalar(0.08838834764831845), _scalar(1.4426950408889634)
    q_scale = q_step * (hadamard_scale * log2_e) * _scalar(abs(softmax_scale))
    k_scale = k_step * hadamard_scale
    output, weight_sum = _online_softmax(q8, q_scale, k8, k_scale, v8, sequence)

    # Uniform weights give V's mean exactly; the kernel's float32 sums of the rounded values differ from this by noise.
    rounded_mean = v8[:, :sequence].double().mean(dim=1).to(_f32)
    mean = _fma(-rounded_mean, v_step, v_mean)
    mean[~k_is_finite.all(dim=1)] = torch.nan
    inverse = 1.0 / weight_sum
    # The kernel's multiply-add rounds once; in float64 the product is exact and the sum's rounding is negligible.
    out = (output.double() * (v_step[:, None] * inverse[..., None]).double() + mean[:, None].double()).to(_f32)
    out[~q_is_finite] = torch.nan
    return out[:, :queries].to(torch.bfloat16).reshape(batch, heads, queries, HEAD_DIM).permute(0, 2, 1, 3)


def _scalar(value):
    return torch.tensor(value, dtype=_f32)


def _fma(a, b, c):
    return (a.double() * b.double() + c.double()).to(_f32)


def _divide(dividend, divisor):
    """A quotient rounded once. One of a number and a tensor torch may form with a rounded reciprocal."""
    if not isinstance(dividend, torch.Tensor):
        dividend = torch.full_like(divisor, dividend)
    return dividend / (divisor if isinstance(divisor, torch.Tensor) else torch.full_like(dividend, divisor))


def _pad(rows, blocks):
    padded = rows.new_zeros(rows.shape[0], blocks * ROWS_PER_BLOCK, HEAD_DIM)
    padded[:, : rows.shape[1]] = rows
    return padded


def _statistics(k, v):
    """Mean of K's sample, mean, minimum and maximum of V per head and channel, summed in the kernel's order."""
    sequence = k.shape[1]
    rows = STATISTICS_ROWS * -(-sequence // (STATISTICS_ROWS * MAX_STATISTICS_GROUPS))
    groups = [range(first, min(first + rows, sequence)) for first in range(0, sequence, rows)]
    all_rows = [[group[lane::ROWS_PER_PASS] for lane in range(ROWS_PER_PASS)] for group in groups]
    sample = _key_sample(groups, rows)
    return _mean(k, sample), _mean(v, all_rows), v.amin(dim=1), v.amax(dim=1)


def _key_sample(groups, rows):
    """The evenly spaced rows of K that are read: for each group, for each of its lanes, in order."""
    per_lane = KEY_SAMPLES // (ROWS_PER_PASS * len(groups))
    step = rows // (ROWS_PER_PASS * per_lane)
    firsts = [lane * per_lane * step for lane in range(ROWS_PER_PASS)]
    return [[group[first : first + per_lane * step : step] for first in firsts] for group in groups]


def _mean(x, groups):
    """Mean of the rows that `groups` lists, over lanes in parallel, then lanes, then groups in order."""
    count = sum(len(lane) for group in groups for lane in group)
    weight = (1.0 / _scalar(float(count))).to(x.device)
    mean = torch.zeros_like(x[:, 0])
    for group in groups:
        lanes = x.new_zeros(x.shape[0], ROWS_PER_PASS, HEAD_DIM)
        for step in range(max(map(len, group))):
            active = [lane for lane in range(ROWS_PER_PASS) if step < len(group[lane])]
            part = x[:, [group[lane][step] for lane in active]]
            lanes[:, active] = _fma(part, weight, lanes[:, active])
        total = lanes[:, 0].clone()
        for lane in range(1, ROWS_PER_PASS):
            total = total + lanes[:, lane]
        mean = mean + total
    return mean


def rotate(x):
    """x @ H * sqrt(128) for the Hadamard matrix H, as butterflies in the kernel's order (bits of the channel)."""
    for bit in (0, 1, 2, 3, 5, 6, 4):
        pairs = x.reshape(*x.shape[:-1], HEAD_DIM >> (bit + 1), 2, 1 << bit)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        x = torch.stack((a + b, a - b), dim=-2).reshape(x.shape)
    return x


def _quantise(rows, rows_per_scale):
    """Rotated rows as integers in float32, what one step is worth (before 1 / sqrt(128)) for every `rows_per_scale`
    rows, and which rows are finite: the others count as zero."""
    rotated = rotate(rows)
    is_finite = torch.isfinite(rotated).all(dim=-1)
    rotated[~is_finite] = 0.0
    groups = rotated.reshape(rows.shape[0], -1, rows_per_scale * HEAD_DIM)
    reach = groups.abs().amax(dim=-1)
    is_zero = reach < SMALLEST_RANGE
    steps = torch.where(is_zero, 0.0, _divide(INT8_MAX, reach))
    integers = torch.round(groups.double() * steps[..., None].double()).to(_f32)
    return integers.reshape(rotated.shape), torch.where(is_zero, 0.0, _divide(reach, INT8_MAX)), is_finite


def _quantise_values(v, sequence, mean, low, high):
    reach = torch.maximum(high - mean, mean - low)
    is_zero = reach < SMALLEST_RANGE
    steps = torch.where(is_zero, 0.0, _divide(FP8_MAX, reach))
    centred = (v - mean[:, None]) * steps[:, None]
    centred[:, sequence:] = 0.0
    return _to_e4m3(centred), torch.where(is_zero, 0.0, _divide(reach, FP8_MAX))


def _to_e4m3(x):
    return x.clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn).to(_f32)


def _exp2(x):
    return torch.exp2(x.double()).to(_f32)


def _online_softmax(q8, q_scale, k8, k_scale, v8, sequence):
    """(sum of P V, sum of P) over all keys, P relative to a maximum that lags by at most MARGIN bits."""
    n, padded, _ = q8.shape
    log2_fp8_max = _scalar(8.807354922057604).to(q8.device)
    output = torch.zeros_like(q8)
    headroom = torch.full((n, padded), torch.inf, dtype=_f32, device=q8.device)
    # Keys of the lower and of the upper half-wave, each split into even and odd ones.
    sums = torch.zeros(n, padded, 2, 2, dtype=_f32, device=q8.device)
    wave = ROWS_PER_BLOCK
    largest_q_scale = q_scale.reshape(n, -1, wave).amax(dim=-1).repeat_interleave(wave, dim=1)
    for tile, first in enumerate(range(0, k8.shape[1], ROWS_PER_BLOCK)):
        keys = slice(first, first + ROWS_PER_BLOCK)
        scores = q8 @ k8[:, keys].transpose(1, 2)  # exact: integers below 2^21 in float32
        biased = scores * SCORE_UNIT + SCORE_BIAS
        biased[..., max(sequence - first, 0) :] = -torch.inf
        step = (q_scale * k_scale[:, tile, None]).nan_to_num(0.0, posinf=torch.inf)  # infinite times zero
        scale = step.clamp(SMALLEST_SCORE_SCALE * SCORE_UNIT, LARGEST_SCORE_SCALE) / SCORE_UNIT
        bias = scale.double() * SCORE_BIAS  # never rounded by itself
        best = biased.amax(dim=-1)
        grew = _fma(best, scale, (headroom - bias).to(_f32)) > log2_fp8_max
        # Where one step of a score may be worth more, the known maximum's rounding would decide: never a reference.
        grew |= largest_q_scale * k_scale[:, tile, None] > LARGEST_STEP
        grew = grew.reshape(n, -1, QUERIES_PER_RESCALE).any(dim=-1).repeat_interleave(QUERIES_PER_RESCALE, dim=1)
        maximum = (best - SCORE_BIAS) * scale
        reduced = torch.minimum(headroom, log2_fp8_max - MARGIN - maximum)
        factor = torch.where(grew, _exp2(reduced - headroom), 1.0)
        output *= factor[..., None]
        sums *= factor[..., None, None]
        bounded = scale.clamp_max(LARGEST_STEP / SCORE_UNIT)
        from_top = _fma(-best, bounded, torch.minimum(reduced + maximum, log2_fp8_max))
        offset = torch.where(grew, from_top, (headroom - bias).to(_f32))
        headroom = torch.where(grew, reduced, headroom)
        weights = _exp2(_fma(biased, torch.where(grew, bounded, scale)[..., None], offset[..., None]))
        for half in range(2):
            for key in (16 * t + 8 * half + i for t in range(2) for i in range(8)):
                sums[..., half, key % 2] += weights[..., key]
        output += _to_e4m3(weights) @ v8[:, keys]
    halves = sums[..., 0] + sums[..., 1]
    return output, halves[..., 0] + halves[..., 1]
