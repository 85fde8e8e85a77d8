# SPDX-License-Identifier: MIT
"""Instructions that the op's main kernel issues per key tile, from executed runs.

    python -m integration_tests.performance.counts [--sizes 1024 2048]

A wave executes `start + tile * tiles` instructions of each class when no query's maximum grows after the first tile.
Two sizes give both numbers; a third size must then agree exactly, or the command fails.
"""

import argparse
from collections.abc import Iterable

import torch

from integration_tests.hub_delivery import load_hub_kernel
from integration_tests.kernel import inputs
from integration_tests.kernel.launches import MAIN_KERNEL
from integration_tests.rocm_torch import rocm_torch
from integration_tests.virtual_gpu import LaunchRecord, VirtualGpu

KEYS_PER_TILE = 32
LANES = 32

Counts = dict[str, float]


def with_early_maximum(batch, sequence, heads, seed=0):
    """Normal inputs, but key 0 has every query's largest score: the running maximum grows in the first tile only."""
    q, k, v = inputs.normal(batch, sequence, heads, seed)
    q[..., 0] = 8.0
    k[..., 0] = 0.0
    k[:, 0, :, 0] = 32.0
    return q, k, v


def waves(record: LaunchRecord) -> int:
    groups, items = torch.tensor(record.grid).prod(), torch.tensor(record.block).prod()
    return int(groups * -(-items // LANES))


def per_wave(record: LaunchRecord) -> Counts:
    """Executed instructions per wave, by the device's classes."""
    return {name: count / waves(record) for name, count in record.instructions.items()}


def split(small: Counts, large: Counts, small_tiles: int, large_tiles: int) -> tuple[Counts, Counts]:
    """(per tile, once per wave) of the counts of one wave at two numbers of tiles."""
    per_tile = {name: (large[name] - small[name]) / (large_tiles - small_tiles) for name in small}
    once = {name: small[name] - per_tile[name] * small_tiles for name in small}
    return per_tile, once


def slots_per_matrix(counts: Counts) -> float:
    """Issue slots beside the matrix instructions, per matrix instruction; a transcendental counts once."""
    return sum(counts[name] for name in ("vector", "transcendental", "lds", "memory")) / counts["matrix"]


def issue_bound(counts: Counts, matrix_cycles: float = 8, transcendental_cycles: float = 4) -> float:
    """The share of cycles in which the matrix unit works if nothing ever waits."""
    matrix = matrix_cycles * counts["matrix"]
    beside = counts["vector"] + counts["lds"] + counts["memory"] + transcendental_cycles * counts["transcendental"]
    return matrix / (matrix + beside)


def main_kernel_counts(gpu: VirtualGpu, sizes: Iterable[int]) -> dict[int, Counts]:
    """Per-wave counts of the main kernel at [1, size, 1, 128] for each size, a multiple of a work-group's queries."""
    result = {}
    with rocm_torch(gpu):
        kernel = load_hub_kernel()
        for size in sizes:
            gpu.reset()
            kernel.gfx1201_sage_attention(*with_early_maximum(1, size, 1))
            (record,) = [record for record in gpu.records() if record.kernel == MAIN_KERNEL]
            result[size] = per_wave(record)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs=2, default=(1024, 2048))
    sizes = parser.parse_args().sizes
    check = sum(sizes)
    counts = main_kernel_counts(VirtualGpu.load(), [*sizes, check])
    tiles = {size: size // KEYS_PER_TILE for size in counts}
    per_tile, once = split(*(counts[size] for size in sizes), *(tiles[size] for size in sizes))
    expected = {name: once[name] + per_tile[name] * tiles[check] for name in once}
    if expected != counts[check]:
        raise SystemExit(f"counts at S = {check} are {counts[check]}, not {expected}: the loop is not steady")

    print(f"{MAIN_KERNEL}, instructions of one wave (S = {sizes[0]} and {sizes[1]}; exact at {check})")
    print(f"  {'class':16}{'per tile':>10}{'once':>10}")
    for name in per_tile:
        print(f"  {name:16}{per_tile[name]:>10g}{once[name]:>10g}")
    print(f"  slots beside matrix instructions, per matrix instruction   {slots_per_matrix(per_tile):.3f}")
    print(f"  issue bound, quarter-rate exp2                             {issue_bound(per_tile):.3f}")
    print(f"  issue bound, full-rate exp2                                {issue_bound(per_tile, 8, 1):.3f}")


if __name__ == "__main__":
    main()
