# SPDX-License-Identifier: MIT
"""Instructions that the op's main kernel issues per key tile, from executed runs.

    python -m integration_tests.speed.counts [--sizes 512 1024]

A wave executes `start + tile * tiles` instructions of each class when no query's maximum grows after the first tile.
Two sizes give both numbers; a third size must then agree exactly, or the command fails.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterable

from integration_tests.harness import inputs
from integration_tests.harness.hub_delivery import load_hub_kernel
from integration_tests.harness.launches import MAIN_KERNEL
from integration_tests.harness.rocm_torch import rocm_torch
from integration_tests.speed import card as machine
from integration_tests.speed.instruction_classes import count, pipe_estimate, slots_per_matrix
from integration_tests.speed.trace import Launch, traced
from integration_tests.virtual_gpu import VirtualGpu

KEYS_PER_TILE = 32


def with_early_maximum(batch, sequence, heads, seed=0):
    """Normal inputs, but key 0 has every query's largest score: the running maximum grows in the first tile only."""
    q, k, v = inputs.normal(batch, sequence, heads, seed)
    q[..., 0] = 8.0
    k[..., 0] = 0.0
    k[:, 0, :, 0] = 32.0
    return q, k, v


def per_wave(launch: Launch) -> Counter:
    """Executed instructions of an average wave, by class."""
    return Counter({name: times / launch.waves for name, times in count(launch.executed).items()})


def split(small: Counter, large: Counter, small_tiles: int, large_tiles: int) -> tuple[Counter, Counter]:
    """(per tile, once per wave) of the counts of one wave at two numbers of tiles."""
    per_tile = Counter({name: (large[name] - small[name]) / (large_tiles - small_tiles) for name in small | large})
    once = Counter({name: small[name] - per_tile[name] * small_tiles for name in per_tile})
    return per_tile, once


def at(per_tile: Counter, once: Counter, tiles: int) -> Counter:
    """Counts of one wave at a number of tiles."""
    return Counter({name: once[name] + per_tile[name] * tiles for name in per_tile})


def main_kernel_launches(
    gpu: VirtualGpu, sizes: Iterable[int], make_inputs: Callable = with_early_maximum
) -> dict[int, Launch]:
    """The main kernel's launch at [1, size, 1, 128] for each size, a multiple of a work-group's queries."""
    result = {}
    with rocm_torch(gpu):
        op = load_hub_kernel().gfx1201_sage_attention
        for size in sizes:
            with traced(gpu, workgroups=0) as traces:
                op(*make_inputs(1, size, 1))
            result[size] = traces.of(MAIN_KERNEL)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs=2, default=(512, 1024))
    sizes = parser.parse_args().sizes
    third = sum(sizes)
    launches = main_kernel_launches(VirtualGpu.load(), [*sizes, third])
    tiles = {size: size // KEYS_PER_TILE for size in launches}
    per_tile, once = split(*(per_wave(launches[size]) for size in sizes), *(tiles[size] for size in sizes))
    if at(per_tile, once, tiles[third]) != per_wave(launches[third]):
        raise SystemExit(f"counts at S = {third} do not follow from S = {sizes}: the loop is not steady")

    launch = launches[third]
    conflicts = f"{launch.lds_conflict_cycles} of {launch.lds_cycles} LDS passes are conflicts"
    print(f"{MAIN_KERNEL}, instructions of one wave (S = {sizes[0]} and {sizes[1]}; exact at {third})")
    print(f"  {launch.vgprs} VGPRs, {launch.spills} spills, {launch.lds_bytes} bytes of LDS, {conflicts}")
    print(f"  {launch.resident_workgroups()} work-groups of {launch.waves_per_workgroup} waves at a time on a WGP")
    print(f"  {'class':16}{'per tile':>10}{'once':>10}")
    for name in sorted(per_tile):
        print(f"  {name:16}{per_tile[name]:>10g}{once[name]:>10g}")
    print(f"  slots beside matrix instructions, per matrix instruction   {slots_per_matrix(per_tile):.3f}")
    for reading in machine.READINGS:
        print(f"  {f'matrix share if nothing waits, {reading} reading':59}{pipe_estimate(per_tile, reading):.3f}")


if __name__ == "__main__":
    main()
