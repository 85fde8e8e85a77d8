# SPDX-License-Identifier: MIT
"""Which registers instructions read and write, as `register_use.cpp` lists them, against what execution shows.

Nothing here knows an instruction's operands: fields are drawn at random. Changing every register that is not listed
as read must not change a result; no register changes that is not listed as written; and each listed register matters.
"""

import zlib
from dataclasses import dataclass

import numpy as np
import pytest
from tinygrad.runtime.autogen.amd.rdna4 import ins

from . import machine
from .machine import EXEC, LANES, M0, NULL
from .test_modifiers import VOPD_Y_ONLY

V = machine.VGPR0
SCC = 128  # after the scalar registers, as in register_use.h
BYTES = 4096  # of global memory and of LDS
USE = np.dtype(
    [
        ("vgpr_read", "u1", (256,)),
        ("vgpr_written", "u1", (256,)),
        ("vgpr_address", "u1", (256,)),
        ("scalar_read", "u1", (129,)),
        ("scalar_written", "u1", (129,)),
        ("scalar_address", "u1", (129,)),
        ("kind", "u1"),
        ("counters", "u1"),
        ("wait", "u1", (7,)),
    ]
)
LOAD, STORE, DS, KM = 1, 2, 4, 8  # bits of USE's "counters"

# The text after a conditional branch, which it skips or not: s_mov_b32 s50, 1.
MARK = machine.encode("SOP1", "S_MOV_B32", sdst=50, ssrc0=129)

WITH_DPP = ("V_MOV_B32", "V_MAX_NUM_F32", "V_FMAC_F32", "V_CMP_LT_F32", "V_ADD_CO_CI_U32")

# They take or give the program's address, which is another one in each run; or they end or stop it.
NOT_DRAWN = {
    "S_BARRIER_WAIT",
    "S_GETPC_B64",
    "S_CALL_B64",
    "S_SETPC_B64",
    "S_SWAPPC_B64",
    "S_TRAP",
    "S_CODE_END",
    "S_ENDPGM",
}

# Listed as read because hardware reads them, but the device has nothing that they change.
READ_WITHOUT_EFFECT = ("V_MBCNT_HI_U32_B32", "S_PREFETCH", "S_BUFFER_PREFETCH", "S_SLEEP_VAR", "S_BUFFER_LOAD")
# Hardly any random state makes every operand of these decide: comparisons with what is in memory, and comparisons
# (whose operands one piece of code lists for all of them). A conditional move only keeps the destination it reads.
RARELY_DECIDED = ("V_CMP_", "V_CMPX_", "DS_CMPSTORE", "DS_INC", "DS_DEC", "S_CMOV")


def use_of(code: bytes) -> np.ndarray:
    use = np.zeros((), USE)
    assert machine.library().virtual_gpu_register_use_of(code, len(code), use.ctypes.data)
    return use


@dataclass
class Drawn:
    """One encoded instruction and what its registers must hold for it to run."""

    code: bytes
    full_exec: bool = False
    pointers: tuple[tuple[str, int, str], ...] = ()  # (register file, register, which half of the address)
    small: tuple[tuple[str, int], ...] = ()  # registers that hold small multiples of 16


def source(rng: np.random.Generator, scalar: bool = False) -> int:
    kind = rng.integers(8)
    if kind == 0:
        return int(rng.choice([128, 129, 193, 242]))
    if scalar or kind == 1:
        return int(rng.integers(50)) * 2
    return V + int(rng.integers(256))


def draw_fields(encoding: str, name: str, rng: np.random.Generator, variant: str) -> dict[str, int]:
    """Random operands; modifiers one time in four."""
    layout = getattr(ins, f"{encoding}_{variant}" if variant else encoding)
    fields, modify = {}, rng.integers(4) == 0
    scalar_result = name.startswith(("V_CMP", "V_READ", "V_S_"))
    for field, place in layout._fields:
        if field in ("op", "encoding", "opx", "opy") or type(place).__name__ == "FixedBitField":
            continue
        elif field in ("ssrc0", "ssrc1"):
            fields[field] = 193 if "BARRIER_SIGNAL" in name else source(rng, scalar=True)
        elif field == "sdst" or (field == "vdst" and scalar_result):
            fields[field] = int(rng.integers(50)) * 2
        elif field.startswith("src"):
            fields[field] = {"DPP16": 250, "DPP8": 233}.get(variant) if field[3:] in ("0", "x0") else None
            fields[field] = fields[field] or source(rng)
            if variant == "LIT" and fields[field] == 255:
                fields[field] = V
        elif field in ("vdst", "vsrc1", "vsrc0", "vdstx", "vdsty", "vsrcx1", "vsrcy1"):
            fields[field] = int(rng.integers(place.mask + 1))
        elif field == "simm16":
            fields[field] = 1 | 4 << 6 | 3 << 11 if "REG_" in name else int(rng.integers(1, 1000))
        elif field in ("row_mask", "bank_mask"):
            fields[field] = int(rng.choice([15, 5]))
        elif field == "dpp":
            fields[field] = int(rng.choice([0xB1, 0x101, 0x112, 0x123, 0x140, 0x153, 0x165]))
        elif field == "literal" or field.startswith("sel"):
            fields[field] = int(rng.integers(place.mask + 1))
        elif modify:
            fields[field] = int(rng.integers(place.mask + 1))
    if name.startswith("S_CBRANCH") or name in ("S_BRANCH", "S_CALL_B64"):
        fields["simm16"] = 1  # over MARK
    if name == "S_SENDMSG":
        fields["simm16"] = 3
    return fields


def draw_memory(encoding: str, name: str, rng: np.random.Generator) -> Drawn:
    """A memory instruction; its address comes from v10, v[10:11], s[6:7] or a buffer descriptor in s[8:11]."""
    first, data, second, result = (int(x) for x in rng.permutation([10, 20, 30, 40]))
    fields: dict[str, int] = {}
    pointers, small, full = [], [], "LOAD_TR" in name
    if encoding == "DS":
        fields = {"addr": first, "data0": data, "data1": second, "vdst": result, "offset0": int(rng.integers(8)) * 8}
        moves = "PERMUTE" in name or "SWIZZLE" in name
        small = [] if moves else [("vgpr", first), ("scalar", M0)]
        if "STRIDE64" in name and name.endswith("B64"):  # from 0 to 3.5 KiB
            fields |= {"offset0": int(rng.integers(4)), "offset1": int(rng.integers(4, 7))}
    elif encoding == "SMEM":
        fields = {"sdata": 20, "sbase": 8 // 2, "soffset": int(rng.choice([NULL, 6])), "ioffset": 16}
        pointers = [("scalar", 8, "low"), ("scalar", 9, "high")]
        small = [("scalar", 6)]
    elif encoding == "VBUFFER":
        idxen, offen = (int(x) for x in rng.integers(2, size=2))
        fields = {"vaddr": first, "vdata": result, "rsrc": 8, "soffset": int(rng.choice([NULL, 6])), "format": 1}
        fields |= {"idxen": idxen, "offen": offen, "th": int(rng.integers(2))}
        pointers = [("scalar", 8, "low"), ("scalar", 9, "high")]
        small = [("scalar", 6), ("vgpr", first), ("vgpr", first + 1)]
    else:
        uniform = rng.integers(2) == 1 or "ADDTID" in name
        fields = {"vaddr": first, "saddr": 6 if uniform else NULL, "vdst": result, "vsrc": data}
        fields |= {"th": int(rng.integers(2)) if "ATOMIC" in name else 0, "ioffset": 64}
        place = "scalar" if uniform else "vgpr"
        pointers = [(place, 6 if uniform else first, "low"), (place, (6 if uniform else first) + 1, "high")]
        small = [("vgpr", first)] if uniform else []
    return Drawn(machine.encode(encoding, name, **fields), full, tuple(pointers), tuple(small))


def draw(encoding: str, name: str, rng: np.random.Generator, variant: str = "") -> Drawn:
    if encoding in ("DS", "SMEM", "VGLOBAL", "VFLAT", "VBUFFER"):
        return draw_memory(encoding, name, rng)
    if any(part in name for part in ("FMAAK", "FMAMK", "SETREG_IMM32")):
        variant = "LIT"
    fields = draw_fields(encoding, name, rng, variant)
    code = machine.encode(encoding, tuple(name.split("+")) if encoding == "VOPD" else name, variant, **fields)
    small = (("scalar", M0),) if "MOVREL" in name else ()
    return Drawn(code + MARK, full_exec=name.startswith("V_WMMA"), small=small)


class Trial:
    """Runs one instruction on variations of one random state; global memory and LDS count as results."""

    def __init__(self, drawn: Drawn, rng: np.random.Generator, memory: machine.Memory):
        self.drawn, self.rng, self.memory = drawn, rng, memory
        self.use = use_of(drawn.code)
        self.contents = rng.integers(0, 256, BYTES, dtype=np.uint8)
        self.before = self.prepare(machine.new_registers(rng, lds_bytes=BYTES))

    def prepare(self, registers: np.ndarray) -> np.ndarray:
        """Makes addresses valid. Floats of moderate size are more telling than random bits."""
        floats = self.rng.random((256, 1)) < 0.5
        moderate = self.rng.normal(size=(256, LANES)).astype(np.float32).view(np.uint32)
        registers["vgpr"] = np.where(floats, moderate, registers["vgpr"])
        for file, register in self.drawn.small:
            values = self.rng.integers(0, 16, LANES) * 16
            registers[file][register] = values if file == "vgpr" else values[0]
        middle = self.memory.address + 1024
        for file, register, half in self.drawn.pointers:
            slots = middle + (np.arange(LANES) * 64 if file == "vgpr" else 0)
            registers[file][register] = slots & 0xFFFFFFFF if half == "low" else slots >> 32
        if ("scalar", 8, "low") in self.drawn.pointers:  # as a buffer descriptor: 3 KiB, no stride
            registers["scalar"][10], registers["scalar"][11] = 3072, 0x31014000
        if self.drawn.full_exec:
            registers["scalar"][EXEC] = 0xFFFFFFFF
        return registers

    def run(self, registers: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """(registers, memory) afterwards; None when the device refuses."""
        self.memory.bytes[:] = self.contents
        try:
            after = machine.execute(self.drawn.code, registers)
        except machine.Stopped:
            return None
        return after, self.memory.bytes.copy()

    def listed(self, role: str) -> np.ndarray:
        """[(file, register)] of the registers with that role."""
        files = ("vgpr", "scalar")
        return [(file, int(r)) for file in files for r in np.flatnonzero(self.use[f"{file}_{role}"])]


def get(registers: np.ndarray, file: str, register: int) -> np.ndarray:
    return registers["scc"] if (file, register) == ("scalar", SCC) else registers[file][register]


def put(registers: np.ndarray, file: str, register: int, values) -> None:
    if (file, register) == ("scalar", SCC):
        registers["scc"] = values & 1
    elif (file, register) != ("scalar", NULL):
        registers[file][register] = values


def flat(registers: np.ndarray) -> np.ndarray:
    """Every register in one array: VGPRs lane by lane, scalars, SCC."""
    return np.concatenate([registers["vgpr"].ravel(), registers["scalar"], np.atleast_1d(registers["scc"])])


def places(registers: list[tuple[str, int]]) -> np.ndarray:
    """Which elements of `flat` belong to these registers."""
    chosen = np.zeros(256 * LANES + 129, bool)
    for file, register in registers:
        start, count = (register * LANES, LANES) if file == "vgpr" else (256 * LANES + register, 1)
        chosen[start : start + count] = True
    return chosen


def name_of(element: int) -> str:
    vgprs = 256 * LANES
    return f"v{element // LANES} lane {element % LANES}" if element < vgprs else f"scalar {element - vgprs}"


def violations(trial: Trial) -> list[str]:
    """What an unlisted register did."""
    reads, writes = set(trial.listed("read")), set(trial.listed("written"))
    other = trial.prepare(machine.new_registers(trial.rng, lds_bytes=BYTES))
    other["lds"] = trial.before["lds"]
    for file, register in reads:
        put(other, file, register, get(trial.before, file, register))
    first, second = trial.run(trial.before), trial.run(other)
    if first is None or second is None:
        return [] if first is second else ["an unlisted register decides whether it runs"]
    before = [flat(trial.before), flat(other)]
    after = [flat(first[0]), flat(second[0])]
    kept = (after[0] == before[0]) & (after[1] == before[1])
    unlisted = ~kept & ~places([*writes, ("scalar", 50)])
    decided = ~kept & (after[0] != after[1])
    found = [f"writes {name_of(e)}, which is not listed" for e in np.flatnonzero(unlisted)[:1]]
    found += [f"an unlisted register decides {name_of(e)}" for e in np.flatnonzero(decided)[:1]]
    if not (first[1] == second[1]).all() or not (first[0]["lds"] == second[0]["lds"]).all():
        found.append("an unlisted register decides what is in memory")
    return found


ALIKE = (0x3FF00000, 0x7FF80001, 0x7E007E00, 0x00010001, 0x40004000)


def make_alike(trial: Trial, reads: list, attempt: int) -> None:
    """Gives all operands one value, so that comparisons can hold: a number or a NaN of some width, or random bits."""
    if attempt % 2 == 0:
        return
    value = ALIKE[attempt // 2 % len(ALIKE)]
    for file, register in reads:
        if (file, register) not in (("scalar", EXEC), ("scalar", SCC)) and (file, register) not in trial.drawn.small:
            put(trial.before, file, register, value)


def changed_register(trial: Trial, file: str, register: int, attempt: int, reads: list) -> np.ndarray:
    """The state with one register changed: to random bits, to another operand's value, to something small."""
    registers = trial.before.copy()
    shape = get(registers, file, register).shape
    values = trial.rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    kind = attempt % 4
    if kind == 1 and reads:
        other = reads[trial.rng.integers(len(reads))]
        values = np.broadcast_to(get(registers, *other), (LANES,))
        values = values.copy() if shape else values[0]
    elif kind == 2:
        values = values % 64
    elif kind == 3:
        values = get(registers, file, register) ^ np.uint32(0x80000001)
    if (file, register) == ("scalar", SCC):
        values = get(registers, file, register) ^ 1
    put(registers, file, register, values)
    return registers


def unused(drawn: Drawn, encoding: str, name: str, rng: np.random.Generator, memory: machine.Memory) -> list[str]:
    """Listed registers that do not matter in any of many states."""
    trial = Trial(drawn, rng, memory)
    reads, writes = trial.listed("read"), trial.listed("written")
    if "MOVREL" in name:  # any register, but one at a time
        reads = [r for r in reads if r in (("scalar", M0), ("scalar", EXEC))]
        writes = []
    if name.startswith(READ_WITHOUT_EFFECT):
        reads = []
    mattered, changed = set(), set()
    for attempt in range(24):
        if encoding not in MEMORY:
            make_alike(trial, reads, attempt)
        result = trial.run(trial.before)
        if result is not None:
            for register in writes:
                if not (get(result[0], *register) == get(trial.before, *register)).all():
                    changed.add(register)
            for register in set(reads) - mattered:
                altered = changed_register(trial, *register, attempt, reads)
                other = trial.run(altered)
                if other is None or differs(trial, result, other, register, altered):
                    mattered.add(register)
        if len(mattered) == len(reads) and len(changed) == len(writes):
            return []
        trial = Trial(drawn, rng, memory)
    return [f"read {r} does not matter" for r in reads if r not in mattered] + [
        f"written {r} never changes" for r in writes if r not in changed
    ]


def differs(trial: Trial, result, other, register: tuple[str, int], altered: np.ndarray) -> bool:
    """Whether the two runs differ anywhere but in the altered register left alone."""
    if not (result[1] == other[1]).all() or not (result[0]["lds"] == other[0]["lds"]).all():
        return True
    if result[0]["mode"] != other[0]["mode"]:
        return True
    a, b = flat(result[0]), flat(other[0])
    # Where the altered register was not written it still holds what was put there.
    kept = places([register]) & (a == flat(trial.before)) & (b == flat(altered))
    return bool((~kept & (a != b)).any())


def cases(encoding: str) -> list[tuple[str, str]]:
    """(name, variant) of every implemented instruction that can be drawn; pairs are named X+Y."""
    names = [n for e, n in machine.implemented() if e == encoding and n not in NOT_DRAWN]
    if encoding == "VOPD":
        first = [n for n in names if n not in VOPD_Y_ONLY]
        return [(f"{first[i % len(first)]}+{y}", "") for i, y in enumerate(names * 3)]
    permuted = [(n, v) for n in names if n in WITH_DPP for v in ("DPP16", "DPP8")]
    return [(name, "") for name in names] + permuted


def seeded(*parts: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(" ".join(parts).encode()))


@pytest.fixture(scope="module")
def memory():
    with machine.Memory(np.zeros(BYTES, np.uint8)) as memory:
        yield memory


VECTOR = ("VOP1", "VOP2", "VOP3", "VOP3SD", "VOP3P", "VOPC", "VOPD")
SCALAR = ("SOP1", "SOP2", "SOPC", "SOPK", "SOPP")
MEMORY = ("SMEM", "DS", "VGLOBAL", "VFLAT", "VBUFFER")  # VSCRATCH needs a launch
ENCODINGS = (*VECTOR, *SCALAR, *MEMORY)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_only_listed_registers_are_read_and_written(encoding, memory):
    failed, tested = [], 0
    for name, variant in cases(encoding):
        rng, ran = seeded(encoding, name, "only"), 0
        for _ in range(40):
            trial = Trial(draw(encoding, name, rng, variant), rng, memory)
            if trial.run(trial.before) is None:
                continue
            failed += [f"{encoding} {name} {trial.drawn.code.hex()}: {text}" for text in violations(trial)]
            ran += 1
            if ran == 3:
                break
        if not ran:
            failed.append(f"{encoding} {name}: no operands that the device accepts were drawn")
        tested += 1
    assert tested
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_listed_registers_matter(encoding, memory):
    # Operands that hide each other (x < x, x * 0) are drawn too: one draw in which every register matters will do.
    failed = []
    for name, variant in cases(encoding):
        if name.startswith(RARELY_DECIDED) or "CMPSWAP" in name or "_INC_" in name or "_DEC_" in name:
            continue
        rng, text = seeded(encoding, name, "matter"), ["no operands that the device accepts were drawn"]
        for _ in range(150):
            drawn = draw(encoding, name, rng, variant)
            trial = Trial(drawn, rng, memory)
            if trial.run(trial.before) is None:
                continue
            text = unused(drawn, encoding, name, rng, memory)
            if not text:
                break
        failed += [f"{encoding} {name}: {t}" for t in text]
    assert not failed, "\n".join(failed)


def use_of_text(text: str, directory) -> np.ndarray:
    return use_of(machine.assemble(text, directory))


@pytest.mark.parametrize(
    "text, vgprs, scalars",
    [
        ("scratch_load_b64 v[4:5], v2, off", [2], [EXEC]),
        ("scratch_load_b64 v[4:5], off, s4 offset:8", [], [4, EXEC]),
        ("scratch_store_b96 v3, v[4:6], s1", [3, 4, 5, 6], [1, EXEC]),
        ("scratch_load_d16_hi_u8 v7, v2, off", [2, 7], [EXEC]),
    ],
)
def test_scratch_reads(text, vgprs, scalars, tmp_path):
    use = use_of_text(text, tmp_path)
    assert np.flatnonzero(use["vgpr_read"]).tolist() == vgprs
    assert np.flatnonzero(use["scalar_read"]).tolist() == scalars


@pytest.mark.parametrize(
    "text, counters",
    [
        ("global_load_b128 v[0:3], v[4:5], off", LOAD),
        ("global_load_tr_b64 v[0:1], v[4:5], off", LOAD),
        ("buffer_load_b32 v0, off, s[4:7], null", LOAD),
        ("scratch_load_b32 v0, off, s4", LOAD),
        ("global_atomic_add_u32 v0, v[2:3], v4, off th:TH_ATOMIC_RETURN", LOAD),
        ("global_atomic_add_u32 v[2:3], v4, off", STORE),
        ("global_store_b32 v[2:3], v4, off", STORE),
        ("flat_load_b32 v0, v[2:3]", LOAD | DS),
        ("flat_store_b32 v[2:3], v4", STORE | DS),
        ("ds_load_b128 v[0:3], v4", DS),
        ("ds_store_b64 v0, v[2:3]", DS),
        ("ds_bpermute_b32 v0, v1, v2", DS),
        ("s_load_b128 s[4:7], s[0:1], 0x0", KM),
        ("global_inv scope:SCOPE_DEV", LOAD),
        ("global_wb scope:SCOPE_DEV", STORE),
        ("v_add_f32 v0, v1, v2", 0),
        ("s_add_co_u32 s0, s1, s2", 0),
    ],
)
def test_memory_instructions_count_as_llvm_waits_for_them(text, counters, tmp_path):
    assert use_of_text(text, tmp_path)["counters"] == counters


@pytest.mark.parametrize(
    "text, limits",
    [
        ("s_wait_loadcnt 0x5", {0: 5}),
        ("s_wait_storecnt 0x0", {1: 0}),
        ("s_wait_dscnt 0x3", {2: 3}),
        ("s_wait_kmcnt 0x0", {3: 0}),
        ("s_wait_loadcnt_dscnt 0x203", {0: 2, 2: 3}),
        ("s_wait_storecnt_dscnt 0x104", {1: 1, 2: 4}),
        ("s_wait_idle", dict.fromkeys(range(7), 0)),
    ],
)
def test_waits_name_their_limits(text, limits, tmp_path):
    wait = use_of_text(text, tmp_path)["wait"]
    assert {i: int(n) for i, n in enumerate(wait) if n != 255} == limits
