# SPDX-License-Identifier: MIT
"""The build: reproducible, within its budget, and refusing when not."""

import hashlib
import json
import threading

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


def test_empty_kernels_fail_the_build(tmp_path, monkeypatch):
    # What the header makes for any other architecture.
    flags = [flag.replace("gfx1201", "gfx1100") for flag in build_code_object.COMPILE_FLAGS]
    monkeypatch.setattr(build_code_object, "COMPILE_FLAGS", flags)
    monkeypatch.setattr(build_code_object, "ARCHITECTURE", "gfx1100")
    with pytest.raises(BuildGateError, match="no kernel has a matrix instruction: was it compiled for gfx1100?"):
        build_code_object.build_code_object(tmp_path)


def test_kept_assembly_is_what_the_code_object_was_made_of(tmp_path):
    plain = build_code_object.build_code_object(tmp_path / "plain")
    kept = build_code_object.build_code_object(tmp_path / "kept", keep_assembly=tmp_path / "kernels.s")
    assert plain.read_bytes() == kept.read_bytes()
    resources = json.loads((tmp_path / "kept/manifest.json").read_text())["kernels"]
    assert build_code_object.read_resources((tmp_path / "kernels.s").read_text()) == resources


def test_a_cached_build_has_the_bytes_of_a_new_one_and_compiles_nothing(tmp_path, monkeypatch):
    new = build_code_object.build_code_object(tmp_path / "new")
    build_code_object.build_code_object(tmp_path / "first", cache=tmp_path / "cache")
    monkeypatch.setattr(build_code_object, "compile_code_object", None)
    cached = build_code_object.build_code_object(tmp_path / "second", cache=tmp_path / "cache")
    assert cached.read_bytes() == new.read_bytes()
    assert (tmp_path / "second/manifest.json").read_bytes() == (tmp_path / "new/manifest.json").read_bytes()


# Folders that several processes build at once


def write(folder, content: str) -> None:
    with build_code_object.staged(folder) as staging:
        (staging / "a").write_text(content)
        (staging / "b").write_text(content)


def test_a_folder_with_the_same_files_stays_the_one_that_readers_have_open(tmp_path):
    write(tmp_path / "built", "one")
    (tmp_path / "built" / "__pycache__").mkdir()
    (tmp_path / "built" / "__pycache__" / "a.pyc").write_text("made by an import")
    before = (tmp_path / "built").stat().st_ino
    write(tmp_path / "built", "one")
    assert (tmp_path / "built").stat().st_ino == before
    write(tmp_path / "built", "two")
    assert (tmp_path / "built" / "b").read_text() == "two" and list(tmp_path.iterdir()) == [tmp_path / "built"]


def test_a_failed_build_leaves_what_was_there(tmp_path):
    write(tmp_path / "built", "one")
    with pytest.raises(KeyboardInterrupt), build_code_object.staged(tmp_path / "built") as staging:
        (staging / "a").write_text("half")
        raise KeyboardInterrupt
    assert (tmp_path / "built" / "a").read_text() == "one" and list(tmp_path.iterdir()) == [tmp_path / "built"]


def test_builders_of_the_same_content_disturb_neither_each_other_nor_a_reader(tmp_path):
    write(tmp_path / "built", "one")
    failures = []

    def build_and_read():
        try:
            for _ in range(50):
                write(tmp_path / "built", "one")
                assert (tmp_path / "built" / "a").read_text() == (tmp_path / "built" / "b").read_text() == "one"
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=build_and_read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_two_builders_of_a_folder_that_is_not_there_yet_both_end_well(tmp_path):
    with build_code_object.staged(tmp_path / "built") as slower:
        (slower / "a").write_text("one")
        (slower / "b").write_text("one")
        write(tmp_path / "built", "one")
    assert (tmp_path / "built" / "b").read_text() == "one" and list(tmp_path.iterdir()) == [tmp_path / "built"]
