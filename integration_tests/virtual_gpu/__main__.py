# SPDX-License-Identifier: MIT
"""A look inside the virtual gfx1201.

    python -m integration_tests.virtual_gpu disassemble CODE_OBJECT [--kernel NAME]
    python -m integration_tests.virtual_gpu trace --kernel NAME [--group X Y Z] [--wave N] [--lanes A..B] [--out FILE]
    python -m integration_tests.virtual_gpu step  --kernel NAME [--group X Y Z] [--wave N] [--commands FILE]

`trace` and `step` run a Python module under the device, `-- MODULE ARGUMENTS ...`; without one it is one call of the
op, integration_tests.harness.one_call.
"""

import argparse
import contextlib
import runpy
import sys
from pathlib import Path

from . import VirtualGpu, looking

DEFAULT_MODULE = ["integration_tests.harness.one_call"]
DEFAULT_KERNEL = "gfx1201_sage_attention_main"


def lanes(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def parse(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The options, and the module to run with its arguments."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(
        prog="python -m integration_tests.virtual_gpu", description=__doc__.splitlines()[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    disassemble = commands.add_parser("disassemble", help="list the instructions of a code object's kernels")
    disassemble.add_argument("code_object", type=Path)
    disassemble.add_argument("--kernel", help="only this one")
    for name, text in (("trace", "write what one wave executes"), ("step", "stop in one wave and look round")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--kernel", default=DEFAULT_KERNEL)
        command.add_argument("--group", type=int, nargs=3, default=[0, 0, 0], metavar=("X", "Y", "Z"))
        command.add_argument("--wave", type=int, default=0)
    trace, step = commands.choices["trace"], commands.choices["step"]
    trace.add_argument("--lanes", type=lanes, default=range(1), help="whose VGPRs and accesses: 3, or 0..31")
    trace.add_argument("--out", type=Path, help="default: standard output")
    step.add_argument("--commands", type=Path, help="a file of commands instead of standard input")
    return parser.parse_args(arguments[:at]), arguments[at + 1 :] or DEFAULT_MODULE


def run_module(module: list[str]) -> None:
    sys.argv = module
    runpy.run_module(module[0], run_name="__main__", alter_sys=True)


def list_kernels(code_object: Path, kernel: str | None) -> int:
    image = code_object.read_bytes()
    try:
        listings = looking.disassemble(VirtualGpu.load().library, image)
    except ValueError as error:
        print(f"{code_object}: {error}", file=sys.stderr)
        return 1
    chosen = [listing for listing in listings if kernel in (None, listing.kernel)]
    if not chosen:
        names = ", ".join(listing.kernel for listing in listings) or "none"
        print(f"{code_object} has no kernel {kernel}: it has {names}.", file=sys.stderr)
        return 1
    lines = looking.source_lines(image)
    for listing in chosen:
        looking.write_listing(listing, lines, sys.stdout)
    return 0


def main() -> int:
    options, module = parse(sys.argv[1:])
    if options.command == "disassemble":
        return list_kernels(options.code_object, options.kernel)
    library = VirtualGpu.load().library
    where = options.kernel, tuple(options.group), options.wave
    with contextlib.ExitStack() as stack:
        if options.command == "step":
            commands = looking.read_commands(options.commands)
            stepper = looking.Stepper(commands)
            stack.enter_context(looking.watch(library, *where, stepper.see))
            run_module(module)
            return 0
        out = stack.enter_context(options.out.open("w")) if options.out else sys.stdout
        writer = looking.TraceWriter(out, options.lanes)
        with looking.watch(library, *where, writer.see):
            run_module(module)
    if options.out:
        print(f"{writer.instructions} instructions of wave {options.wave} written to {options.out}")
    if not writer.instructions:
        print(f"No such wave ran: {options.kernel}, work-group {options.group}, wave {options.wave}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
