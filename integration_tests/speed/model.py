# SPDX-License-Identifier: MIT
"""From executed runs at small sequence lengths to the modelled time of a whole call at a large one.

Everything that a kernel counts or takes is `start + tile * tiles` once its loop is steady, so two lengths are enough
and a third one checks it. A kernel that rescales only where a running maximum grows takes a constant more per expected
growth.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from integration_tests.reference.attention import MARGIN, QUERIES_PER_RESCALE
from integration_tests.speed import card as machine
from integration_tests.speed import instruction_classes
from integration_tests.speed.counts import KEYS_PER_TILE
from integration_tests.speed.trace import Launch, Timing, Traces, traced
from integration_tests.speed.workloads import Workload
from integration_tests.virtual_gpu import VirtualGpu


def growths(best: torch.Tensor) -> float:
    """Tiles after the first in which some query of those that rescale together leaves its margin; a mean over groups.

    `best`: a query's largest score of a tile in bits, [groups, queries that rescale together, tiles].
    """
    first, *others = best.unbind(dim=-1)
    limit, result = first + MARGIN, 0.0
    for tile in others:
        grew = (tile > limit).any(dim=1, keepdim=True)
        limit = torch.where(grew, torch.maximum(limit, tile + MARGIN), limit)
        result += grew.double().mean().item()
    return result


@functools.cache
def expected_growths(tiles: int) -> float:
    """The same for scores of N(0, 1) in random order, in nats: those of normal inputs at the usual softmax scale."""
    uniform = torch.rand(
        256, QUERIES_PER_RESCALE, tiles, generator=torch.Generator().manual_seed(0), dtype=torch.double
    )
    # The largest of n has the n-th power of the distribution function.
    largest = torch.special.ndtri(uniform ** (1 / KEYS_PER_TILE))
    return growths(largest * math.log2(math.e))


@dataclass(frozen=True)
class Line:
    """A quantity that grows by `slope` per tile."""

    start: float
    slope: float

    @staticmethod
    def through(small: tuple[float, float], large: tuple[float, float]) -> "Line":
        slope = (large[1] - small[1]) / (large[0] - small[0])
        return Line(small[1] - slope * small[0], slope)

    def at(self, tiles: float) -> float:
        return self.start + self.slope * tiles


def mean_time(traces: Traces, launch: Launch, resident: int, total: int, **changed: float) -> Timing:
    """Timings of one WGP, averaged over the intervals at which work-groups may start.

    Which waves meet at a port is decided by when they started: a single interval gives cycles that lie 2 to 3 % apart
    for the smallest change of a constant.
    """
    times = [traces.time(launch, resident, total, launch_interval=i, **changed) for i in machine.LAUNCH_INTERVALS]
    return {name: sum(time[name] for time in times) / len(times) for name in times[0]}


@dataclass(frozen=True)
class WgpTimes:
    """Modelled timings of one WGP for 1, 2, ... work-groups of a launch, `resident` at a time."""

    resident: int
    timings: tuple[Timing, ...]

    @staticmethod
    def of(traces: Traces, launch: Launch, **changed: float) -> "WgpTimes":
        """Up to three generations: the third is the steady one."""
        resident = launch.resident_workgroups()
        times = tuple(mean_time(traces, launch, resident, total, **changed) for total in range(1, 3 * resident))
        return WgpTimes(resident, times)

    def cycles(self, groups: int) -> float:
        """Cycles for any number of work-groups; further generations take what the third takes."""
        simulated = min(groups, groups % self.resident + 2 * self.resident)
        cycles = self.timings[simulated - 1]["cycles"]
        if simulated < groups:
            generation = cycles - self.timings[simulated - 1 - self.resident]["cycles"]
            cycles += (groups - simulated) // self.resident * generation
        return cycles


@dataclass(frozen=True)
class Run:
    """One traced call at one head: its launches in order, and by reading the timings of the main kernel and others."""

    launches: list[Launch]
    main: Launch
    times: dict[str, WgpTimes]
    prologue: list[tuple[Launch, dict[str, float]]]  # with the WGP cycles that one work-group takes in a full WGP


def run(gpu: VirtualGpu, workload: Workload, tensors) -> Run:
    """Calls the workload and models what its launches did, under every reading."""
    with traced(gpu) as traces:
        workload.run(*tensors)
    main = traces.of(workload.main)
    before = []
    for launch in traces.launches:
        if launch is not main:
            resident, cycles = launch.resident_workgroups(), {}
            for reading, changed in machine.READINGS.items():
                one, two = (mean_time(traces, launch, resident, n * resident, **changed)["cycles"] for n in (1, 2))
                cycles[reading] = (two - one) / resident
            before.append((launch, cycles))
    times = {reading: WgpTimes.of(traces, main, **changed) for reading, changed in machine.READINGS.items()}
    return Run(traces.launches, main, times, before)


@dataclass(frozen=True)
class Profile:
    """Runs of one workload at two lengths, from which every other shape follows."""

    workload: Workload
    small: tuple[int, Run]
    large: tuple[int, Run]
    normal: Run | None  # at the large length, inputs that make maxima grow as random ones do

    def tiles(self, sequence: float) -> float:
        return sequence / self.workload.keys_per_tile

    def line(self, quantity: Callable[[Run], float]) -> Line:
        """A quantity of a run as a function of the number of tiles."""
        return Line.through(*((self.tiles(size), quantity(result)) for size, result in (self.small, self.large)))

    def counts_per_tile(self) -> dict[str, float]:
        """Instructions of one wave of the main kernel per key tile."""
        small, large = (
            instruction_classes.count(run.main.executed) | {"waves": run.main.waves}
            for _, run in (self.small, self.large)
        )
        tiles = self.tiles(self.large[0]) - self.tiles(self.small[0])
        names = set(small) | set(large)
        per_wave = {n: large[n] / large["waves"] - small[n] / small["waves"] for n in names - {"waves"}}
        return instruction_classes.Counter({name: difference / tiles for name, difference in per_wave.items()})

    def main_cycles(self, batch: int, sequence: int, heads: int, card: machine.Card, reading: str) -> float:
        """Cycles of the main kernel: of the WGP that gets most work-groups."""
        groups = -(-batch * heads * -(-sequence // self.workload.queries_per_workgroup) // card.wgps)
        return self.cycles_of_wgp(groups, sequence, reading)

    def cycles_of_wgp(self, groups: int, sequence: int, reading: str) -> float:
        """Cycles of a WGP for `groups` work-groups of the main kernel."""
        tiles = -(-sequence // self.workload.keys_per_tile)
        cycles = self.line(lambda result: result.times[reading].cycles(groups)).at(tiles)
        if self.normal:
            growths = expected_growths(int(self.tiles(self.large[0])))
            more = self.normal.times[reading].cycles(groups) - self.large[1].times[reading].cycles(groups)
            cycles += more / growths * expected_growths(tiles)
        return cycles

    def prologue_cycles(self, batch: int, sequence: int, heads: int, card: machine.Card, reading: str) -> float:
        """Cycles of all kernels before the main one, with every WGP full."""

        def of_one_head(result: Run) -> float:
            return sum(launch.workgroups * cycles[reading] for launch, cycles in result.prologue)

        return self.line(of_one_head).at(self.tiles(sequence)) * batch * heads / card.wgps

    def bytes_moved(self, batch: int, sequence: int, heads: int) -> dict[str, float]:
        """Bytes of a whole call, by what moves them: LDS, the CUs' requests, and DRAM at least."""
        tiles, n = self.tiles(sequence), batch * heads
        workgroups = n * -(-sequence // self.workload.queries_per_workgroup)

        def of_workgroups(quantity: Callable[[Launch], float]) -> float:
            return self.line(lambda result: quantity(result.main) / result.main.workgroups).at(tiles) * workgroups

        def of_heads(launches: Callable[[Run], list[Launch]]) -> float:
            return self.line(lambda result: sum(map(dram_bytes, launches(result)))).at(tiles) * n

        untraced = self.workload.untraced_bytes_per_input_byte * 2 * n * sequence * 128 * 2
        return {
            "lds": of_workgroups(lambda launch: launch.lds_bytes_moved),
            "requested": of_workgroups(lambda launch: launch.requested_bytes_read + launch.requested_bytes_written),
            "main_dram": of_heads(lambda result: [result.main]),
            "prologue_dram": of_heads(lambda result: [launch for launch, _ in result.prologue]) + untraced,
        }


def dram_bytes(launch: Launch) -> int:
    """What DRAM moves at least: every distinct 64-byte sector once."""
    return launch.distinct_bytes_read + launch.distinct_bytes_written


def seconds(cycles: float, card: machine.Card, reading: str) -> float:
    """At the clock that matrix loops sustain."""
    return cycles / (card.boost_hertz * card.sustained[reading].value)


def flop(batch: int, sequence: int, heads: int) -> float:
    """Of both products, head dimension 128."""
    return 4.0 * batch * heads * sequence**2 * 128
