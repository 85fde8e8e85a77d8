# SPDX-License-Identifier: MIT
"""The scale model against what diffusers sends and what the kernel executes, and its arithmetic by hand."""

import dataclasses
import math
import re
from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from integration_tests.harness import inputs
from integration_tests.harness.generated_page import END, begin, with_text
from integration_tests.harness.launches import MAIN_KERNEL
from integration_tests.speed import counts
from integration_tests.speed.instruction_classes import matrix_cycles, matrix_instructions, pipe_estimate
from integration_tests.speed.scale import __main__ as command
from integration_tests.speed.scale import model
from integration_tests.speed.scale.facts import kernel_facts
from integration_tests.speed.scale.model import KernelFacts, Model

# Round numbers: a wave issues 8 * 64 + 512 = 1024 cycles a tile and 1000 once.
FACTS = KernelFacts(
    per_tile=Counter(int8_matrix=64, vector=489, transcendental=23, lds=20),
    once=Counter(vector=1000),
    keys_per_tile=32,
    queries_per_group=256,
    waves_per_group=8,
    workspace_bytes=lambda sequence, heads: 256 * sequence * heads,
)


@pytest.fixture
def executed_facts(virtual_gpu):
    return kernel_facts(virtual_gpu)


@pytest.fixture(params=[2, 4])
def ranks(request):
    """Rank 0 of several, with collectives that return at once and exchange nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=request.param)
    yield request.param
    dist.destroy_process_group()


def test_bytes_are_those_that_diffusers_gives_to_the_other_ranks(ranks, monkeypatch):
    from diffusers.models import attention_dispatch
    from diffusers.models._modeling_parallel import ContextParallelConfig, ParallelConfig

    sent = []

    def all_to_all(tensor, output_sizes, input_sizes, group):
        sent.append(tensor.numel() * tensor.element_size())
        return tensor

    monkeypatch.setattr(attention_dispatch.funcol, "all_to_all_single", all_to_all)
    size = Model(sequence=64, heads=8)
    config = ContextParallelConfig(ulysses_degree=ranks)
    mesh = dist.device_mesh.init_device_mesh("cpu", config.mesh_shape, mesh_dim_names=config.mesh_dim_names)
    config.setup(0, ranks, torch.device("cpu"), mesh)
    q, k, v = inputs.normal(1, size.sequence // ranks, size.heads)
    attention_dispatch.dispatch_attention_fn(
        q, k, v, backend="native", parallel_config=ParallelConfig(context_parallel_config=config)
    )
    assert len(sent) == model.ALL_TO_ALLS
    # Of what goes into the collective, one rank's part stays where it is.
    assert {given * (ranks - 1) // ranks for given in sent} == {model.sent_bytes(size, ranks)}


def test_cycles_are_those_of_an_executed_launch(virtual_gpu, executed_facts):
    sequence = 768  # neither of the two sizes that the facts come from
    executed = counts.per_wave(counts.main_kernel_launches(virtual_gpu, [sequence])[sequence])
    expected = matrix_cycles(executed) / pipe_estimate(executed)
    assert model.wave_cycles(executed_facts, sequence) == pytest.approx(expected, rel=1e-12)


def test_waves_are_those_of_an_executed_launch(virtual_gpu, rocm_torch, executed_facts):
    from integration_tests.harness.hub_delivery import load_hub_kernel

    virtual_gpu.reset()
    load_hub_kernel().gfx1201_sage_attention(*inputs.normal(1, 257, 3))
    (record,) = [record for record in virtual_gpu.records() if record.kernel == MAIN_KERNEL]
    waves = math.prod(record.grid) * executed_facts.waves_per_group
    cycles = waves * model.wave_cycles(executed_facts, 257)
    assert model.kernel_seconds(executed_facts, 257, 3) == pytest.approx(cycles / (128 * 2.92e9), rel=1e-12)


def test_a_rank_by_hand():
    share = model.rank(Model(sequence=6400), 2, FACTS)
    assert (share.rows, share.heads) == (3200, 28)
    assert share.sent_bytes == 3200 * 28 * 128 * 2 and share.leaving_bytes == 0
    # 25 groups of 8 waves for 28 heads, 200 tiles and the start of each wave, on 128 SIMDs.
    assert share.kernel_seconds == pytest.approx(25 * 8 * 28 * (200 * 1024 + 1000) / (128 * 2.92e9), rel=1e-3)
    assert share.prologue_seconds == pytest.approx(2 * 6400 * 28 * 128 * 5 / 640e9)
    assert share.repacking_seconds == pytest.approx(4 * 4 * 3200 * 56 * 128 * 2 / 640e9)
    assert share.link_seconds == pytest.approx(4 * 3200 * 28 * 128 * 2 / 63.015e9, rel=1e-4)


def test_one_gpu_sends_nothing():
    share = model.rank(Model(sequence=6400), 1, FACTS)
    assert share.sent_bytes == share.leaving_bytes == share.communication == 0


def test_two_hosts_share_two_ports():
    share = model.rank(Model(sequence=1400), 14, FACTS)
    assert model.gpus_per_host(14) == 7
    # 100 rows of 4 heads to each of the 7 ranks of the other host, from 7 GPUs through one port.
    assert share.leaving_bytes == 100 * 4 * 7 * 128 * 2
    assert share.port_seconds == pytest.approx(4 * share.leaving_bytes * 7 / 50e9)


def test_rows_that_do_not_divide_count_for_the_largest_rank():
    assert model.rank(Model(sequence=73_923), 8, FACTS).rows == 9241
    with pytest.raises(ValueError, match="56 heads do not divide over 3 GPUs"):
        model.sent_bytes(Model(sequence=73_923), 3)


@pytest.mark.parametrize("gpus", [2, 8, 14, 28])
def test_crossover_is_where_communication_stops_taking_longer(gpus):
    crossover = model.crossover_sequence(gpus, FACTS)
    shorter, longer = (model.rank(Model(crossover + step), gpus, FACTS) for step in (-512, 512))
    assert shorter.communication > shorter.attention and longer.communication < longer.attention


@pytest.mark.parametrize(("gpus", "rate"), [(8, "PCIE_BYTES_PER_SECOND"), (28, "NETWORK_BYTES_PER_SECOND")])
def test_break_even_rate_makes_both_take_as_long(monkeypatch, gpus, rate):
    share = model.rank(Model(sequence=73_923), gpus, FACTS)
    monkeypatch.setattr(model, rate, share.break_even_port if share.leaving_bytes else share.break_even_link)
    assert share.communication == pytest.approx(share.attention)


def test_page_gets_new_text_between_its_marks():
    page = f"before\n{begin('a command')}\nold\n{END}\nafter\n"
    once = with_text(page, "a command", "new\n")
    assert "old" not in once and once.startswith("before") and once.endswith("after\n")
    assert with_text(once, "a command", "new\n") == once
    with pytest.raises(ValueError):
        with_text(page, "another command", "new\n")


def test_tables_say_that_they_are_modelled():
    ranks = {1000: [model.rank(Model(1000), gpus, FACTS) for gpus in command.GPUS]}
    text = command.tables(ranks, FACTS)
    assert text.count("modelled") == 2
    assert len([line for line in text.splitlines() if line.startswith("| 28 |")]) == 2


def test_documented_tables_are_the_models(executed_facts):
    """For the instruction counts that the page states: a later kernel makes it old, not wrong."""
    page = (command.DOCS / "scale.md").read_text()
    stated = re.search(r"per key tile (.*); once (.*)\.\n", page)
    per_tile, once = (
        Counter({name: float(n) for name, n in re.findall(r"(\w+) ([\d.]+)", text)}) for text in stated.groups()
    )
    facts = dataclasses.replace(executed_facts, per_tile=per_tile, once=once)
    ranks = {
        sequence: [model.rank(Model(sequence), gpus, facts) for gpus in command.GPUS] for sequence in command.SEQUENCES
    }
    assert with_text(page, command.COMMAND, command.tables(ranks, facts)) == page


def test_facts_of_the_kernel_are_complete(executed_facts):
    assert matrix_instructions(executed_facts.per_tile) == 64 and executed_facts.waves_per_group == 8
    assert executed_facts.workspace_bytes(32, 1) >= 2 * 32 * 128
    assert {field.name for field in dataclasses.fields(executed_facts)} == set(vars(FACTS))
