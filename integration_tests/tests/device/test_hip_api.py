# SPDX-License-Identifier: MIT
"""The HIP entry points that deliveries call, through ctypes as C callers see them."""

import ctypes
import mmap
import struct

import pytest

from integration_tests.harness.hip_source import compile_hip
from integration_tests.virtual_gpu import HipError

INVALID_VALUE, INVALID_CONFIGURATION, INVALID_DEVICE, INVALID_IMAGE, NO_BINARY, NOT_FOUND = 1, 9, 101, 200, 209, 500

SOURCE = """
extern "C" __global__ void kernel(unsigned* out, unsigned value) { out[thread_x()] = value + thread_x(); }
"""
BUNDLE_MAGIC = b"__CLANG_OFFLOAD_BUNDLE__"


def offload_bundle(code_object: bytes, target: bytes = b"hipv4-amdgcn-amd-amdhsa--gfx1201") -> bytes:
    """What clang puts into a host object: an empty host entry, then the code object on a page of its own."""
    host = b"host-x86_64-unknown-linux-gnu-"
    entries = struct.pack("<QQQ", 4096, 0, len(host)) + host
    entries += struct.pack("<QQQ", 4096, len(code_object), len(target)) + target
    header = BUNDLE_MAGIC + struct.pack("<Q", 2) + entries
    return header.ljust(4096, b"\0") + code_object


@pytest.fixture
def out(virtual_gpu):
    """The address of 64 zeroed words."""
    address = virtual_gpu.allocate(bytes(256))
    yield address
    virtual_gpu.free(address)


def words(gpu, address):
    return list(struct.unpack("64I", gpu.read(address, 256)))


def test_arguments_arrive_by_pointer_array(virtual_gpu, out):
    function = virtual_gpu.load_module(compile_hip(SOURCE)).function("kernel")
    pointer, value = ctypes.c_uint64(out), ctypes.c_uint32(7)
    parameters = (ctypes.c_void_p * 2)(ctypes.addressof(pointer), ctypes.addressof(value))
    virtual_gpu.hip("hipModuleLaunchKernel", function, 1, 1, 1, 64, 1, 1, 0, None, parameters, None)
    assert words(virtual_gpu, out) == [7 + i for i in range(64)]


@pytest.mark.parametrize("target", [b"hipv4-amdgcn-amd-amdhsa--gfx1201", b"hipv4-amdgcn-amd-amdhsa--gfx1201:xnack-"])
def test_offload_bundles_load(virtual_gpu, out, target):
    module = virtual_gpu.load_module(offload_bundle(compile_hip(SOURCE), target))
    virtual_gpu.launch(module.function("kernel"), (1,), (64,), struct.pack("QI", out, 5))
    assert words(virtual_gpu, out)[63] == 68


def test_registered_fat_binary_launches_by_host_function(virtual_gpu, out):
    # What a HIP host object does before main and at each <<<>>>.
    class Wrapper(ctypes.Structure):
        _fields_ = [("magic", ctypes.c_uint32), ("version", ctypes.c_uint32), ("binary", ctypes.c_char_p)]
        _fields_ += [("unused", ctypes.c_void_p)]

    wrapper = Wrapper(0x48495046, 1, offload_bundle(compile_hip(SOURCE)), None)
    host_function = ctypes.create_string_buffer(8)
    library = virtual_gpu.library
    library.__hipRegisterFatBinary.restype = ctypes.c_void_p
    modules = ctypes.c_void_p(library.__hipRegisterFatBinary(ctypes.byref(wrapper)))
    nothing = [None] * 5
    library.__hipRegisterFunction(modules, host_function, b"kernel", b"kernel", ctypes.c_uint(-1), *nothing)

    class Dim3(ctypes.Structure):
        _fields_ = [(axis, ctypes.c_uint32) for axis in "xyz"]

    pointer, value = ctypes.c_uint64(out), ctypes.c_uint32(9)
    parameters = (ctypes.c_void_p * 2)(ctypes.addressof(pointer), ctypes.addressof(value))
    try:
        lds = ctypes.c_size_t(0)
        virtual_gpu.hip("hipLaunchKernel", host_function, Dim3(1, 1, 1), Dim3(64, 1, 1), parameters, lds, None)
        assert words(virtual_gpu, out)[0] == 9
    finally:
        library.__hipUnregisterFatBinary(modules)


def refusal(gpu, image):
    with pytest.raises(HipError) as caught:
        gpu.load_module(image)
    return caught.value.code


def test_code_for_another_architecture_is_refused(virtual_gpu):
    code_object = compile_hip(SOURCE)
    virtual_gpu.configure(arch="gfx1100")
    assert refusal(virtual_gpu, code_object) == NO_BINARY
    virtual_gpu.configure()
    assert refusal(virtual_gpu, offload_bundle(code_object, b"hipv4-amdgcn-amd-amdhsa--gfx942")) == NO_BINARY


def test_damaged_images_are_refused(virtual_gpu):
    code_object = compile_hip(SOURCE)
    assert refusal(virtual_gpu, b"not a code object".ljust(4096, b"\0")) in (INVALID_IMAGE, NO_BINARY)
    damaged = bytearray(code_object)
    damaged[0x20:0x28] = struct.pack("<Q", 2**63)  # e_phoff: program headers far outside the file
    assert refusal(virtual_gpu, bytes(damaged)) in (INVALID_IMAGE, NO_BINARY)


def test_a_missing_kernel_is_named_by_its_error(virtual_gpu):
    module = virtual_gpu.load_module(compile_hip(SOURCE))
    with pytest.raises(HipError, match="hipErrorNotFound") as caught:
        module.function("no_such_kernel")
    assert caught.value.code == NOT_FOUND


@pytest.mark.parametrize(
    "grid, block, lds", [((1, 1, 1), (2048, 1, 1), 0), ((1, 1, 1), (64, 1, 1), 65537), ((0, 1, 1), (64, 1, 1), 0)]
)
def test_launches_that_no_gpu_could_run_are_refused(virtual_gpu, out, grid, block, lds):
    function = virtual_gpu.load_module(compile_hip(SOURCE)).function("kernel")
    with pytest.raises(HipError) as caught:
        virtual_gpu.launch(function, grid, block, struct.pack("QI", out, 1), lds=lds)
    assert caught.value.code in (INVALID_VALUE, INVALID_CONFIGURATION)
    assert virtual_gpu.records() == [] and words(virtual_gpu, out) == [0] * 64


def test_architecture_name_and_device_count_are_what_was_configured(virtual_gpu):
    virtual_gpu.configure(arch="gfx1201:sramecc+:xnack-", devices=2)
    assert virtual_gpu.device_count() == 2
    assert virtual_gpu.device_properties(1)["gcnArchName"] == "gfx1201:sramecc+:xnack-"
    with pytest.raises(HipError) as caught:
        virtual_gpu.set_device(2)
    assert caught.value.code == INVALID_DEVICE


def test_a_module_runs_only_on_the_device_it_was_loaded_on(virtual_gpu, out):
    virtual_gpu.configure(devices=2)
    function = virtual_gpu.load_module(compile_hip(SOURCE)).function("kernel")
    virtual_gpu.set_device(1)
    with pytest.raises(HipError):
        virtual_gpu.launch(function, (1,), (64,), struct.pack("QI", out, 1))
    virtual_gpu.set_device(0)
    virtual_gpu.launch(function, (1,), (64,), struct.pack("QI", out, 1))


@pytest.mark.finds("global-race")  # all work-groups store the same
def test_records_name_stream_and_device(virtual_gpu, out):
    virtual_gpu.configure(devices=2)
    virtual_gpu.set_device(1)
    stream = virtual_gpu.create_stream()
    function = virtual_gpu.load_module(compile_hip(SOURCE)).function("kernel")
    virtual_gpu.launch(function, (3, 2), (64,), struct.pack("QI", out, 1), stream=stream)
    (record,) = virtual_gpu.records()
    assert (record.kernel, record.grid, record.block) == ("kernel", (3, 2, 1), (64, 1, 1))
    assert (record.stream, record.device) == (stream, 1)
    assert sum(record.instructions.values()) > 0


def test_an_injected_failure_happens_once_with_hips_text(virtual_gpu, out):
    function = virtual_gpu.load_module(compile_hip(SOURCE)).function("kernel")
    virtual_gpu.fail_next("hipModuleLaunchKernel", 719)
    with pytest.raises(HipError, match="hipErrorLaunchFailure"):
        virtual_gpu.launch(function, (1,), (64,), struct.pack("QI", out, 1))
    assert virtual_gpu.library.hipGetErrorString(719) == b"unspecified launch failure"
    assert virtual_gpu.records() == []
    virtual_gpu.launch(function, (1,), (64,), struct.pack("QI", out, 1))
    assert words(virtual_gpu, out)[1] == 2


def test_memory_copies_and_fills_reach_device_memory(virtual_gpu, out):
    host = (ctypes.c_uint32 * 64)(*range(64))
    to_device, to_host = 1, 2
    virtual_gpu.hip("hipMemcpy", ctypes.c_void_p(out), host, ctypes.c_size_t(256), to_device)
    virtual_gpu.hip("hipMemset", ctypes.c_void_p(out), 0xFF, ctypes.c_size_t(8))
    back = (ctypes.c_uint32 * 64)()
    virtual_gpu.hip("hipMemcpy", back, ctypes.c_void_p(out), ctypes.c_size_t(256), to_host)
    assert list(back) == [0xFFFFFFFF] * 2 + list(range(2, 64))


def test_events_and_streams_answer(virtual_gpu):
    stream = ctypes.c_void_p(virtual_gpu.create_stream())
    events = [ctypes.c_void_p(), ctypes.c_void_p()]
    for event in events:
        virtual_gpu.hip("hipEventCreate", ctypes.byref(event))
        virtual_gpu.hip("hipEventRecord", event, stream)
    virtual_gpu.hip("hipEventSynchronize", events[1])
    milliseconds = ctypes.c_float(-1)
    virtual_gpu.hip("hipEventElapsedTime", ctypes.byref(milliseconds), *events)
    assert milliseconds.value >= 0
    virtual_gpu.hip("hipStreamSynchronize", stream)
    virtual_gpu.hip("hipStreamDestroy", stream)


@pytest.mark.parametrize("step", [97, pytest.param(1, marks=pytest.mark.slow)])
def test_an_image_cut_short_anywhere_never_crashes(virtual_gpu, step):
    # HIP takes no length, so what is missing reads as whatever follows in memory: zeros here.
    code_object = compile_hip(SOURCE)
    for length in range(64, len(code_object), step):
        try:
            virtual_gpu.load_module(code_object[:length].ljust(len(code_object), b"\0")).unload()
        except HipError as error:
            assert error.code in (INVALID_IMAGE, NO_BINARY)


def test_an_image_is_not_read_beyond_mapped_memory(virtual_gpu):
    # The image ends where readable memory ends, so whoever trusts its headers is killed.
    code_object = compile_hip(SOURCE)
    size = -(-len(code_object) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, size + mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    assert protect(ctypes.c_void_p(start + size), ctypes.c_size_t(mmap.PAGESIZE), 0) == 0
    for length in (1, 3, 4, 24, 63, 64, 120, *range(200, len(code_object), 499)):
        for image in (code_object[:length], offload_bundle(code_object)[:length]):
            memory[size - length : size] = image
            handle = ctypes.c_void_p()
            address = ctypes.c_void_p(start + size - length)
            code = virtual_gpu.library.hipModuleLoadData(ctypes.byref(handle), address)
            # A code object that lacks only its end may still hold everything that is loaded.
            assert code in (INVALID_IMAGE, NO_BINARY) or length > len(code_object) // 2


def test_variables_are_found_and_pointers_to_them_relocated(virtual_gpu):
    source = """
    extern "C" __device__ unsigned counters[3] = {40, 41, 42};
    __device__ unsigned* volatile pointer = &counters[1];
    extern "C" __global__ void kernel() { *pointer += 100; }
    """
    module = virtual_gpu.load_module(compile_hip(source))
    virtual_gpu.launch(module.function("kernel"), (1,), (1,), b"")
    address, size = ctypes.c_void_p(), ctypes.c_size_t()
    virtual_gpu.hip("hipModuleGetGlobal", ctypes.byref(address), ctypes.byref(size), module.handle, b"counters")
    assert struct.unpack("3I", virtual_gpu.read(address.value, size.value)) == (40, 141, 42)
    assert virtual_gpu.library.hipModuleGetGlobal(None, None, module.handle, b"counter") == NOT_FOUND


def test_a_multiprocessor_holds_what_registers_and_lds_allow(virtual_gpu):
    source = """
    extern "C" __global__ void small(unsigned* out) { out[thread_x()] = 1; }
    extern "C" __global__ void shared(unsigned* out) {
        volatile __shared__ unsigned cells[5120];
        out[thread_x()] = cells[thread_x()];
    }
    """
    module = virtual_gpu.load_module(compile_hip(source))

    def blocks(kernel, block, lds):
        count = ctypes.c_int()
        query = "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor"
        virtual_gpu.hip(query, ctypes.byref(count), module.function(kernel), block, ctypes.c_size_t(lds))
        return count.value

    # 2 SIMDs of 16 waves each when few registers are used; 64 KiB of LDS.
    assert blocks("small", 32, 0) == 32
    assert blocks("small", 256, 0) == 4
    assert blocks("small", 32, 20000) == 3
    assert blocks("shared", 32, 0) == 3  # 20,480 bytes each
    assert blocks("shared", 32, 20480) == 1


def test_last_error_is_kept_until_it_is_read(virtual_gpu):
    library = virtual_gpu.library
    assert library.hipSetDevice(7) == INVALID_DEVICE
    assert library.hipDeviceSynchronize() == 0
    assert library.hipPeekAtLastError() == INVALID_DEVICE
    assert library.hipGetLastError() == INVALID_DEVICE
    assert library.hipGetLastError() == 0
