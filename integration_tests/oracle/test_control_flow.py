# SPDX-License-Identifier: MIT
"""Branches, calls, EXEC masking and barriers, in short programs made by clang's assembler."""

import numpy as np
import pytest

from . import machine
from .machine import EXEC, LANES, VCC

NO_EFFECT = (
    "S_NOP",
    "S_SLEEP",
    "S_SLEEP_VAR",
    "S_CLAUSE",
    "S_DELAY_ALU",
    "S_WAIT_ALU",
    "S_WAIT_IDLE",
    "S_WAIT_EVENT",
    "S_WAKEUP",
    "S_SETPRIO",
    "S_SENDMSG",
    "S_INCPERFLEVEL",
    "S_DECPERFLEVEL",
    "S_TTRACEDATA",
    "S_TTRACEDATA_IMM",
    "S_ICACHE_INV",
    "S_WAIT_LOADCNT",
    "S_WAIT_STORECNT",
    "S_WAIT_SAMPLECNT",
    "S_WAIT_BVHCNT",
    "S_WAIT_EXPCNT",
    "S_WAIT_DSCNT",
    "S_WAIT_KMCNT",
    "S_WAIT_LOADCNT_DSCNT",
    "S_WAIT_STORECNT_DSCNT",
    "S_VERSION",
    "V_NOP",
    "V_PIPEFLUSH",
)


def run(text: str, directory, registers: np.ndarray | None = None) -> np.ndarray:
    before = machine.new_registers() if registers is None else registers
    return machine.execute(machine.assemble(text, directory), before)


def test_instructions_without_effect_change_nothing():
    # Waiting, priorities and messages to the outside have no meaning in a device that finishes every access at once.
    before = machine.new_registers(np.random.default_rng(0))
    for encoding, name in machine.implemented():
        if name in NO_EFFECT:
            fields = {"simm16": 3} if name == "S_SENDMSG" else {}  # DEALLOC_VGPRS, which compilers send at the end
            assert (machine.execute(machine.encode(encoding, name, **fields), before) == before).all(), name


def test_a_loop_runs_until_its_condition_fails(tmp_path):
    after = run(
        """
        s_mov_b32 s0, 0
        s_mov_b32 s1, 0
        loop:
        s_add_co_u32 s1, s1, s0
        s_add_co_u32 s0, s0, 1
        s_cmp_lt_u32 s0, 100
        s_cbranch_scc1 loop
        """,
        tmp_path,
    )
    assert (after["scalar"][0], after["scalar"][1]) == (100, 4950)


CONDITIONS = {  # branch: (what to set, the value that makes it branch, the value that does not)
    "s_cbranch_scc0": ("scc", 0, 1),
    "s_cbranch_scc1": ("scc", 1, 0),
    "s_cbranch_vccz": (VCC, 0, 0x10),
    "s_cbranch_vccnz": (VCC, 0x80000000, 0),
    "s_cbranch_execz": (EXEC, 0, 1),
    "s_cbranch_execnz": (EXEC, 4, 0),
}


@pytest.mark.parametrize("branch", CONDITIONS)
def test_conditional_branches_go_both_ways(branch, tmp_path):
    where, taken, not_taken = CONDITIONS[branch]
    code = machine.assemble(f"s_mov_b32 s0, 1\n{branch} skip\ns_mov_b32 s0, 2\nskip:\ns_nop 0", tmp_path)
    for value, expected in ((taken, 1), (not_taken, 2)):
        registers = machine.new_registers()
        if where == "scc":
            registers["scc"] = value
        else:
            registers["scalar"][where] = value
        assert machine.execute(code, registers)["scalar"][0] == expected


def test_vccz_looks_at_32_bits_in_wave32(tmp_path):
    registers = machine.new_registers()
    registers["scalar"][VCC], registers["scalar"][VCC + 1] = 0, 0xFFFFFFFF
    after = run("s_mov_b32 s0, 1\ns_cbranch_vccz skip\ns_mov_b32 s0, 2\nskip:\ns_nop 0", tmp_path, registers)
    assert after["scalar"][0] == 1


def test_unconditional_branch_skips_and_returns(tmp_path):
    after = run(
        """
        s_branch forward
        back:
        s_add_co_u32 s0, s0, 10
        s_branch done
        s_mov_b32 s0, 99
        forward:
        s_mov_b32 s0, 1
        s_branch back
        done:
        s_nop 0
        """,
        tmp_path,
    )
    assert after["scalar"][0] == 11


def test_divergent_if_else_runs_each_side_under_its_mask(tmp_path):
    registers = machine.new_registers()
    registers["vgpr"][0] = np.arange(LANES)
    after = run(
        """
        v_cmp_gt_u32_e32 vcc_lo, 10, v0
        s_and_saveexec_b32 s0, vcc_lo
        v_mov_b32_e32 v1, 7
        s_xor_b32 exec_lo, exec_lo, s0
        s_cbranch_execz end
        v_mov_b32_e32 v1, 9
        end:
        s_mov_b32 exec_lo, s0
        v_add_nc_u32_e32 v1, 1, v1
        """,
        tmp_path,
        registers,
    )
    assert (after["vgpr"][1] == np.where(np.arange(LANES) < 10, 8, 10)).all()
    assert after["scalar"][EXEC] == 0xFFFFFFFF


def test_a_divergent_loop_ends_when_its_last_lane_does(tmp_path):
    registers = machine.new_registers()
    registers["vgpr"][0] = np.arange(LANES)
    after = run(
        """
        s_mov_b32 s0, exec_lo
        v_mov_b32_e32 v1, 0
        loop:
        v_add_nc_u32_e32 v1, v1, v0
        v_sub_nc_u32_e32 v0, v0, 1
        v_cmpx_lt_i32_e32 0, v0
        s_cbranch_execnz loop
        s_mov_b32 exec_lo, s0
        """.replace("v_sub_nc_u32_e32 v0, v0, 1", "v_subrev_nc_u32_e32 v0, 1, v0"),
        tmp_path,
        registers,
    )
    lane = np.arange(LANES)
    assert (after["vgpr"][1] == lane * (lane + 1) // 2).all()


def test_calls_return_to_the_next_instruction(tmp_path):
    after = run(
        """
        s_mov_b32 s0, 0
        s_call_b64 s[2:3], function
        s_call_b64 s[2:3], function
        s_getpc_b64 s[4:5]
        here:
        s_add_co_u32 s4, s4, other-here
        s_add_co_ci_u32 s5, s5, 0
        s_swappc_b64 s[2:3], s[4:5]
        s_add_co_u32 s0, s0, 1000
        s_branch done
        function:
        s_add_co_u32 s0, s0, 1
        s_setpc_b64 s[2:3]
        other:
        s_add_co_u32 s0, s0, 100
        s_setpc_b64 s[2:3]
        done:
        s_nop 0
        """,
        tmp_path,
    )
    assert after["scalar"][0] == 1102


def test_endpgm_ends_the_program(tmp_path):
    assert run("s_mov_b32 s0, 1\ns_endpgm\ns_mov_b32 s0, 2", tmp_path)["scalar"][0] == 1


def test_a_wave_alone_passes_its_barrier(tmp_path):
    after = run(
        "s_barrier_signal -1\ns_barrier_wait -1\ns_barrier_signal_isfirst -1\ns_barrier_wait -1\ns_mov_b32 s0, 5",
        tmp_path,
    )
    assert after["scalar"][0] == 5
    assert after["scc"] == 1


@pytest.mark.parametrize("text", ["s_trap 2", "s_code_end", "s_branch -2147"])
def test_running_into_nowhere_stops(text, tmp_path):
    with pytest.raises(machine.Stopped):
        run(text, tmp_path)


def test_an_endless_loop_stops(tmp_path):
    with pytest.raises(machine.Stopped):
        run("loop:\ns_branch loop", tmp_path)


def test_an_unknown_word_stops_only_when_reached(tmp_path):
    unknown = b"\xff\xff\xff\xff"
    skip = machine.assemble("s_branch 1", tmp_path)
    machine.execute(skip + unknown, machine.new_registers())
    with pytest.raises(machine.Stopped, match="ffffffff"):
        machine.execute(unknown, machine.new_registers())


@pytest.mark.parametrize("base", [3, 20])
def test_relative_moves(base):
    before = machine.new_registers(np.random.default_rng(2))
    before["scalar"][machine.M0] = base
    v, s, lanes = before["vgpr"], before["scalar"], (int(before["scalar"][EXEC]) >> np.arange(LANES) & 1).astype(bool)
    cases = [
        ("VOP1", "V_MOVRELS_B32", {"vdst": 1, "src0": 256 + 40}, 1, 40 + base),
        ("VOP1", "V_MOVRELD_B32", {"vdst": 1, "src0": 256 + 40}, 1 + base, 40),
        ("VOP1", "V_MOVRELSD_B32", {"vdst": 1, "src0": 256 + 40}, 1 + base, 40 + base),
    ]
    for encoding, name, fields, destination, source in cases:
        expected = before.copy()
        expected["vgpr"][destination] = np.where(lanes, v[source], v[destination])
        for form in (encoding, "VOP3"):
            assert (machine.execute(machine.encode(form, name, **fields), before) == expected).all(), name
    before["scalar"][machine.M0] = base | (base + 1) << 16  # MOVRELSD_2: source and destination offsets in M0's halves
    expected = before.copy()
    expected["vgpr"][1 + base + 1] = np.where(lanes, v[40 + base], v[1 + base + 1])
    for form in ("VOP1", "VOP3"):
        code = machine.encode(form, "V_MOVRELSD_2_B32", vdst=1, src0=256 + 40)
        assert (machine.execute(code, before) == expected).all()
    before["scalar"][machine.M0] = 2 * base
    for name, destination, source, words in (
        ("S_MOVRELS_B32", 10, 20 + 2 * base, 1),
        ("S_MOVRELD_B32", 10 + 2 * base, 20, 1),
        ("S_MOVRELS_B64", 10, 20 + 2 * base, 2),
        ("S_MOVRELD_B64", 10 + 2 * base, 20, 2),
    ):
        expected = before.copy()
        expected["scalar"][destination : destination + words] = s[source : source + words]
        assert (machine.execute(machine.encode("SOP1", name, sdst=10, ssrc0=20), before) == expected).all(), name
