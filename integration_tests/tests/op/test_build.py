# SPDX-License-Identifier: MIT
"""The build: reproducible, within its budget, and refusing when not."""

import hashlib
import json

import pytest

from hub_kernel import build_code_object
from hub_kernel.build_code_object import BuildGateError, Compiler, check_budget, compile_code_object


def test_two_builds_are_byte_for_byte_equal(tmp_path):
    first, second = (build_code_object.build_code_object(tmp_path / name) for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    assert (tmp_path / "a/manifest.json").read_bytes() == (tmp_path / "b/manifest.json").read_bytes()


def test_the_manifest_describes_the_code_object_beside_it(tmp_path):
    path = build_code_object.build_code_object(tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    launched = {launch["kernel"] for launch in manifest["launch"]["launches"]}
    assert launched == set(manifest["kernels"])
    for source in build_code_object.kernel_sources():
        assert manifest["sources"][source.name] == hashlib.sha256(source.read_bytes()).hexdigest()


WITHIN = {"vgpr": 240, "sgpr": 40, "lds": 65536, "scratch": 0, "vgpr_spills": 0, "sgpr_spills": 0}


@pytest.mark.parametrize(
    "figure, value", [("vgpr", 241), ("lds", 65540), ("scratch", 16), ("vgpr_spills", 1), ("sgpr_spills", 1)]
)
def test_a_kernel_over_budget_fails_the_build_by_name(figure, value):
    check_budget({"kernel": WITHIN})
    with pytest.raises(BuildGateError, match=f"kernel .*{value}"):
        check_budget({"kernel": WITHIN | {figure: value}})


def test_spills_the_compiler_reports_reach_the_gate(tmp_path):
    # Without optimisation the arrays of the kernel live in scratch memory.
    resources = compile_code_object(Compiler.find("ziglang"), tmp_path / "slow.hsaco", ("-O0",))
    with pytest.raises(BuildGateError, match="scratch"):
        check_budget(resources)
