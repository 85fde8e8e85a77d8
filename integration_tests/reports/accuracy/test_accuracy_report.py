# SPDX-License-Identifier: MIT
"""The accuracy report: that its schemes model what they say, that errors stay level, and what it writes."""

import dataclasses
import json

import pytest
import torch

from integration_tests.harness.inputs import SOFTMAX_SCALE, normal
from integration_tests.reference.agreement import compare
from integration_tests.reference.attention import ROWS_PER_BLOCK, sage_attention_model
from integration_tests.reports.accuracy import __main__ as command
from integration_tests.reports.accuracy import report
from integration_tests.reports.accuracy.cases import CASES
from integration_tests.reports.accuracy.measure import ON_DEVICE, OURS, Row, by_model, on_device
from integration_tests.reports.accuracy.schemes import PEERS, Chosen, triton_sageattention
from integration_tests.speed.peers import comfy_kitchen
from integration_tests.speed.peers.triton_sage import triton_sage_attention
from integration_tests.tests.op.test_accuracy import CASES as CONTRACT

NORMAL_BOUND = CONTRACT["normal"][1]
CPU = torch.device("cpu")


def errors(case: str, sequence: int) -> dict[str, float]:
    """Relative L2 of every scheme over one block of queries."""
    return {row.scheme: row.relative_l2 for row in by_model(case, sequence, heads=1, blocks=1, device=CPU)}


@pytest.mark.parametrize("case", ["N(0,1)", "near-uniform attention"])
def test_error_at_16384_rows_is_within_the_contract_for_1024(case):
    """Where each query weighs all keys, rounding V's mean would show: 0.043 and 0.050 without what corrects it."""
    assert errors(case, 16384)[OURS] <= NORMAL_BOUND


def test_schemes_stand_in_the_order_of_their_bits():
    """On N(0, 1): 16-bit operands, then INT8 with float16 P and V, then FP8 P and V, then FP8 throughout."""
    found = errors("N(0,1)", 1024)
    order = ["BF16 SDPA", "Triton SageAttention's scheme", OURS, "no smoothing", "per-tensor FP8"]
    assert sorted(found, key=found.get) == order


def test_smoothing_is_what_a_common_mean_of_k_needs():
    plain, shifted = errors("N(0,1)", 512), errors("K with common mean 10", 512)
    for scheme in (OURS, "Triton SageAttention's scheme"):
        # bfloat16 rounds the shifted keys themselves, for every scheme and the reference alike.
        assert shifted[scheme] <= 1.1 * plain[scheme]
    assert shifted["no smoothing"] >= 1.2 * plain["no smoothing"]


def test_tritons_scheme_is_what_its_package_computes(virtual_gpu):
    q, k, v = normal(1, 256, 1)
    package = triton_sage_attention(virtual_gpu, q, k, v, SOFTMAX_SCALE)
    heads = (x[0].transpose(0, 1) for x in (q, k, v))
    scheme = triton_sageattention(Chosen(*heads, torch.arange(256), SOFTMAX_SCALE))
    # Both are 0.013 from float64: with unrelated roundings they would differ by 0.018. The package smooths in bfloat16
    # and accumulates P V in float16, which makes 0.0074.
    assert compare(package[0].transpose(0, 1), scheme).relative_l2 <= 0.010


def test_chosen_blocks_are_rows_of_the_whole():
    q, k, v = normal(1, 200, 2)
    whole = sage_attention_model(q, k, v, SOFTMAX_SCALE)
    some = sage_attention_model(q, k, v, SOFTMAX_SCALE, query_blocks=[1, 4])
    rows = [block * ROWS_PER_BLOCK + row for block in (1, 4) for row in range(ROWS_PER_BLOCK)]
    assert torch.equal(some, whole[:, rows])


def test_one_case_has_a_row_for_each_scheme_from_the_device(sage_attention, virtual_gpu):
    executed = {comfy_kitchen.NAME: comfy_kitchen.comfy_kitchen_attention}
    rows = list(on_device(sage_attention, "2 V channels x100", 77, 1, executed))
    assert [row.scheme for row in rows] == [OURS, "comfy-kitchen", *PEERS]
    assert virtual_gpu.launches(comfy_kitchen.KERNEL) == 1
    ours, theirs = rows[:2]
    for row in (ours, theirs):
        assert row.source == ON_DEVICE and row.queries == 77 and row.heads == 1
    assert theirs.model_relative_l2 is None
    # Float32 additions in another order, before one rounding to bfloat16 (integration_tests/tests/op/test_shapes.py).
    assert ours.model_relative_l2 <= 1e-4
    assert abs(ours.gain) <= ours.relative_l2


ROW = Row("N(0,1)", 1024, 2, 1024, OURS, ON_DEVICE, 0.9994, 0.0334, 0.01, -0.001, 1e-6)


def made_up_rows() -> list[Row]:
    """A row for each case, length and scheme, as a whole run has them."""
    rows = []
    for case in CASES:
        for sequence in (1024, 4096, 16384):
            device = ON_DEVICE if sequence <= 4096 else "reference model, cpu"
            agreement = 1e-6 if sequence <= 4096 else None
            same = dataclasses.replace(ROW, case=case, sequence=sequence)
            rows.append(dataclasses.replace(same, source=device, model_relative_l2=agreement))
            if sequence <= 4096:
                rows.append(dataclasses.replace(same, scheme=comfy_kitchen.NAME, model_relative_l2=None))
            rows += [dataclasses.replace(same, scheme=name, model_relative_l2=None) for name in PEERS]
    return rows


def test_tables_name_what_computed_each_length(tmp_path):
    report.write(made_up_rows(), tmp_path)
    text = (tmp_path / report.TABLES).read_text()
    assert "| *computed by* | virtual gfx1201 | virtual gfx1201 | reference model, cpu |" in text
    assert text.count("## Relative L2 of each scheme at ") == 3
    # What only the device computes has a column where the device ran.
    assert text.count("| case | gfx1201_sage_attention | comfy-kitchen | ") == 2
    assert "| N(0,1) | 1,024 | 0.999400 | 0.0334 | 0.01 | -0.10 % | 1.0e-06 |" in text
    assert all((tmp_path / plot).stat().st_size > 10_000 for plot in (report.BY_LENGTH, report.BY_SCHEME))


def test_saved_rows_are_the_loaded_ones(tmp_path):
    rows = made_up_rows()[:3]
    command.save(tmp_path / "rows.json", rows)
    assert command.load(tmp_path / "rows.json") == rows
    assert json.loads((tmp_path / "rows.json").read_text())["torch"] == torch.__version__


def test_without_cuda_the_cuda_part_is_refused(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("sys.argv", ["accuracy", "--cuda-only", str(tmp_path / "rows.json")])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        command.main()
    assert "needs a CUDA device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
