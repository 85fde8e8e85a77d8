# SPDX-License-Identifier: MIT
"""An access outside every allocation stops the launch and says where it was and what was near."""

import struct

import pytest

from integration_tests.harness.hip_source import compile_hip
from integration_tests.virtual_gpu import HipError

ILLEGAL_ADDRESS, LAUNCH_FAILURE, NOT_SUPPORTED = 700, 719, 801

# Each thread touches one byte; thread 40 of work-group 1 is in wave 1.
SOURCE = """
extern "C" __global__ void load(unsigned char* memory, long offset) {
    unsigned char value = memory[offset + thread_x()];
    if (value == 77) memory[0] = 1;
}
extern "C" __global__ void store(unsigned char* memory, long offset) { memory[offset + thread_x()] = 1; }
extern "C" __global__ void local(unsigned* memory, long offset) {
    extern __shared__ volatile unsigned shared[];
    shared[thread_x() + offset] = 1;
}
extern "C" __global__ void trap(unsigned* memory, long offset) { __builtin_trap(); }
extern "C" __global__ void unknown(unsigned* memory, long offset) {
    asm volatile(".long 0xffffffff");
}
"""


@pytest.fixture
def launch(virtual_gpu):
    """Launches a kernel of SOURCE with 64 threads on an allocation of 64 bytes, `offset` into it."""
    module = virtual_gpu.load_module(compile_hip(SOURCE))
    memory = virtual_gpu.allocate(bytes(64))

    def launch(kernel, offset, lds=0, address=memory):
        virtual_gpu.launch(module.function(kernel), (1,), (64,), struct.pack("Qq", address, offset), lds=lds)

    yield launch
    module.unload()
    virtual_gpu.free(memory)


@pytest.mark.parametrize("kernel", ["load", "store"])
@pytest.mark.parametrize("offset, where", [(1, "past the end of"), (-1, "before")])
def test_one_byte_outside_an_allocation_is_a_fault(launch, kernel, offset, where):
    launch(kernel, 0)
    with pytest.raises(HipError) as caught:
        launch(kernel, offset)
    text = caught.value.explanation
    assert caught.value.code == ILLEGAL_ADDRESS
    assert where in text and "hipMalloc" in text and "64 bytes" in text
    assert f"kernel {kernel}, work-group (0, 0, 0), wave {1 if offset > 0 else 0}" in text
    assert f"global_{kernel}_" in text and " at 0x" in text and "bytes " in text


def test_a_fault_surfaces_once_and_the_next_launch_works(launch, virtual_gpu):
    with pytest.raises(HipError):
        launch("store", 64)
    launch("store", 0)


def test_freed_memory_is_out_of_bounds(launch, virtual_gpu):
    freed = virtual_gpu.allocate(bytes(64))
    virtual_gpu.free(freed)
    with pytest.raises(HipError) as caught:
        launch("load", 0, address=freed)
    assert caught.value.code == ILLEGAL_ADDRESS


def test_a_freed_tensor_is_out_of_bounds(launch, rocm_torch):
    import torch

    tensor = torch.zeros(64, dtype=torch.uint8)
    launch("store", 0, address=tensor.data_ptr())
    assert torch.all(tensor == 1)
    with pytest.raises(HipError):
        launch("store", 1, address=tensor.data_ptr())
    address = tensor.data_ptr()
    del tensor
    with pytest.raises(HipError):
        launch("store", 0, address=address)


def test_lds_beyond_the_launch_is_out_of_bounds(launch):
    launch("local", 0, lds=256)
    with pytest.raises(HipError) as caught:
        launch("local", 1, lds=256)
    assert caught.value.code == ILLEGAL_ADDRESS
    assert "LDS store of 4 bytes at 0x100: the work-group has 256 bytes" in caught.value.explanation


def test_a_trap_is_a_launch_failure(launch):
    with pytest.raises(HipError) as caught:
        launch("trap", 0)
    assert caught.value.code == LAUNCH_FAILURE


def test_an_unknown_instruction_stops_with_its_address_and_bytes(launch):
    with pytest.raises(HipError) as caught:
        launch("unknown", 0)
    assert caught.value.code == NOT_SUPPORTED
    assert "ffffffff" in caught.value.explanation.replace(" ", "") and "at 0x" in caught.value.explanation
