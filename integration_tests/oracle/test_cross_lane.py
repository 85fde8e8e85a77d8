# SPDX-License-Identifier: MIT
"""Data that moves between lanes: DPP, permlane, swizzles and the LDS permutes, each stated here on its own."""

import numpy as np
import pytest

from . import machine
from .machine import EXEC, LANES

V = machine.VGPR0
LANE = np.arange(LANES)
ROW, IN_ROW = LANE // 16, LANE % 16


def dpp_controls() -> dict[str, tuple[int, np.ndarray]]:
    """Every DPP16 control of wave32: its code, and the lane each lane reads (-1: outside the row)."""
    controls = {}
    for perm in ((0, 1, 2, 3), (3, 2, 1, 0), (1, 1, 3, 0), (2, 0, 2, 1)):
        code = sum(p << 2 * i for i, p in enumerate(perm))
        controls[f"quad_perm {perm}"] = code, LANE // 4 * 4 + np.array(perm)[LANE % 4]
    for n in range(1, 16):
        controls[f"row_shl {n}"] = 0x100 + n, np.where(IN_ROW + n < 16, LANE + n, -1)
        controls[f"row_shr {n}"] = 0x110 + n, np.where(IN_ROW - n >= 0, LANE - n, -1)
        controls[f"row_ror {n}"] = 0x120 + n, ROW * 16 + (IN_ROW - n) % 16
    controls["row_mirror"] = 0x140, ROW * 16 + 15 - IN_ROW
    controls["row_half_mirror"] = 0x141, LANE // 8 * 8 + 7 - LANE % 8
    for n in range(16):
        controls[f"row_share {n}"] = 0x150 + n, ROW * 16 + n
        controls[f"row_xmask {n}"] = 0x160 + n, ROW * 16 + (IN_ROW ^ n)
    return controls


CONTROLS = dpp_controls()


def exec_lanes(mask: int) -> np.ndarray:
    return (mask >> LANE & 1).astype(bool)


def dpp_source(lanes: np.ndarray, source: np.ndarray, on: np.ndarray, bound_ctrl: int, fetch_inactive: int):
    """(value each lane reads, lanes that take part): an invalid read gives 0, or takes the lane out."""
    valid = (lanes >= 0) & (on[lanes] | bool(fetch_inactive))
    return np.where(valid, source[lanes], 0).astype(np.uint32), on & (valid | bool(bound_ctrl))


def start(seed: int, mask: int) -> np.ndarray:
    registers = machine.new_registers(np.random.default_rng(seed))
    registers["scalar"][EXEC] = mask
    return registers


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x5A3C7EF1, 0x00010000])
@pytest.mark.parametrize("bound_ctrl", [0, 1])
@pytest.mark.parametrize("fetch_inactive", [0, 1])
def test_dpp16_moves_every_control(mask, bound_ctrl, fetch_inactive):
    on = exec_lanes(mask)
    for name, (code, lanes) in CONTROLS.items():
        before = start(1, mask)
        fields = {"dpp": code, "row_mask": 15, "bank_mask": 15, "bc": bound_ctrl, "fi": fetch_inactive}
        after = machine.execute(
            machine.encode("VOP1", "V_MOV_B32", "DPP16", vdst=1, src0=250, vsrc0=2, **fields), before
        )
        value, written = dpp_source(lanes, before["vgpr"][2], on, bound_ctrl, fetch_inactive)
        expected = before.copy()
        expected["vgpr"][1] = np.where(written, value, before["vgpr"][1])
        assert (after == expected).all(), name


@pytest.mark.parametrize("row_mask, bank_mask", [(1, 15), (2, 15), (15, 1), (15, 10), (2, 5), (0, 15)])
def test_dpp16_masks_keep_rows_and_banks(row_mask, bank_mask):
    before = start(2, 0xFFFF7FFF)
    on = exec_lanes(0xFFFF7FFF)
    code, lanes = CONTROLS["row_ror 3"]
    masks = {"row_mask": row_mask, "bank_mask": bank_mask}
    after = machine.execute(
        machine.encode("VOP1", "V_MOV_B32", "DPP16", vdst=1, src0=250, vsrc0=2, dpp=code, **masks), before
    )
    value, written = dpp_source(lanes, before["vgpr"][2], on, 0, 0)
    written &= (row_mask >> ROW & 1).astype(bool) & (bank_mask >> IN_ROW // 4 & 1).astype(bool)
    assert (after["vgpr"][1] == np.where(written, value, before["vgpr"][1])).all()


@pytest.mark.parametrize("name", ["row_shr 1", "row_xmask 8", "row_mirror"])
def test_dpp16_in_place_reads_the_old_register(name):
    # Reductions read and write one register; every lane must see the values from before.
    code, lanes = CONTROLS[name]
    before = start(3, 0xFFFFFFFF)
    fields = {"dpp": code, "row_mask": 15, "bank_mask": 15, "bc": 1}
    after = machine.execute(
        machine.encode("VOP2", "V_ADD_NC_U32", "DPP16", vdst=2, src0=250, vsrc0=2, vsrc1=2, **fields), before
    )
    old = before["vgpr"][2]
    value, _ = dpp_source(lanes, old, exec_lanes(0xFFFFFFFF), 1, 0)
    assert (after["vgpr"][2] == value + old).all()


def test_dpp16_modifiers_apply_to_the_moved_value():
    before = start(4, 0xFFFFFFFF)
    rng = np.random.default_rng(4)
    before["vgpr"][2] = rng.normal(size=LANES).astype(np.float32).view(np.uint32)
    before["vgpr"][3] = rng.normal(size=LANES).astype(np.float32).view(np.uint32)
    code, lanes = CONTROLS["row_ror 5"]
    fields = {"dpp": code, "row_mask": 15, "bank_mask": 15, "src0_neg": 1, "src0_abs": 1, "src1_neg": 1}
    after = machine.execute(
        machine.encode("VOP2", "V_ADD_F32", "DPP16", vdst=1, src0=250, vsrc0=2, vsrc1=3, **fields), before
    )
    x, y = (before["vgpr"][r].view(np.float32) for r in (2, 3))
    assert (after["vgpr"][1].view(np.float32) == -np.abs(x[lanes]) - y).all()


def test_dpp16_in_the_long_encoding():
    before = start(5, 0xFFFFFFFF)
    code, lanes = CONTROLS["row_share 6"]
    fields = {"dpp": code, "row_mask": 15, "bank_mask": 15}
    long = machine.encode("VOP3", "V_ADD3_U32", "DPP16", vdst=1, src0=250, src1=V + 3, src2=V + 4, vsrc0=2, **fields)
    after = machine.execute(long, before)
    v = before["vgpr"]
    assert (after["vgpr"][1] == v[2][lanes] + v[3] + v[4]).all()


def test_dpp16_compare_leaves_invalid_lanes_false():
    before = start(6, 0x0000FFFF)
    code, lanes = CONTROLS["row_shr 2"]
    fields = {"dpp": code, "row_mask": 15, "bank_mask": 15, "bc": 1}
    after = machine.execute(
        machine.encode("VOPC", "V_CMP_EQ_U32", "DPP16", src0=250, vsrc0=2, vsrc1=3, **fields), before
    )
    value, _ = dpp_source(lanes, before["vgpr"][2], exec_lanes(0xFFFF), 1, 0)
    bits = (value == before["vgpr"][3]) & exec_lanes(0xFFFF)
    assert int(after["scalar"][machine.VCC]) == int((bits << LANE).sum())


@pytest.mark.parametrize("fetch_inactive", [0, 1])
@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0xA5F01234])
def test_dpp8_permutes_within_eight_lanes(mask, fetch_inactive):
    rng = np.random.default_rng(7)
    for _ in range(20):
        selection = rng.integers(0, 8, 8)
        before = start(int(rng.integers(1000)), mask)
        fields = {f"lane_sel_{i}": int(s) for i, s in enumerate(selection)}
        marker = machine.DPP8_FI if fetch_inactive else machine.DPP8
        after = machine.execute(
            machine.encode("VOP1", "V_MOV_B32", "DPP8", vdst=1, src0=marker, vsrc0=2, **fields), before
        )
        lanes, on = LANE // 8 * 8 + selection[LANE % 8], exec_lanes(mask)
        value, _ = dpp_source(lanes, before["vgpr"][2], on, 1, fetch_inactive)
        assert (after["vgpr"][1] == np.where(on, value, before["vgpr"][1])).all()


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x3CF0A50F])
@pytest.mark.parametrize("opsel", range(4))  # bit 0: fetch inactive lanes; bit 1: invalid reads give 0
@pytest.mark.parametrize("across", [False, True])
def test_permlane16_selects_by_nibbles(across, opsel, mask):
    before = start(8, mask)
    name = "V_PERMLANEX16_B32" if across else "V_PERMLANE16_B32"
    after = machine.execute(machine.encode("VOP3", name, vdst=1, src0=V + 2, src1=4, src2=5, opsel=opsel), before)
    select = int(before["scalar"][4]) | int(before["scalar"][5]) << 32
    lanes = (ROW ^ across) * 16 + np.array([select >> 4 * int(i) & 15 for i in IN_ROW])
    value, written = dpp_source(lanes, before["vgpr"][2], exec_lanes(mask), opsel >> 1, opsel & 1)
    expected = before.copy()
    expected["vgpr"][1] = np.where(written, value, before["vgpr"][1])
    assert (after == expected).all()


@pytest.mark.parametrize("across", [False, True])
def test_permlane16_var_selects_by_register(across):
    before = start(9, 0xFFFFFFFF)
    name = "V_PERMLANEX16_VAR_B32" if across else "V_PERMLANE16_VAR_B32"
    after = machine.execute(machine.encode("VOP3", name, vdst=2, src0=V + 2, src1=V + 3), before)
    lanes = (ROW ^ across) * 16 + (before["vgpr"][3] & 15)
    assert (after["vgpr"][2] == before["vgpr"][2][lanes]).all()


def test_permlanex16_exchanges_the_halves_of_the_wave():
    # The kernel's row reductions: identity selection across rows is lane ^ 16.
    before = start(10, 0xFFFFFFFF)
    before["scalar"][4], before["scalar"][5] = 0x76543210, 0xFEDCBA98
    after = machine.execute(machine.encode("VOP3", "V_PERMLANEX16_B32", vdst=1, src0=V + 2, src1=4, src2=5), before)
    assert (after["vgpr"][1] == before["vgpr"][2][LANE ^ 16]).all()


def swizzle_lanes(offset: int) -> np.ndarray:
    if offset & 0x8000 == 0:  # bit mask mode: and, or, xor within 32 lanes
        return (LANE & offset & 31 | offset >> 5 & 31) ^ offset >> 10 & 31
    if offset & 0xE000 == 0xC000:  # rotation among the lanes whose masked bits are equal
        amount, keep = offset >> 5 & 31, offset & 31
        turned = LANE - amount if offset >> 10 & 1 else LANE + amount
        return LANE & keep | turned & ~keep & 31
    return LANE // 4 * 4 + (offset >> 2 * (LANE % 4) & 3)  # quad permutation


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x0F3355AA])
@pytest.mark.parametrize(
    "offset", [0x001F, 0x041F, 0x401F, 0x7C1F, 0x0010, 0x03E0, 0x1234, 0x801B, 0x80E4, 0x80B1, 0xC020, 0xC443, 0xC118]
)
def test_ds_swizzle(offset, mask):
    before = start(11, mask)
    code = machine.encode("DS", "DS_SWIZZLE_B32", vdst=1, addr=2, offset0=offset & 255, offset1=offset >> 8)
    after = machine.execute(code, before)
    on = exec_lanes(mask)
    value, _ = dpp_source(swizzle_lanes(offset), before["vgpr"][2], on, 1, 0)
    assert (after["vgpr"][1] == np.where(on, value, before["vgpr"][1])).all()


@pytest.mark.parametrize("mask", [0xFFFFFFFF, 0x3F0F1248])
@pytest.mark.parametrize("offset", [0, 12])
def test_ds_permutes(mask, offset):
    on = exec_lanes(mask)
    before = start(12, mask)
    lanes = (before["vgpr"][2].astype(np.int64) + offset) // 4 % LANES
    data, old = before["vgpr"][3], before["vgpr"][1]
    for name in ("DS_BPERMUTE_B32", "DS_BPERMUTE_FI_B32", "DS_PERMUTE_B32"):
        after = machine.execute(machine.encode("DS", name, vdst=1, addr=2, data0=3, offset0=offset), before)
        if name == "DS_PERMUTE_B32":
            value = np.zeros(LANES, np.uint32)
            for lane in LANE[on]:  # the highest lane wins
                value[lanes[lane]] = data[lane]
        else:
            value = np.where(on[lanes] | (name == "DS_BPERMUTE_FI_B32"), data[lanes], 0)
        assert (after["vgpr"][1] == np.where(on, value, old)).all(), name


def test_readfirstlane_takes_the_lowest_active_lane():
    for mask, lane in ((0xFFFFFFFF, 0), (0x00100400, 10), (0x80000000, 31), (0, 0)):
        before = start(13, mask)
        after = machine.execute(machine.encode("VOP1", "V_READFIRSTLANE_B32", vdst=7, src0=V + 2), before)
        assert after["scalar"][7] == before["vgpr"][2][lane]


def test_readlane_and_writelane_ignore_exec():
    before = start(14, 0x00000001)
    before["scalar"][4] = 32 + 21  # only the low five bits count
    after = machine.execute(machine.encode("VOP3", "V_READLANE_B32", vdst=7, src0=V + 2, src1=4), before)
    assert after["scalar"][7] == before["vgpr"][2][21]
    after = machine.execute(machine.encode("VOP3", "V_WRITELANE_B32", vdst=2, src0=5, src1=4), before)
    expected = before["vgpr"].copy()
    expected[2][21] = before["scalar"][5]
    assert (after["vgpr"] == expected).all()
