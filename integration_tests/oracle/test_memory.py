# SPDX-License-Identifier: MIT
"""Loads, stores and atomics. What moves is AMD's pseudo-code; where it moves, every addressing mode, is stated here."""

import re
import zlib

import numpy as np
import pytest

from . import amd_pseudo_code, machine, operands
from . import number_formats as nf
from .machine import EXEC, LANES, NULL
from .pseudo_code import parse
from .pseudo_code_values import Environment, Value, unsigned
from .test_cross_lane import exec_lanes

V = machine.VGPR0
ADDRESS, DATA, DATA2, RESULT = 10, 20, 30, 40  # first VGPRs of the operands
BYTES = 4096
ENCODINGS = ("DS", "VGLOBAL", "VFLAT", "VBUFFER")
TESTED_ELSEWHERE = {
    "test_cross_lane": ("DS_SWIZZLE_B32", "DS_PERMUTE_B32", "DS_BPERMUTE_B32", "DS_BPERMUTE_FI_B32"),
    "test_transposed_loads": ("GLOBAL_LOAD_TR_B64",),
    "test_append_and_consume": ("DS_APPEND", "DS_CONSUME"),
    "test_addtid": ("DS_STORE_ADDTID_B32", "DS_LOAD_ADDTID_B32", "GLOBAL_LOAD_ADDTID_B32", "GLOBAL_STORE_ADDTID_B32"),
    "test_cache_control_changes_nothing": ("GLOBAL_WB", "GLOBAL_INV", "GLOBAL_WBINV", "DS_NOP"),
}


class Bytes:
    """``MEM[address]`` of the text: sixteen bytes from there, of which the text takes what it names."""

    def __init__(self, contents: np.ndarray, base: int = 0):
        self.contents, self.base = contents, base

    def __getitem__(self, address: int) -> Value:
        return Value(int.from_bytes(self.contents[address - self.base :][:16].tobytes(), "little"), 128, "u")

    def __setitem__(self, address: int, value: Value) -> None:
        target = self.contents[address - self.base :][:16]
        target[:] = np.frombuffer(value.raw.to_bytes(16, "little"), np.uint8)[: len(target)]


def words(registers: np.ndarray, first: int, count: int, lane: int) -> int:
    return sum(int(registers["vgpr"][first + i, lane]) << 32 * i for i in range(count))


def run_text(text: str, memory: Bytes, address: int, registers: np.ndarray, lane: int, **extra: Value) -> None:
    """One lane's access; the result registers of ``registers`` and the memory are updated."""
    # In the text, loads return VDATA or RETURN_DATA and stores take VDATA or DATA.
    stores_vdata = re.search(r"=\s*\(?VDATA", text)
    loads_vdata = not stores_vdata
    names = {
        "DATA": Value(words(registers, DATA, 4, lane), 128, "u"),
        "DATA2": Value(words(registers, DATA2, 4, lane), 128, "u"),
        "RETURN_DATA": Value(words(registers, RESULT, 4, lane), 128, "u"),
        "VDATA": Value(words(registers, RESULT if loads_vdata else DATA, 4, lane), 128, "u"),
        "ADDR": unsigned(address, 64),
    } | extra
    env = Environment(names, {"MEM": memory})
    env.names["CalcDsAddr"] = lambda env, base, offset: unsigned(base.raw + offset.raw, 32)
    for name in ("CalcGlobalAddr", "CalcFlatAddr", "CalcBufferAddr", "CalcScratchAddr"):
        env.names[name] = lambda env, vector, scalar: unsigned(address, 64)
    for name in ("v_addr", "s_saddr", "flat_scratch", "vgpr_a", "sgpr_o", "offset", "v_addr_off", "s_saddr_off"):
        env.names.setdefault(name, unsigned(0, 64))
    parse(text)(env)
    result = env.names["RETURN_DATA"].raw if "RETURN_DATA" in text else env.names["VDATA"].raw
    if "RETURN_DATA" in text or loads_vdata:
        for i in range(4):
            registers["vgpr"][RESULT + i, lane] = result >> 32 * i & 0xFFFFFFFF


def names(encoding: str) -> list[str]:
    skip = {name for group in TESTED_ELSEWHERE.values() for name in group}
    return [n for e, n in machine.implemented() if e == encoding and n not in skip]


def new_state(seed: int, lds_bytes: int = 0) -> tuple[np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    registers = machine.new_registers(rng, lds_bytes=lds_bytes)
    for first in (DATA, DATA2):
        for lane in range(LANES):
            for i in range(4):
                number = ("U32", "F32", "PK2_F16")[rng.integers(3)]
                registers["vgpr"][first + i, lane] = operands.random_bits(rng, number, 32)
    return registers, rng


def same_memory(actual: np.ndarray, expected: np.ndarray, name: str) -> bool:
    """Bytes are equal, or both are NaN where the instruction stores floats."""
    if (actual == expected).all():
        return True
    match = re.search(r"_(B?F\d+)$", name)
    if not match:
        return False
    fmt = nf.FORMATS[match.group(1).lower()]
    unsigned_type = np.dtype(f"<u{fmt.width // 8}")
    pairs = zip(actual.view(unsigned_type).tolist(), expected.view(unsigned_type).tolist(), strict=True)
    return all(a == b or (nf.is_nan(a, fmt) and nf.is_nan(b, fmt)) for a, b in pairs)


# --- LDS ------------------------------------------------------------------------------------------------------------


def ds_code(name: str, offset: int) -> bytes:
    places = {"vdst": RESULT, "addr": ADDRESS, "data0": DATA, "data1": DATA2}
    return machine.encode("DS", name, **places, offset0=offset & 255, offset1=offset >> 8)


@pytest.mark.parametrize("seed", range(3))
def test_lds_instructions_agree_with_amd(seed):
    tested = names("DS")
    assert len(tested) > 20
    failed = []
    for name in tested:
        text = amd_pseudo_code.text_of("DS", name)
        before, rng = new_state(zlib.crc32(name.encode()) + seed, lds_bytes=65536)
        # Lanes use disjoint slots of 32 bytes; a shuffled order shows that the address register is used.
        offset = (
            int(rng.integers(0, 64)) * 16
            if "2ADDR" not in name
            else int(rng.integers(0, 3)) << 8 | int(rng.integers(0, 3))
        )
        slot = 1600 if "2ADDR" in name else 32
        before["vgpr"][ADDRESS] = rng.permutation(LANES) * slot
        expected = before.copy()
        memory = Bytes(expected["lds"])
        for lane in np.flatnonzero(exec_lanes(int(before["scalar"][EXEC]))):
            address = int(before["vgpr"][ADDRESS, lane])
            extra = {
                "vgpr_a": unsigned(address),
                "ADDR_BASE": unsigned(address),
                "offset": unsigned(offset, 16),
                "OFFSET": unsigned(offset, 16),
                "OFFSET0": unsigned(offset & 255, 8),
                "OFFSET1": unsigned(offset >> 8, 8),
            }
            run_text(text, memory, address + offset, expected, int(lane), **extra)
        failed += compare("DS", name, ds_code(name, offset), before, expected)
    assert not failed, "\n".join(failed)


def compare(
    encoding: str, name: str, code: bytes, before: np.ndarray, expected: np.ndarray, global_pair=None
) -> list[str]:
    """Runs ``code`` and reports where registers, LDS or a global (actual, expected) pair differ."""
    try:
        after = machine.execute(code, before)
    except machine.Stopped as stopped:
        return [f"{encoding} {name}: stopped: {stopped}"]
    returns = "RTN" in name or "LOAD" in name or "ATOMIC" in name
    result = slice(RESULT, RESULT + 4)
    if not returns:
        expected["vgpr"][result] = before["vgpr"][result]
    width = result_words(name)
    expected["vgpr"][RESULT + width : RESULT + 4] = before["vgpr"][RESULT + width : RESULT + 4]
    different = np.argwhere(after["vgpr"] != expected["vgpr"])
    if len(different):
        register, lane = different[0]
        got, want = (int(x["vgpr"][register, lane]) for x in (after, expected))
        return [f"{encoding} {name}: v{register} lane {lane} is {got:#x}, expected {want:#x}"]
    if not same_memory(after["lds"], expected["lds"], name):
        at = int(np.flatnonzero(after["lds"] != expected["lds"])[0])
        return [f"{encoding} {name}: LDS byte {at} is {after['lds'][at]:#x}, expected {expected['lds'][at]:#x}"]
    if global_pair is not None and not same_memory(*global_pair, name):
        at = int(np.flatnonzero(global_pair[0] != global_pair[1])[0])
        return [f"{encoding} {name}: memory byte {at} is {global_pair[0][at]:#x}, expected {global_pair[1][at]:#x}"]
    if not (after["scalar"] == before["scalar"]).all():
        return [f"{encoding} {name}: a scalar register changed"]
    return []


def result_words(name: str) -> int:
    """How many result registers an instruction writes, from the width in its name."""
    bits = int(re.search(r"_[BUIF](\d+)(?!.*_[BUIF]\d)", name).group(1)) if re.search(r"_[BUIF]\d+", name) else 32
    count = 2 if "2ADDR" in name else 1
    return max(1, bits // 32) * count


def test_lds_accesses_beyond_the_allocation_stop():
    registers = machine.new_registers(lds_bytes=256)
    registers["vgpr"][ADDRESS] = np.arange(LANES) * 8
    machine.execute(ds_code("DS_LOAD_B64", 0), registers)
    for name, offset in (("DS_LOAD_B64", 1), ("DS_STORE_B32", 5), ("DS_LOAD_B128", 0)):
        with pytest.raises(machine.Stopped, match="(?i)lds"):
            machine.execute(ds_code(name, offset), registers)


def test_lds_atomics_of_one_address_add_up():
    registers = machine.new_registers(lds_bytes=64)
    registers["vgpr"][ADDRESS], registers["vgpr"][DATA] = 8, np.arange(LANES)
    after = machine.execute(ds_code("DS_ADD_RTN_U32", 0), registers)
    assert after["lds"].view(np.uint32)[2] == 496
    # Each lane saw a different intermediate sum; in some order they are prefix sums of the operands.
    assert sorted((after["vgpr"][RESULT] + np.arange(LANES)).tolist())[-1] == 496


# --- global memory --------------------------------------------------------------------------------------------------

MEMORY_INSTRUCTIONS = ("VGLOBAL", "VFLAT", "VBUFFER")


def cases(encoding: str) -> list[tuple[str, bool]]:
    """(name, whether an atomic returns the old value)."""
    return [(n, r) for n in names(encoding) for r in ((False, True) if "ATOMIC" in n else (False,))]


def run_global(encoding: str, name: str, returns: bool, place, seed: int) -> list[str]:
    """``place(registers, rng, base)`` sets the address registers and gives (lane addresses, encoding fields)."""
    before, rng = new_state(zlib.crc32(f"{encoding} {name}".encode()) + seed)
    contents = np.frombuffer(rng.bytes(BYTES), np.uint8)
    with machine.Memory(contents) as actual:
        addresses, fields = place(before, rng, actual.address)
        expected, memory = before.copy(), contents.copy()
        for lane in np.flatnonzero(exec_lanes(int(before["scalar"][EXEC]))):
            text = amd_pseudo_code.text_of(encoding, name)
            run_text(text, Bytes(memory, actual.address), int(addresses[lane]), expected, int(lane))
        if "ATOMIC" in name:
            fields["th"] = int(returns)
            if not returns:
                expected["vgpr"][RESULT : RESULT + 4] = before["vgpr"][RESULT : RESULT + 4]
        code = machine.encode(encoding, name, **fields)
        if encoding == "VBUFFER" and ("LOAD" in name or "ATOMIC" in name):
            return compare_buffer(name, code, before, expected, (actual.bytes, memory))
        return compare(encoding, name, code, before, expected, (actual.bytes, memory))


def compare_buffer(name: str, code: bytes, before: np.ndarray, expected: np.ndarray, pair) -> list[str]:
    """Buffer instructions have one data operand: the old value overwrites what an atomic was given."""
    width = result_words(name)
    source = DATA if "ATOMIC" in name else RESULT
    try:
        after = machine.execute(code, before)
    except machine.Stopped as stopped:
        return [f"VBUFFER {name}: stopped: {stopped}"]
    wanted = before["vgpr"].copy()
    changed = not (expected["vgpr"][RESULT : RESULT + 4] == before["vgpr"][RESULT : RESULT + 4]).all()
    if changed:
        wanted[source : source + width] = np.where(
            exec_lanes(int(before["scalar"][EXEC])),
            expected["vgpr"][RESULT : RESULT + width],
            before["vgpr"][source : source + width],
        )
    if not (after["vgpr"] == wanted).all():
        register, lane = np.argwhere(after["vgpr"] != wanted)[0]
        got, want = int(after["vgpr"][register, lane]), int(wanted[register, lane])
        return [f"VBUFFER {name}: v{register} lane {lane} is {got:#x}, expected {want:#x}"]
    return [] if same_memory(*pair, name) else [f"VBUFFER {name}: memory differs"]


def slots(rng: np.random.Generator, step: int = 64) -> np.ndarray:
    """Disjoint places in the allocation, in shuffled order, each with room before and after."""
    return rng.permutation(LANES) * step + 512


def by_vector_address(registers, rng, base):
    offset = int(rng.integers(-60, 60)) * 8
    addresses = base + slots(rng) + offset
    start = (addresses - offset).astype(np.uint64)
    registers["vgpr"][ADDRESS], registers["vgpr"][ADDRESS + 1] = start & np.uint64(0xFFFFFFFF), start >> np.uint64(32)
    return addresses, {"vaddr": ADDRESS, "saddr": NULL, "vdst": RESULT, "vsrc": DATA, "ioffset": offset}


def by_scalar_base(registers, rng, base):
    offset = int(rng.integers(-30, 30)) * 8
    registers["scalar"][6], registers["scalar"][7] = base & 0xFFFFFFFF, base >> 32
    registers["vgpr"][ADDRESS] = slots(rng)  # an unsigned 32-bit offset
    addresses = base + registers["vgpr"][ADDRESS].astype(np.int64) + offset
    return addresses, {"vaddr": ADDRESS, "saddr": 6, "vdst": RESULT, "vsrc": DATA, "ioffset": offset}


def resource(registers, base: int, records: int, stride: int = 0) -> None:
    """A raw buffer descriptor in s[8:11]."""
    registers["scalar"][8] = base & 0xFFFFFFFF
    registers["scalar"][9] = base >> 32 | stride << 16
    registers["scalar"][10], registers["scalar"][11] = records, 0x31014000


def by_buffer_offset(registers, rng, base):
    resource(registers, base, BYTES)
    registers["scalar"][6] = 128
    registers["vgpr"][ADDRESS] = slots(rng) - 192
    addresses = base + registers["vgpr"][ADDRESS].astype(np.int64) + 128 + 64
    place = {"vaddr": ADDRESS, "vdata": RESULT, "rsrc": 8, "soffset": 6, "offen": 1, "ioffset": 64, "format": 1}
    return addresses, place


@pytest.mark.parametrize("place", [by_vector_address, by_scalar_base])
def test_global_instructions_agree_with_amd(place):
    failed = [line for name, returns in cases("VGLOBAL") for line in run_global("VGLOBAL", name, returns, place, 0)]
    assert not failed, "\n".join(failed)


def test_flat_instructions_reach_global_memory():
    tested = cases("VFLAT")
    assert tested
    failed = [line for name, returns in tested for line in run_global("VFLAT", name, returns, by_vector_address, 1)]
    assert not failed, "\n".join(failed)


def test_buffer_instructions_agree_with_amd():
    tested = cases("VBUFFER")
    assert tested

    def place(name):
        def placed(registers, rng, base):
            addresses, fields = by_buffer_offset(registers, rng, base)
            if "STORE" in name or "ATOMIC" in name:
                fields["vdata"] = DATA
            return addresses, fields

        return placed

    failed = [line for name, returns in tested for line in run_global("VBUFFER", name, returns, place(name), 2)]
    assert not failed, "\n".join(failed)


def test_buffer_range_check_reads_zero_and_drops_stores():
    contents = np.arange(64, dtype=np.uint32)
    registers = machine.new_registers()
    registers["vgpr"][ADDRESS] = np.arange(LANES) * 4 + 64
    registers["vgpr"][DATA] = 0xABCD
    with machine.Memory(contents) as memory:
        resource(registers, memory.address, records=128)  # the first 32 words
        place = {"vaddr": ADDRESS, "rsrc": 8, "soffset": NULL, "offen": 1, "format": 1}
        load = machine.encode("VBUFFER", "BUFFER_LOAD_B32", vdata=RESULT, **place)
        after = machine.execute(load, registers)
        words_at = np.arange(LANES) + 16
        assert (after["vgpr"][RESULT] == np.where(words_at < 32, words_at, 0)).all()
        machine.execute(machine.encode("VBUFFER", "BUFFER_STORE_B32", vdata=DATA, **place), registers)
        expected = contents.copy()
        expected[16:32] = 0xABCD
        assert (memory.bytes.view(np.uint32) == expected).all()


def test_flat_reaches_lds_through_its_aperture():
    # s_mov_b64 of src_shared_base (235) gives the aperture's high half, which compilers put above LDS offsets.
    registers = machine.new_registers(lds_bytes=1024)
    registers["lds"][:1024] = np.arange(256, dtype=np.uint32).view(np.uint8)
    code = machine.encode("SOP1", "S_MOV_B64", sdst=2, ssrc0=235)
    high = int(machine.execute(code, registers)["scalar"][3])
    registers["vgpr"][ADDRESS] = np.arange(LANES) * 12
    registers["vgpr"][ADDRESS + 1] = high
    after = machine.execute(machine.encode("VFLAT", "FLAT_LOAD_B32", vdst=RESULT, vaddr=ADDRESS, ioffset=4), registers)
    assert (after["vgpr"][RESULT] == np.arange(LANES) * 3 + 1).all()


@pytest.mark.parametrize(
    "encoding, name", [("VGLOBAL", "GLOBAL_LOAD_B32"), ("VGLOBAL", "GLOBAL_STORE_B128"), ("VFLAT", "FLAT_LOAD_U8")]
)
def test_an_access_past_an_allocation_stops_and_says_where(encoding, name):
    size = {"B32": 4, "B128": 16, "U8": 1}[name.rsplit("_", 1)[1]]
    with machine.Memory(np.zeros(256, np.uint8), name="a test buffer") as memory:
        registers = machine.new_registers()
        registers["scalar"][EXEC] = 1 << 9
        for beyond in (0, 1):
            address = memory.address + 256 - size + beyond
            registers["vgpr"][ADDRESS], registers["vgpr"][ADDRESS + 1] = address & 0xFFFFFFFF, address >> 32
            code = machine.encode(encoding, name, vdst=RESULT, vsrc=DATA, vaddr=ADDRESS)
            if not beyond:
                machine.execute(code, registers)
                continue
            with pytest.raises(machine.Stopped, match="a test buffer") as stopped:
                machine.execute(code, registers)
            assert name.lower() in str(stopped.value).lower()


def test_global_atomics_of_one_address_add_up():
    with machine.Memory(np.zeros(16, np.uint8)) as memory:
        registers = machine.new_registers()
        registers["vgpr"][ADDRESS], registers["vgpr"][ADDRESS + 1] = memory.address & 0xFFFFFFFF, memory.address >> 32
        registers["vgpr"][DATA] = 1
        code = machine.encode("VGLOBAL", "GLOBAL_ATOMIC_ADD_U32", vdst=RESULT, vaddr=ADDRESS, vsrc=DATA, th=1)
        after = machine.execute(code, registers)
        assert memory.bytes.view(np.uint32)[0] == LANES
        assert sorted(after["vgpr"][RESULT].tolist()) == list(range(LANES))


def test_transposed_loads():
    """A 16 x 16 matrix of bytes, in rows, becomes an operand of WMMA.

    Lane n brings eight bytes of a row. Which, AMD's text does not say; users measured that rows come in fours, their
    left halves in four lanes and their right halves in the next four.
    """
    matrix = np.random.default_rng(3).integers(0, 256, (16, 16), dtype=np.uint8)
    lane = np.arange(LANES)
    row, right = lane // 8 * 4 + lane % 4, lane // 4 % 2
    with machine.Memory(matrix) as memory:
        registers = machine.new_registers()
        address = memory.address + row * 16 + right * 8
        registers["vgpr"][ADDRESS], registers["vgpr"][ADDRESS + 1] = address & 0xFFFFFFFF, address >> 32
        code = machine.encode("VGLOBAL", "GLOBAL_LOAD_TR_B64", vdst=RESULT, vaddr=ADDRESS)
        after = machine.execute(code, registers)
    loaded = after["vgpr"][RESULT : RESULT + 2].T.copy().view(np.uint8)  # [lane][byte]
    for j in range(16):
        for k in range(16):
            assert loaded[j + 16 * (k // 8), k % 8] == matrix[k, j], (j, k)


# --- scalar memory --------------------------------------------------------------------------------------------------


def scalar_loads(prefix: str) -> list[str]:
    return [n for e, n in machine.implemented() if e == "SMEM" and n.startswith(prefix)]


@pytest.mark.parametrize("prefix, sbase", [("S_LOAD_", 4), ("S_BUFFER_LOAD_", 8)])
def test_scalar_loads(prefix, sbase):
    contents = np.random.default_rng(5).integers(0, 256, 1024, dtype=np.uint8)
    tested = scalar_loads(prefix)
    assert tested
    with machine.Memory(contents) as memory:
        for name in tested:
            kind, bits = re.search(r"_([BIU])(\d+)$", name).groups()
            for soffset, ioffset in ((NULL, 256), (6, -4 if prefix == "S_LOAD_" else 4), (6, 60)):
                before = machine.new_registers(np.random.default_rng(1))
                before["scalar"][6] = 128
                before["scalar"][4], before["scalar"][5] = memory.address & 0xFFFFFFFF, memory.address >> 32
                resource(before, memory.address, records=1024)
                code = machine.encode("SMEM", name, sdata=20, sbase=sbase // 2, soffset=soffset, ioffset=ioffset)
                after = machine.execute(code, before)
                at = ioffset + (128 if soffset == 6 else 0)
                size = int(bits) // 8
                value = int.from_bytes(contents[at : at + size].tobytes(), "little", signed=kind == "I")
                expected = before.copy()
                for i in range(max(1, size // 4)):
                    expected["scalar"][20 + i] = value >> 32 * i & 0xFFFFFFFF
                assert (after == expected).all(), (name, soffset, ioffset)


def test_cache_control_changes_nothing():
    before = machine.new_registers(np.random.default_rng(2))
    implemented = machine.implemented()
    for encoding, name in implemented:
        caches = (
            "GLOBAL_WB",
            "GLOBAL_INV",
            "GLOBAL_WBINV",
            "S_DCACHE_INV",
            "S_ICACHE_INV",
            "DS_NOP",
            "S_PREFETCH_",
            "S_BUFFER_PREFETCH_",
        )
        if name.startswith(caches):
            assert (machine.execute(machine.encode(encoding, name), before) == before).all(), name


@pytest.mark.parametrize("name, sign", [("DS_APPEND", 1), ("DS_CONSUME", -1)])
def test_append_and_consume(name, sign):
    before = machine.new_registers(lds_bytes=64)
    before["scalar"][EXEC] = 0x00FF00F0
    before["lds"].view(np.uint32)[4] = 100
    after = machine.execute(machine.encode("DS", name, vdst=RESULT, offset0=16), before)
    assert after["lds"].view(np.uint32)[4] == 100 + 12 * sign
    assert (after["vgpr"][RESULT] == np.where(exec_lanes(0x00FF00F0), 100, 0)).all()


def test_addtid():
    """Four bytes a lane, from M0's low half in LDS and from a scalar base in global memory."""
    before = machine.new_registers(np.random.default_rng(4), lds_bytes=1024)
    before["scalar"][EXEC] = 0xFFFFFFFF
    before["scalar"][machine.M0] = 0xFFFF0040
    data = before["vgpr"][DATA]
    after = machine.execute(machine.encode("DS", "DS_LOAD_ADDTID_B32", vdst=RESULT, offset0=8), before)
    assert (after["vgpr"][RESULT] == before["lds"][:1024].view(np.uint32)[18:50]).all()
    after = machine.execute(machine.encode("DS", "DS_STORE_ADDTID_B32", data0=DATA, offset0=8), before)
    expected = before["lds"][:1024].view(np.uint32).copy()
    expected[18:50] = data
    assert (after["lds"][:1024].view(np.uint32) == expected).all()
    with machine.Memory(np.arange(64, dtype=np.uint32)) as memory:
        before["scalar"][6], before["scalar"][7] = memory.address & 0xFFFFFFFF, memory.address >> 32
        load = machine.encode("VGLOBAL", "GLOBAL_LOAD_ADDTID_B32", vdst=RESULT, saddr=6, ioffset=8)
        assert (machine.execute(load, before)["vgpr"][RESULT] == np.arange(2, 34)).all()
        machine.execute(machine.encode("VGLOBAL", "GLOBAL_STORE_ADDTID_B32", vsrc=DATA, saddr=6, ioffset=16), before)
        assert (memory.bytes.view(np.uint32)[4:36] == data).all()
