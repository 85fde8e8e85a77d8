# SPDX-License-Identifier: MIT
"""A look inside: listings of code objects, traces of one wave, and a stepper."""

import cmd
import ctypes
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from .binding import Watched, Watcher

BEFORE, ACCESS, AFTER, END = range(4)
SPACES = ("global", "LDS", "scratch")
LANES, VGPRS, SCALARS = 32, 256, 128
# Scalar operand codes that are no s0 .. s105.
NAMES_OF_SCALARS = {106: "vcc_lo", 107: "vcc_hi", 124: "null", 125: "m0", 126: "exec_lo", 127: "exec_hi"}
NAMES_OF_SCALARS |= {code: f"ttmp{code - 108}" for code in range(108, 124)}
CODES_OF_SCALARS = {name: code for code, name in NAMES_OF_SCALARS.items()}


# Listings


@dataclass(frozen=True)
class Listing:
    """One kernel of a code object: `instructions` are (bytes from its entry, text)."""

    kernel: str
    address: int  # of the entry, in the ELF file
    instructions: list[tuple[int, str]]


def disassemble(library: ctypes.CDLL, image: bytes) -> list[Listing]:
    """The kernels of a code object or an offload bundle, in the order of their code. ValueError when it has none."""
    found = json.loads(library.virtual_gpu_disassemble(image, len(image)))
    if isinstance(found, dict):
        raise ValueError(f"this is no code object that can be disassembled: {found['error']}")
    return [
        Listing(one["kernel"], one["address"], [tuple(instruction) for instruction in one["instructions"]])
        for one in found
    ]


def source_lines(image: bytes) -> dict[int, str]:
    """{address: "file:line"} of an ELF that was compiled with line tables (-gline-tables-only); else empty."""
    import io

    from elftools.elf.elffile import ELFFile

    elf = ELFFile(io.BytesIO(image))
    if not elf.has_dwarf_info():
        return {}
    dwarf, lines = elf.get_dwarf_info(), {}
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        # DWARF 5 counts files from 0, earlier versions from 1.
        first = 0 if program["version"] >= 5 else 1
        names = [entry.name.decode() for entry in program["file_entry"]]
        for entry in program.get_entries():
            if entry.state and not entry.state.end_sequence:
                lines[entry.state.address] = f"{names[entry.state.file - first]}:{entry.state.line}"
    return lines


def write_listing(listing: Listing, lines: dict[int, str], out: TextIO) -> None:
    """The kernel's instructions, each with its offset; a source line where it changes."""
    print(f"{listing.kernel}:", file=out)
    shown = None
    for offset, text in listing.instructions:
        line = lines.get(listing.address + offset)
        if line and line != shown:
            shown = line
            print(f"                ; {line}", file=out)
        print(f"  +0x{offset:05x}      {text}", file=out)


# One wave


@dataclass
class Wave:
    """The watched wave at one moment: copies of its registers and of its work-group's LDS."""

    vgpr: np.ndarray  # uint32 [256][32]
    scalar: np.ndarray  # uint32 [128], by operand code
    scc: int
    lds: bytes


def wave_at(moment: Watched) -> Wave:
    return Wave(
        np.ctypeslib.as_array(moment.vgpr, (VGPRS, LANES)).copy(),
        np.ctypeslib.as_array(moment.scalar, (SCALARS,)).copy(),
        moment.scc,
        ctypes.string_at(moment.lds, moment.lds_bytes) if moment.lds_bytes else b"",
    )


@contextmanager
def watch(
    library: ctypes.CDLL, kernel: str, workgroup: tuple[int, int, int], wave: int, see: Callable[[Watched], None]
) -> Iterator[None]:
    """Calls `see` with every moment of one wave of each launch of `kernel` in the block.

    An exception in `see` ends the watch, and the block with that exception.
    """
    failures: list[BaseException] = []

    def guarded(moment) -> None:
        if failures:
            return
        try:
            see(moment.contents)
        except BaseException as error:  # a C caller would swallow it
            failures.append(error)

    watcher = Watcher(guarded)
    library.virtual_gpu_watch(kernel.encode(), *workgroup, wave, watcher)
    try:
        yield
    finally:
        library.virtual_gpu_watch_stop()
    if failures:
        raise failures[0]


def name_of_scalar(code: int) -> str:
    return NAMES_OF_SCALARS.get(code, f"s{code}")


class TraceWriter:
    """Writes a line for each instruction: offset, text, registers that changed, memory that was touched.

    Args:
        lanes: whose VGPRs and accesses are written.
    """

    def __init__(self, out: TextIO, lanes: range):
        self._out, self._lanes = out, lanes
        self._before: Wave | None = None
        self._accesses: list[str] = []
        self.instructions = 0

    def see(self, moment: Watched) -> None:
        if moment.event == BEFORE:
            self._before, self._accesses = wave_at(moment), []
        elif moment.event == ACCESS and (moment.lane in self._lanes or moment.lane < 0):
            kind = "store" if moment.is_store else "load"
            lane = "" if moment.lane < 0 else f" lane {moment.lane}"
            self._accesses.append(f"[{SPACES[moment.space]} {kind} 0x{moment.address:x} {moment.bytes} B{lane}]")
        elif moment.event == AFTER:
            self.instructions += 1
            changes = changed(self._before, wave_at(moment), self._lanes)
            text = moment.text.decode()
            print(
                f"+0x{moment.offset:05x}  {text:56}  {'  '.join([*changes, *self._accesses])}".rstrip(), file=self._out
            )
        elif moment.event == END:
            fault = moment.text.decode()
            print(f"; the launch ended{f' with a fault: {fault}' if fault else ''}", file=self._out)


def changed(before: Wave, after: Wave, lanes: range) -> list[str]:
    """`register=value`, hexadecimal, of each register that is another now; several lanes are listed in order."""
    chosen = list(lanes)
    changes = []
    for register in np.flatnonzero((before.vgpr[:, chosen] != after.vgpr[:, chosen]).any(axis=1)):
        values = ",".join(f"{value:08x}" for value in after.vgpr[register, chosen])
        changes.append(f"v{register}={values}")
    for code in np.flatnonzero(before.scalar != after.scalar):
        changes.append(f"{name_of_scalar(int(code))}={after.scalar[code]:08x}")
    if before.scc != after.scc:
        changes.append(f"scc={after.scc}")
    return changes


class Stepper(cmd.Cmd):
    """Stops before instructions of the watched wave and takes commands, from a person or from a file."""

    prompt = "(step) "
    intro = (
        "step [N], continue, break OFFSET|NAME, print REGISTER, lds ADDRESS [N], memory ADDRESS [N], quit; help NAME"
    )

    def __init__(self, stdin: TextIO | None = None, stdout: TextIO | None = None):
        super().__init__(stdin=stdin, stdout=stdout)
        # A file of commands is read line by line; a terminal gets editing and history.
        self.use_rawinput = stdin is None
        self._breaks: set[int | str] = set()
        self._left: int | None = 1  # instructions until the next stop; None: only at a break
        self._wave: Wave | None = None
        self._quit = False

    def see(self, moment: Watched) -> None:
        """Given to `watch`."""
        if moment.event == END:
            fault = moment.text.decode()
            self._say(f"the launch ended{f' with a fault: {fault}' if fault else ''}")
        if moment.event != BEFORE or self._quit:
            return
        text = moment.text.decode()
        if self._left is not None:
            self._left -= 1
        if self._left != 0 and moment.offset not in self._breaks and text.split()[0] not in self._breaks:
            return
        self._wave = wave_at(moment)
        self._say(f"+0x{moment.offset:05x}  {text}")
        self.cmdloop()
        self.intro = None

    def do_step(self, argument: str) -> bool:
        """step [N]: goes on for N instructions of this wave, 1 by default."""
        self._left = int(argument or 1)
        return True

    def do_continue(self, argument: str) -> bool:
        """continue: goes on to the next break or to the end."""
        self._left = None
        return True

    def do_break(self, argument: str) -> None:
        """break +0x1c4 | v_exp_f32: stops before the instruction at this offset, or before every one of this name."""
        is_offset = argument.startswith(("+", "0x"))
        self._breaks.add(int(argument.removeprefix("+"), 0) if is_offset else argument)

    def do_print(self, argument: str) -> None:
        """print v3 | s4 | vcc_lo | exec_lo | scc: a register, VGPRs with all lanes, as integers and as floats."""
        name = argument.strip()
        if name == "scc":
            return self._say(f"scc = {self._wave.scc}")
        if name.startswith("v") and name[1:].isdigit() and int(name[1:]) < VGPRS:
            values = self._wave.vgpr[int(name[1:])]
            for first in range(0, LANES, 4):
                row = values[first : first + 4]
                floats = " ".join(f"{value:12.6g}" for value in row.view(np.float32))
                self._say(f"{name}[{first:2}..{first + 3:2}]  {' '.join(f'{value:08x}' for value in row)}  {floats}")
            return None
        code = CODES_OF_SCALARS.get(name, int(name[1:]) if name.startswith("s") and name[1:].isdigit() else SCALARS)
        if code >= SCALARS:
            return self._say(f"no register {name!r}: print v0 to v255, s0 to s105, vcc_lo, exec_lo, m0, scc")
        return self._say(f"{name} = {self._wave.scalar[code]:08x}")

    def do_lds(self, argument: str) -> None:
        """lds ADDRESS [N]: N dwords (8 by default) of the work-group's LDS."""
        self._dump(argument, lambda address, size: self._wave.lds[address : address + size])

    def do_memory(self, argument: str) -> None:
        """memory ADDRESS [N]: N dwords (8 by default) of global memory, which must be mapped."""
        self._dump(argument, ctypes.string_at)

    def do_quit(self, argument: str) -> bool:
        """quit: lets the program run to its end without stopping again."""
        self._quit = True
        return True

    do_EOF = do_quit

    def emptyline(self) -> bool:
        return self.do_step("")

    def onecmd(self, line: str) -> bool:
        try:
            return super().onecmd(line)
        except (ValueError, IndexError) as error:
            self._say(f"{line!r} is not understood ({error}): help lists the commands")
            return False

    def _dump(self, argument: str, read: Callable[[int, int], bytes]) -> None:
        address, *count = (int(word, 0) for word in argument.split())
        data = read(address, 4 * (count[0] if count else 8))
        words = np.frombuffer(data[: len(data) // 4 * 4], np.uint32)
        for first in range(0, len(words), 4):
            self._say(f"0x{address + 4 * first:x}  {' '.join(f'{word:08x}' for word in words[first : first + 4])}")

    def _say(self, text: str) -> None:
        print(text, file=self.stdout, flush=True)


def read_commands(path: Path | None) -> TextIO | None:
    """A file of the stepper's commands; None is the terminal or whatever standard input is."""
    return path.open() if path else (None if sys.stdin.isatty() else sys.stdin)
