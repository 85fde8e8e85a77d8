# SPDX-License-Identifier: MIT
"""Ulysses over N GPUs by arithmetic: bytes, workspace and time per rank of one attention call. Nothing is measured.

Every time is a lower bound, from published peak rates and the issue-slot model: real kernels and links are slower.
docs/scale.md lists the assumptions.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from integration_tests.speed import counts
from integration_tests.speed.card import R9700, SIMDS_PER_WGP
from integration_tests.speed.instruction_classes import matrix_cycles, pipe_estimate

BFLOAT16_BYTES = 2

# At boost clock, because every time here is a lower bound; bench models the clock that matrix loops sustain.
CARD = R9700
SIMDS = SIMDS_PER_WGP * CARD.wgps
# The card's link, x16. PCI Express 5.0 base specification: 32 GT/s a lane, 128b/130b coding, each direction.
PCIE_BYTES_PER_SECOND = 16 * 32e9 * 128 / 130 / 8
# One port of 400 Gb/s (NDR InfiniBand, 400GBASE Ethernet) a host.
NETWORK_BYTES_PER_SECOND = 400e9 / 8

# One all-to-all each for Q, K, V and the output.
ALL_TO_ALLS = 4
# A tensor is written in the order of its receivers before an all-to-all and in the order of its rows after it.
REPACKING_PASSES = 4


@dataclass(frozen=True)
class KernelFacts:
    """What the kernel's own build and executed runs say about it."""

    per_tile: Counter  # instructions of a main-kernel wave per key tile, and once
    once: Counter
    keys_per_tile: int
    queries_per_group: int
    waves_per_group: int
    workspace_bytes: Callable[[int, int], int]  # of (sequence, heads), batch 1


@dataclass(frozen=True)
class Model:
    """Sizes of one attention call."""

    sequence: int
    heads: int = 56
    head_dim: int = 128

    def tensor_bytes(self) -> int:
        """Q, K, V or the output, of all rows and heads."""
        return self.sequence * self.heads * self.head_dim * BFLOAT16_BYTES


@dataclass(frozen=True)
class Rank:
    """One rank's share of one attention call; the largest share where rows do not divide."""

    gpus: int
    rows: int
    heads: int
    sent_bytes: int  # in one all-to-all, to all other ranks
    leaving_bytes: int  # of them, to other hosts
    workspace_bytes: int
    kernel_seconds: float
    prologue_seconds: float
    repacking_seconds: float

    @property
    def attention(self) -> float:
        return self.kernel_seconds + self.prologue_seconds

    @property
    def link_seconds(self) -> float:
        """All four all-to-alls over each GPU's own link."""
        return ALL_TO_ALLS * self.sent_bytes / PCIE_BYTES_PER_SECOND

    @property
    def port_seconds(self) -> float:
        """All four all-to-alls over each host's port, which its GPUs share; 0 in one host."""
        return ALL_TO_ALLS * self.leaving_bytes * gpus_per_host(self.gpus) / NETWORK_BYTES_PER_SECOND

    @property
    def communication(self) -> float:
        """None of it hidden behind the kernel, as diffusers calls them one after the other."""
        return self.repacking_seconds + max(self.link_seconds, self.port_seconds)

    @property
    def break_even_link(self) -> float:
        """Bytes per second of each GPU's link below which communication takes longer than attention, in one host."""
        return ALL_TO_ALLS * self.sent_bytes / (self.attention - self.repacking_seconds)

    @property
    def break_even_port(self) -> float:
        """The same of each host's port."""
        return ALL_TO_ALLS * self.leaving_bytes * gpus_per_host(self.gpus) / (self.attention - self.repacking_seconds)


def divide_up(value: int, by: int) -> int:
    return -(-value // by)


def gpus_per_host(gpus: int) -> int:
    """Up to 8 GPUs in one host, as two sockets have lanes for; more in hosts of 7, which divides 14, 28 and 56."""
    return gpus if gpus <= 8 else 7


def sent_bytes(model: Model, gpus: int) -> int:
    """Bytes that a rank sends in one all-to-all: its rows of the heads of every other rank."""
    if model.heads % gpus:
        raise ValueError(f"{model.heads} heads do not divide over {gpus} GPUs.")
    rows, heads = divide_up(model.sequence, gpus), model.heads // gpus
    return rows * heads * (gpus - 1) * model.head_dim * BFLOAT16_BYTES


def leaving_bytes(model: Model, gpus: int) -> int:
    """Of these, what goes to ranks in other hosts."""
    return sent_bytes(model, gpus) * (gpus - gpus_per_host(gpus)) // max(gpus - 1, 1)


def wave_cycles(facts: KernelFacts, sequence: int) -> float:
    """Cycles of a SIMD that one wave of the main kernel issues in, waits not counted."""
    tiles = divide_up(sequence, facts.keys_per_tile)
    executed = counts.at(facts.per_tile, facts.once, tiles)
    return matrix_cycles(executed) / pipe_estimate(executed)


def kernel_seconds(facts: KernelFacts, sequence: int, heads: int) -> float:
    """The main kernel with every SIMD issuing all the time: no latency, no tail."""
    waves = divide_up(sequence, facts.queries_per_group) * facts.waves_per_group * heads
    return waves * wave_cycles(facts, sequence) / (SIMDS * CARD.boost_hertz)


def prologue_seconds(sequence: int, heads: int, head_dim: int) -> float:
    """The two quantising kernels at memory speed: K and V read twice, one byte an element written."""
    elements = 2 * sequence * heads * head_dim
    return elements * (2 * BFLOAT16_BYTES + 1) / CARD.memory_bytes_per_second


def repacking_seconds(model: Model, gpus: int) -> float:
    """The copies before and after the four all-to-alls, at memory speed."""
    rows = divide_up(model.sequence, gpus)
    copied = ALL_TO_ALLS * REPACKING_PASSES * rows * model.heads * model.head_dim * BFLOAT16_BYTES
    return copied / CARD.memory_bytes_per_second if gpus > 1 else 0.0


def rank(model: Model, gpus: int, facts: KernelFacts) -> Rank:
    heads = model.heads // gpus
    return Rank(
        gpus=gpus,
        rows=divide_up(model.sequence, gpus),
        heads=heads,
        sent_bytes=sent_bytes(model, gpus),
        leaving_bytes=leaving_bytes(model, gpus),
        workspace_bytes=facts.workspace_bytes(model.sequence, heads),
        kernel_seconds=kernel_seconds(facts, model.sequence, heads),
        prologue_seconds=prologue_seconds(model.sequence, heads, model.head_dim),
        repacking_seconds=repacking_seconds(model, gpus),
    )


def crossover_sequence(gpus: int, facts: KernelFacts, longest: int = 1 << 20) -> int:
    """The shortest sequence from which on attention takes longer than communication.

    More GPUs divide both alike, but attention grows with the square of the sequence and bytes only with the sequence:
    the crossover is a length.
    """
    low, high = 0, longest
    while high - low > 1:
        middle = (low + high) // 2
        share = rank(Model(middle), gpus, facts)
        if share.communication > share.attention:
            low = middle
        else:
            high = middle
    return high
