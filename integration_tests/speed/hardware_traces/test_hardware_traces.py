# SPDX-License-Identifier: MIT
"""Thread traces of a made-up kernel: packets are read as they were written, and a replay is compared with them."""

import struct

import pytest

from hub_kernel.build_code_object import Compiler, compile_code_object
from integration_tests.speed.hardware_traces.packets import KINDS, LAYOUT, decode
from integration_tests.speed.hardware_traces.recordings import Issued, Recording, machine_code, waves_of
from integration_tests.speed.hardware_traces.replay import Agreement, Compared, agreement, begins_after, compare, read

BY_NAME = {kind.name: kind for kind in KINDS}
VALU = 2  # of alu_executed's source


def stream(*packets: tuple) -> bytes:
    """The bytes of (kind, cycles since the packet before, {first bit: value}), as hardware would write them."""
    bits = position = 0
    for name, cycles, fields in [("header", 0, {7: LAYOUT}), *packets]:
        kind = BY_NAME[name]
        word = int(kind.code, 2) | cycles << kind.delta
        for first, value in fields.items():
            word |= value << first
        bits |= word << 4 * position
        position += kind.nibbles
    return bits.to_bytes((position + 1) // 2, "little")


def issue(cycles: int, wave: int, operation: int | None = None) -> tuple:
    if operation is None:
        return ("vector", cycles, {7: wave})
    return ("instruction", cycles, {7: wave, 12: operation})


def test_packets_are_read_as_they_were_written():
    packets = list(
        decode(stream(issue(3, 5), ("time_short", 9, {}), issue(2, 1, 0x8C), ("alu_executed", 1, {6: VALU})))
    )
    assert [(p.kind, p.time) for p in packets[1:5]] == [
        ("vector", 3),
        ("time_short", 16),
        ("instruction", 18),
        ("alu_executed", 19),
    ]
    assert packets[1].wave == 5 and packets[3].wave == 1 and packets[3].operation == "matrix 8"


def test_another_layout_is_refused():
    other = stream()
    with pytest.raises(ValueError, match="layout 3, not 4"):
        list(decode((int.from_bytes(other, "little") ^ (LAYOUT ^ 3) << 7).to_bytes(len(other), "little")))


def test_instructions_are_found_along_a_branch():
    listing = [(0, "v_mov_b32 v1, 0"), (4, "s_delay_alu 1"), (8, "v_add_f32 v1, v1, v1"), (12, "s_cbranch_scc0 -0xc")]
    words = stream(
        ("wave_start", 1, {15: 2}),
        issue(1, 2),
        issue(5, 2),
        issue(1, 2, 0x03),
        ("alu_executed", 1, {6: VALU}),
        issue(3, 2),
        ("alu_executed", 2, {6: VALU}),
        ("alu_executed", 3, {6: VALU}),
    )
    found = waves_of(Recording("made up", bytes(16), words), listing)
    assert found == [
        Issued(2, "vector", 0, 2, 9),
        Issued(2, "vector", 8, 7, 14),
        Issued(2, "branch taken", 12, 8, None),
        Issued(2, "vector", 0, 12, 17),
    ]


def test_distances_agree_or_differ_by_what_they_differ_by():
    hardware = [Issued(0, "vector", 0, 0, 8), Issued(0, "vector", 4, 1, 13), Issued(0, "vector", 8, 900, 908)]
    modelled = [Issued(0, "vector", 0, 0, 8), Issued(0, "vector", 4, 1, 12), Issued(0, "vector", 8, 2, 13)]
    compared = Compared("made up", hardware, modelled)
    found = agreement(compared)
    assert found == Agreement("made up", [(5, 4)], left_out=1)
    assert found.share_within(0) == 0 and found.share_within(1) == 1 and found.cycles == (5, 4)
    modelled[1] = Issued(0, "vector", 12, 1, 12)
    with pytest.raises(ValueError, match="other instructions"):
        agreement(compared)


def test_the_next_instruction_begins_after_what_it_takes_itself():
    issued = [Issued(0, "vector", 0, 0, 8), Issued(1, "matrix 8", 4, 1, 17), Issued(1, "vector", 8, 2, 18)]
    assert begins_after(issued) == {
        ("vector", "matrix 8", "other wave", 2): 1,
        ("matrix 8", "vector", "same wave", 1): 1,
    }


def test_a_kernel_is_replayed_word_for_word(virtual_gpu, tmp_path):
    source, image = tmp_path / "kernel.hip", tmp_path / "kernel.hsaco"
    text = "v_add_f32 v1, v2, v3\\nv_add_f32 v1, v1, v3\\ns_endpgm\\n"
    source.write_text(f'extern "C" __attribute__((global)) void kernel() {{ asm volatile("{text}"); }}')
    compile_code_object(Compiler.find("ziglang"), image, (), source)
    code = machine_code(image.read_bytes())[:12]
    assert struct.unpack("<3I", code)[2] == 0xBFB00000  # s_endpgm
    # The model's own times as hardware's: the replay agrees with them everywhere.
    words = stream(
        ("wave_start", 0, {15: 0}),
        issue(1, 0),
        issue(1, 0),
        ("time_short", 3, {}),
        ("alu_executed", 0, {6: VALU}),
        ("alu_executed", 3, {6: VALU}),
        ("time_short", 0, {}),
    )
    recording = Recording("two additions", code, words)
    _, hardware = read(virtual_gpu, recording)
    compared = compare(virtual_gpu, recording, hardware)
    (first, second) = [(i.issued, i.executed) for i in compared.modelled if i.wave == 0]
    assert second[0] - first[0] == 1, "nothing holds the second one back at issue"
    assert second[1] - first[1] == 5, "it waits for its operand in the pipe"
