# SPDX-License-Identifier: MIT
"""Measures schemes on cases: the op on the virtual device where its length allows, its reference model beyond."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import torch

from integration_tests.harness.inputs import SOFTMAX_SCALE
from integration_tests.reference.agreement import compare
from integration_tests.reference.attention import ROWS_PER_BLOCK, sage_attention_model
from integration_tests.reports.accuracy.cases import CASES
from integration_tests.reports.accuracy.schemes import PEERS, Chosen, exact

OURS = "gfx1201_sage_attention"
ON_DEVICE = "virtual gfx1201"


@dataclass(frozen=True)
class Row:
    """One scheme on one case at one length, against attention in float64 over the measured queries.

    `gain` is <output, exact> / <exact, exact> - 1: how much the output is too small or too large as a whole.
    `source` says what computed the output. `model_relative_l2`: reference model against the device, where both ran.
    """

    case: str
    sequence: int
    heads: int
    queries: int
    scheme: str
    source: str
    cosine: float
    relative_l2: float
    max_error: float
    gain: float
    model_relative_l2: float | None = None


def on_device(op: Callable, case: str, sequence: int, heads: int, executed: Mapping[str, Callable]) -> Iterator[Row]:
    """The op on the virtual device, over all queries, and the other schemes on the same inputs.

    `executed` are other people's kernels by their scheme's name, called like the op and run on the device as well.
    """
    q, k, v = CASES[case](sequence, heads)
    output = op(q, k, v, SOFTMAX_SCALE)
    model = sage_attention_model(q, k, v, SOFTMAX_SCALE)
    everything = _chosen(q, k, v, range(sequence), torch.device("cpu"))
    reference = exact(everything)
    ours = output[0].transpose(0, 1)
    agreement = compare(ours, model[0].transpose(0, 1)).relative_l2
    yield _row(case, everything, OURS, ON_DEVICE, ours, reference, agreement)
    for name, kernel in executed.items():
        output = kernel(q, k, v, SOFTMAX_SCALE)[0].transpose(0, 1)
        yield _row(case, everything, name, ON_DEVICE, output, reference)
    yield from _peers(case, everything, reference)


def by_model(case: str, sequence: int, heads: int, blocks: int, device: torch.device) -> Iterator[Row]:
    """The reference model, over `blocks` evenly spaced blocks of queries, and the other schemes on the same."""
    q, k, v = CASES[case](sequence, heads)
    last = -(-sequence // ROWS_PER_BLOCK) - 1
    # The last block may be short; it is left out.
    numbers = sorted({round(i * (last - 1) / max(blocks - 1, 1)) for i in range(blocks)})
    rows = [block * ROWS_PER_BLOCK + row for block in numbers for row in range(ROWS_PER_BLOCK)]
    some = _chosen(q, k, v, rows, device)
    reference = exact(some)
    moved = (x.to(device) for x in (q, k, v))
    ours = sage_attention_model(*moved, SOFTMAX_SCALE, query_blocks=numbers)[0].transpose(0, 1)
    yield _row(case, some, OURS, f"reference model, {device.type}", ours, reference)
    yield from _peers(case, some, reference)


def _chosen(q, k, v, rows: Sequence[int], device: torch.device) -> Chosen:
    by_head = (x[0].transpose(0, 1).contiguous().to(device) for x in (q, k, v))
    return Chosen(*by_head, torch.tensor(rows, device=device), SOFTMAX_SCALE)


def _peers(case: str, chosen: Chosen, reference: torch.Tensor) -> Iterator[Row]:
    for name, scheme in PEERS.items():
        yield _row(case, chosen, name, f"model in torch, {chosen.k.device.type}", scheme(chosen), reference)


def _row(case, chosen: Chosen, scheme, source, output, reference, agreement=None) -> Row:
    figures = compare(output, reference)
    a, b = output.double().flatten(), reference.flatten()
    return Row(
        case,
        chosen.k.shape[1],
        chosen.k.shape[0],
        chosen.rows.numel(),
        scheme,
        source,
        **asdict(figures),
        gain=float(a @ b / (b @ b)) - 1,
        model_relative_l2=agreement,
    )
