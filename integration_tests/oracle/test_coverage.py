# SPDX-License-Identifier: MIT
"""Every instruction that the virtual device executes is tested in this folder, and this file says where."""

from . import machine
from . import test_arithmetic as arithmetic
from . import test_memory as memory
from .test_control_flow import NO_EFFECT
from .test_matrix import KINDS

BRANCHES = (
    "S_BRANCH",
    "S_CBRANCH_SCC0",
    "S_CBRANCH_SCC1",
    "S_CBRANCH_VCCZ",
    "S_CBRANCH_VCCNZ",
    "S_CBRANCH_EXECZ",
    "S_CBRANCH_EXECNZ",
    "S_ENDPGM",
    "S_TRAP",
    "S_CODE_END",
    "S_BARRIER_WAIT",
)
MODES = ("S_ROUND_MODE", "S_DENORM_MODE")
CACHE_CONTROL = ("S_DCACHE_INV", "S_PREFETCH_", "S_BUFFER_PREFETCH_")

# Implemented, but outside these tests: (encoding, name) and the reason.
EXCEPTIONS: dict[tuple[str, str], str] = {}


def file_that_tests(encoding: str, name: str) -> str | None:
    """The test file that covers an instruction."""
    if encoding in arithmetic.ENCODINGS and name not in arithmetic.NO_OPERATION:
        named = [f for f, prefixes in arithmetic.TESTED_ELSEWHERE.items() if name.startswith(prefixes)]
        if named != ["test_matrix"]:
            return named[0] if named else "test_arithmetic"
        return "test_matrix" if name in {kind.name for kind in KINDS} else None
    if name in NO_EFFECT or name in BRANCHES:
        return "test_control_flow"
    if name in MODES:
        return "test_modes"
    if encoding == "VOPD":
        return "test_modifiers"
    if encoding == "VSCRATCH":
        return "test_scratch"
    if encoding in memory.ENCODINGS and (encoding, name) not in EXCEPTIONS:
        return "test_memory"
    if encoding == "SMEM" and (name.startswith(("S_LOAD_", "S_BUFFER_LOAD_", *CACHE_CONTROL))):
        return "test_memory"
    return None


def test_every_implemented_opcode_is_tested():
    untested = {i for i in machine.implemented() if file_that_tests(*i) is None}
    assert untested == set(EXCEPTIONS)


def test_what_compilers_need_is_implemented():
    """A floor, so that instructions cannot drop out of the device and of its tests together."""
    counts = {}
    for encoding, _ in machine.implemented():
        counts[encoding] = counts.get(encoding, 0) + 1
    floor = {
        "VOP1": 85,
        "VOP2": 49,
        "VOP3": 420,
        "VOP3P": 45,
        "VOPC": 162,
        "VOP3SD": 10,
        "VOPD": 17,
        "SOP1": 70,
        "SOP2": 70,
    }
    floor |= {
        "SOPC": 46,
        "SOPK": 9,
        "SOPP": 30,
        "SMEM": 20,
        "DS": 100,
        "VGLOBAL": 55,
        "VFLAT": 50,
        "VBUFFER": 50,
        "VSCRATCH": 22,
    }
    assert {e: (counts.get(e, 0), n) for e, n in floor.items() if counts.get(e, 0) < n} == {}
