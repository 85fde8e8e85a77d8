# SPDX-License-Identifier: MIT
"""What the kernel must compute: attention in float64, and a model of the kernel's own numerics.

Both take and return [batch, sequence, heads, head_dim] like the op. The model repeats the kernel's arithmetic step by
step (docs/algorithm.md): same statistics, block scales, roundings and running maximum, float32 where the kernel has
float32. Only the order of additions inside one matrix instruction is not modelled, because nobody documents it.
It runs on any torch device, so long sequences can be studied where a CPU would be slow.
"""

import torch

HEAD_DIM = 128
ROWS_PER_BLOCK = 32  # queries per Q scale, keys per K scale, keys per step of the online softmax
ROWS_PER_PASS = 16  # rows that one pass of the statistics kernel reads
STATISTICS_ROWS = 256
MAX_STATISTICS_GROUPS = 16
INT8_MAX, FP8_MAX = 127.0, 448.0
INTEGER_BIAS = 12582912.0  # 1.5 * 2^23
SMALLEST_RANGE, SMALLEST_SCORE_SCALE = 2.0**-110, 2.0**-100

_f32 = torch.float32


def attention_float64(q, k, v, softmax_scale):
    """softmax(softmax_scale * q k^T) v, every step in float64. One head at a time: a score matrix is S x S doubles."""
    out = torch.empty(q.shape, dtype=torch.float64, device=q.device)
    for b in range(q.shape[0]):
        for h in range(q.shape[2]):
            scores = q[b, :, h].double() @ k[b, :, h].double().T * softmax_scale
            out[b, :, h] = torch.softmax(scores, dim=-1) @ v[b, :, h].double()
    return out


def sage_attention_model(q, k, v, softmax_scale):
    """The kernel's result, bfloat16 [batch, sequence, heads, 128], for bfloat16 inputs of that shape."""
    batch, sequence, heads, _ = q.shape
    by_head = [x.permute(0, 2, 1, 3).reshape(batch * heads, sequence, HEAD_DIM).to(_f32) for x in (q, k, v)]
    blocks = -(-sequence // ROWS_PER_BLOCK)
    q32, k32, v32 = by_head
    k_mean, v_mean, v_low, v_high = _statistics(k32, v32)

    q8, q_step = _quantise_blocks(_pad(q32, blocks))
    k8, k_step = _quantise_blocks(_pad(k32 - k_mean[:, None], blocks))
    v8, v_step = _quantise_values(_pad(v32, blocks), sequence, v_mean, v_low, v_high)

    hadamard_scale, log2_e = _scalar(0.08838834764831845), _scalar(1.4426950408889634)
    q_scale = q_step * (hadamard_scale * log2_e) * _scalar(softmax_scale)
    k_scale = k_step * hadamard_scale
    output, weight_sum = _online_softmax(q8, q_scale, k8, k_scale, v8, sequence)

    inverse = 1.0 / weight_sum
    # The kernel's multiply-add rounds once; in float64 the product is exact and the sum's rounding is negligible.
    out = (output.double() * (v_step[:, None] * inverse[..., None]).double() + v_mean[:, None].double()).to(_f32)
    return out[:, :sequence].to(torch.bfloat16).reshape(batch, heads, sequence, HEAD_DIM).permute(0, 2, 1, 3)


def _scalar(value):
    return torch.tensor(value, dtype=_f32)


def _fma(a, b, c):
    return (a.double() * b.double() + c.double()).to(_f32)


def _pad(rows, blocks):
    padded = rows.new_zeros(rows.shape[0], blocks * ROWS_PER_BLOCK, HEAD_DIM)
    padded[:, : rows.shape[1]] = rows
    return padded


def _statistics(k, v):
    """Mean of K, mean, minimum and maximum of V per head and channel, summed in the kernel's order."""
    sequence = k.shape[1]
    rows = STATISTICS_ROWS * -(-sequence // (STATISTICS_ROWS * MAX_STATISTICS_GROUPS))
    weight = (1.0 / _scalar(float(sequence))).to(k.device)
    means = []
    for x in (k, v):
        mean = torch.zeros_like(x[:, 0])
        for first in range(0, sequence, rows):
            group = x[:, first : min(first + rows, sequence)]
            lanes = x.new_zeros(x.shape[0], ROWS_PER_PASS, HEAD_DIM)
            for start in range(0, group.shape[1], ROWS_PER_PASS):
                part = group[:, start : start + ROWS_PER_PASS]
                lanes[:, : part.shape[1]] = _fma(part, weight, lanes[:, : part.shape[1]])
            total = lanes[:, 0].clone()
            for lane in range(1, ROWS_PER_PASS):
                total = total + lanes[:, lane]
            mean = mean + total
        means.append(mean)
    return means[0], means[1], v.amin(dim=1), v.amax(dim=1)


def rotate(x):
    """x @ H * sqrt(128) for the Hadamard matrix H, as butterflies in the kernel's order (bits of the channel)."""
    for bit in (0, 1, 2, 3, 5, 6, 4):
        pairs = x.reshape(*x.shape[:-1], HEAD_DIM >> (bit + 1), 2, 1 << bit)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        x = torch.stack((a + b, a - b), dim=-2).reshape(x.shape)
    return x


def _quantise_blocks(rows):
    """Rotated rows as integers in float32, and what one step is worth (before 1 / sqrt(128)) per block of 32."""
    rotated = rotate(rows)
    blocks = rotated.reshape(rows.shape[0], -1, ROWS_PER_BLOCK * HEAD_DIM)
    reach = blocks.abs().amax(dim=-1)
    is_zero = reach < SMALLEST_RANGE
    steps = torch.where(is_zero, 0.0, INT8_MAX / reach)
    integers = torch.round(blocks.double() * steps[..., None].double()).to(_f32)
    return integers.reshape(rotated.shape), torch.where(is_zero, 0.0, reach / INT8_MAX)


def _quantise_values(v, sequence, mean, low, high):
    reach = torch.maximum(high - mean, mean - low)
    is_zero = reach < SMALLEST_RANGE
    steps = torch.where(is_zero, 0.0, FP8_MAX / reach)
    centred = (v - mean[:, None]) * steps[:, None]
    centred[:, sequence:] = 0.0
    return _to_e4m3(centred), torch.where(is_zero, 0.0, reach / FP8_MAX)


def _to_e4m3(x):
    return x.clamp(-FP8_MAX, FP8_MAX).to(torch.float8_e4m3fn).to(_f32)


def _exp2(x):
    return torch.exp2(x.double()).to(_f32)


def _online_softmax(q8, q_scale, k8, k_scale, v8, sequence):
    """(sum of P V, sum of P) over all keys, P relative to each query's exact running maximum and scaled to 448."""
    n, padded, _ = q8.shape
    log2_fp8_max = _scalar(8.807354922057604).to(q8.device)
    output = torch.zeros_like(q8)
    maximum = torch.full((n, padded), -torch.inf, dtype=_f32, device=q8.device)
    sums = torch.zeros(n, padded, 2, dtype=_f32, device=q8.device)  # keys of the lower and of the upper half-wave
    q_scale = q_scale.repeat_interleave(ROWS_PER_BLOCK, dim=1)
    for tile, first in enumerate(range(0, k8.shape[1], ROWS_PER_BLOCK)):
        keys = slice(first, first + ROWS_PER_BLOCK)
        scores = q8 @ k8[:, keys].transpose(1, 2)  # exact: integers below 2^21 in float32
        scores[..., max(sequence - first, 0) :] = -torch.inf
        scale = (q_scale * k_scale[:, tile, None]).clamp_min(SMALLEST_SCORE_SCALE)
        scale = (scale.view(torch.int32) & ~3).view(_f32)
        bias = INTEGER_BIAS * scale
        candidate = (scores.amax(dim=-1).double() * scale.double()).to(_f32)
        grown = torch.maximum(maximum, candidate)
        factor = _exp2(maximum - grown)
        maximum = grown
        output *= factor[..., None]
        sums *= factor[..., None]
        offset = log2_fp8_max - (maximum + bias)
        weights = _exp2(_fma(scores + INTEGER_BIAS, scale[..., None], offset[..., None]))
        for half in range(2):
            for key in (16 * t + 8 * half + i for t in range(2) for i in range(8)):
                sums[..., half] += weights[..., key]
        output += _to_e4m3(weights) @ v8[:, keys]
    return output, sums[..., 0] + sums[..., 1]
