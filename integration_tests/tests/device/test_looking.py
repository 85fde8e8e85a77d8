# SPDX-License-Identifier: MIT
"""Listings, traces and the stepper: what they show is what the compiler wrote and what the wave did."""

import io
import re
import struct
import subprocess
import sys

import pytest

from hub_kernel.build_code_object import Compiler, build_code_object, compile_code_object
from integration_tests.harness.hip_source import compile_hip
from integration_tests.paths import REPOSITORY
from integration_tests.speed.trace import traced
from integration_tests.virtual_gpu import looking

# Each lane stores 3 * x + its number; the second work-group does so in LDS first.
SOURCE = """
extern "C" __global__ void triple(unsigned* memory, unsigned x) {
    __shared__ unsigned kept[32];
    unsigned value = 3 * x + thread_x();
    kept[thread_x()] = value;
    barrier();
    memory[32 * group_x() + thread_x()] = kept[31 - thread_x()];
}
"""


@pytest.fixture
def launch(virtual_gpu):
    """Launches two work-groups of one wave with x = 5, on the memory at `launch.memory`."""
    module = virtual_gpu.load_module(compile_hip(SOURCE))

    def launch():
        virtual_gpu.launch(module.function("triple"), (2,), (32,), struct.pack("QI", launch.memory, 5))

    launch.memory = enough = virtual_gpu.allocate(bytes(256))
    yield launch
    module.unload()
    virtual_gpu.free(enough)


# Listings

# Their operands are numbers here and names there.
NAMED_OPERANDS = ("s_delay_alu", "s_wait_alu", "s_sendmsg", "s_branch", "s_cbranch_")


def compilers_text(assembly: str, kernel: str) -> tuple[list[str], dict[str, int]]:
    """The kernel's instructions as the compiler wrote them, and after how many each label stands."""
    body = re.search(rf"^{kernel}:.*?\n(.*?)^\.Lfunc_end", assembly, re.DOTALL | re.MULTILINE)[1]
    instructions, labels = [], {}
    for line in body.split("\n"):
        text = re.sub(r"\s+", " ", line.split(";")[0].strip())
        if label := re.fullmatch(r"(\.L\w+):", text):
            labels[label[1]] = len(instructions)
        elif re.match(r"[a-z]+_", text):
            instructions.append(re.sub(r"^(\w+?)_(e32|e64|e64_dpp|dpp)\b", r"\1", text))
    return instructions, labels


def test_the_listing_of_the_op_is_the_compilers_assembly(virtual_gpu, tmp_path):
    code_object = build_code_object(tmp_path, keep_assembly=tmp_path / "kernels.s")
    assembly = (tmp_path / "kernels.s").read_text()
    listings = looking.disassemble(virtual_gpu.library, code_object.read_bytes())
    assert len(listings) == 3
    for listing in listings:
        expected, labels = compilers_text(assembly, listing.kernel)
        assert len(listing.instructions) == len(expected)
        offsets = [offset for offset, _ in listing.instructions]
        for (offset, text), wanted in zip(listing.instructions, expected, strict=True):
            if "branch" in wanted:
                name, target = wanted.split()
                assert text == f"{name} {offsets[labels[target]] - offset:+#x}"
            elif wanted.startswith(NAMED_OPERANDS):
                assert text.split()[0] == wanted.split()[0]
            else:
                assert text == wanted


def test_source_lines_stand_in_a_listing_of_code_with_line_tables(virtual_gpu, tmp_path):
    plain, with_lines = tmp_path / "plain.hsaco", tmp_path / "lines.hsaco"
    compile_code_object(Compiler.find("ziglang"), plain)
    compile_code_object(Compiler.find("ziglang"), with_lines, ("-gline-tables-only",))
    assert looking.source_lines(plain.read_bytes()) == {}
    listing = looking.disassemble(virtual_gpu.library, with_lines.read_bytes())[-1]
    out = io.StringIO()
    looking.write_listing(listing, looking.source_lines(with_lines.read_bytes()), out)
    assert out.getvalue().startswith("gfx1201_sage_attention_main:\n")
    source = (REPOSITORY / "aiter_op" / "csrc" / "sage_attention_device.h").read_text().splitlines()
    matrix = re.search(r"; sage_attention_device.h:(\d+)\n[^;]*v_wmma_f32", out.getvalue())
    assert "wmma_f32" in source[int(matrix[1]) - 1]


def test_what_is_no_code_object_is_refused_in_one_sentence(virtual_gpu):
    with pytest.raises(ValueError, match="this is no code object that can be disassembled: "):
        looking.disassemble(virtual_gpu.library, b"not an ELF file")


# Traces

ONE_LANE = range(1)


def trace_of(virtual_gpu, launch, workgroup=(1, 0, 0), lanes=ONE_LANE) -> list[str]:
    out = io.StringIO()
    writer = looking.TraceWriter(out, lanes)
    with looking.watch(virtual_gpu.library, "triple", workgroup, 0, writer.see):
        launch()
    return out.getvalue().splitlines()


def test_a_trace_has_every_instruction_of_the_wave_and_ends_with_the_launch(virtual_gpu, launch):
    lines = trace_of(virtual_gpu, launch)
    listing = looking.disassemble(virtual_gpu.library, compile_hip(SOURCE))[0]
    straight = [f"+0x{offset:05x}  {text}" for offset, text in listing.instructions]  # the kernel has no branch taken
    executed = [line for line in straight if any(traced_line.startswith(line) for traced_line in lines)]
    assert executed[-1].endswith("s_endpgm") and len(lines) == len(executed) + 1
    assert lines[-1] == "; the launch ended"


def test_a_trace_shows_registers_that_changed_and_memory_that_was_touched(virtual_gpu, launch):
    lines = trace_of(virtual_gpu, launch, lanes=range(2, 4))
    (store,) = [line for line in lines if "global_store" in line]
    for lane in (2, 3):
        assert f"[global store 0x{launch.memory + 4 * (32 + lane):x} 4 B lane {lane}]" in store
    (load,) = [line for line in lines if "ds_load" in line]
    # Lane i reads what lane 31 - i has written: 15 + 31 - i.
    assert re.search(r"v\d+=0000002c,0000002b", load) and "LDS load 0x74 4 B lane 2" in load


def test_other_waves_and_kernels_are_not_seen(virtual_gpu, launch):
    assert trace_of(virtual_gpu, launch, workgroup=(2, 0, 0)) == ["; the launch ended"]


def test_a_trace_ends_with_the_fault_of_its_launch(virtual_gpu, launch):
    launch.memory = virtual_gpu.allocate(bytes(4))
    out = io.StringIO()
    with looking.watch(virtual_gpu.library, "triple", (0, 0, 0), 0, looking.TraceWriter(out, range(1)).see):
        with pytest.raises(Exception, match="hipErrorIllegalAddress") as failure:
            launch()
    virtual_gpu.free(launch.memory)
    assert "the launch ended with a fault: global_store_b32 v" in out.getvalue()
    assert re.search(r"wave 0, at triple\+0x[0-9a-f]+", str(failure.value))


def test_an_exception_of_the_watcher_reaches_the_caller(virtual_gpu, launch):
    def see(moment):
        raise KeyError("seen")

    with pytest.raises(KeyError, match="seen"), looking.watch(virtual_gpu.library, "triple", (0, 0, 0), 0, see):
        launch()


# The stepper


def step(virtual_gpu, launch, commands: str) -> str:
    out = io.StringIO()
    stepper = looking.Stepper(io.StringIO(commands), out)
    with looking.watch(virtual_gpu.library, "triple", (1, 0, 0), 0, stepper.see):
        launch()
    return out.getvalue()


def test_the_stepper_stops_at_names_and_offsets_and_shows_registers_lds_and_memory(virtual_gpu, launch):
    listing = looking.disassemble(virtual_gpu.library, compile_hip(SOURCE))[0]
    store = next(offset for offset, text in listing.instructions if text.startswith("global_store"))
    text = step(
        virtual_gpu,
        launch,
        f"break ds_load_b32\ncontinue\nlds 0 4\nprint exec_lo\nbreak +{store:#x}\ncontinue\n"
        f"memory {launch.memory:#x} 1\nprint v0\ncontinue\n",
    )
    assert text.count("ds_load_b32") == 1 and "0x0  0000000f 00000010 00000011 00000012" in text
    assert "exec_lo = ffffffff" in text and f"+0x{store:05x}  global_store_b32" in text
    # The first work-group has stored: its lane 0 what lane 31 had.
    assert f"{launch.memory:#x}  0000002e" in text
    assert text.rstrip().endswith("the launch ended")


def test_the_stepper_goes_on_by_instructions_and_says_what_it_does_not_understand(virtual_gpu, launch):
    text = step(virtual_gpu, launch, "step 2\nprint w3\nstep two\nfly\nquit\n")
    assert "no register 'w3'" in text and "'step two' is not understood" in text and "Unknown syntax: fly" in text
    listing = looking.disassemble(virtual_gpu.library, compile_hip(SOURCE))[0]
    assert f"+0x{listing.instructions[2][0]:05x}  {listing.instructions[2][1]}" in text


# Several observers


def test_a_trace_does_not_displace_the_sanitizer(virtual_gpu, launch):
    source = """
extern "C" __global__ void race(unsigned* memory) {
    __shared__ unsigned one[1];
    one[0] = thread_x();
    memory[0] = one[0];
}
"""
    module = virtual_gpu.load_module(compile_hip(source))
    memory = virtual_gpu.allocate(bytes(256))
    virtual_gpu.sanitize()
    with traced(virtual_gpu) as traces:
        virtual_gpu.launch(module.function("race"), (1,), (64,), struct.pack("Q", memory))
    virtual_gpu.sanitize(False)
    assert traces.of("race").waves == 2
    assert "race" in " ".join(finding.fault for finding in virtual_gpu.findings())
    module.unload()
    virtual_gpu.free(memory)


# The command


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["trace", "--kernel", "gfx1201_sage_statistics", "--out"], r"\d{3,} instructions of wave 0 written to "),
        (["trace", "--group", "9", "0", "0", "--out"], "No such wave ran: gfx1201_sage_attention_main, work-group"),
    ],
)
def test_the_command_traces_one_call_of_the_op(tmp_path, arguments, expected):
    command = [sys.executable, "-m", "integration_tests.virtual_gpu", *arguments, str(tmp_path / "trace.txt")]
    finished = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert re.search(expected, finished.stdout + finished.stderr), finished.stderr
    assert finished.returncode == ("No such wave" in expected)
