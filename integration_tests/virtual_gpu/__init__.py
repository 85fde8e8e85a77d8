# SPDX-License-Identifier: MIT
"""The virtual gfx1201: an AMD GPU, emulated on the CPU, behind the HIP runtime's API.

`VirtualGpu.load()` builds the library, makes it the process's `libamdhip64.so.7` and returns the handle by which tests
steer and watch the device. Kernels are launched by whatever code calls HIP, or through `load_module` and `launch` here.
Needs no torch; when torch is loaded, the storage of its CPU tensors is device memory with exact bounds.
"""

import ctypes
import json
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import binding
from .build import build

__all__ = ["Finding", "HipError", "LaunchRecord", "Module", "VirtualGpu", "build"]

# hipDeviceProp_t of HIP 6 and later: its size, and the offsets of what torch also tells about a device.
_PROPERTIES_BYTES = 1472
_TEXT_PROPERTIES = {"name": 0, "gcnArchName": 1160}
_NUMBER_PROPERTIES = {
    "total_memory": (288, "Q"),
    "warp_size": (308, "i"),
    "major": (360, "i"),
    "minor": (364, "i"),
    "multi_processor_count": (388, "i"),
}


class HipError(RuntimeError):
    """A HIP call failed. `code` is HIP's error code; the text ends with the device's explanation, if it has one."""

    def __init__(self, call: str, code: int, name: str, explanation: str):
        super().__init__(f"{call}: {name} ({code})" + (f": {explanation}" if explanation else ""))
        self.code = code
        self.explanation = explanation


@dataclass(frozen=True)
class LaunchRecord:
    """One completed launch. `grid` counts work-groups; `instructions` counts what waves executed, by class."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_lds_bytes: int
    stream: int
    device: int
    uneven_barriers: bool
    instructions: dict[str, int]
    seconds: float


@dataclass(frozen=True)
class Finding:
    """One class of fault at one instruction of one kernel. `text` says what and where it was first."""

    fault: str
    kernel: str
    text: str
    count: int


class Counted:
    """How many launches a `count_launches` block has seen; valid after the block."""

    def __init__(self) -> None:
        self.launches = 0


@dataclass(frozen=True)
class Module:
    """A loaded code object."""

    gpu: "VirtualGpu"
    handle: ctypes.c_void_p

    def function(self, name: str) -> ctypes.c_void_p:
        """The kernel `name`, for `VirtualGpu.launch`. HipError when there is none."""
        function = ctypes.c_void_p()
        self.gpu.hip("hipModuleGetFunction", ctypes.byref(function), self.handle, name.encode())
        return function

    def unload(self) -> None:
        self.gpu.hip("hipModuleUnload", self.handle)


class VirtualGpu:
    """The process's one virtual device. Obtain it with `load`."""

    _loaded: "VirtualGpu | None" = None

    def __init__(self, library: Path):
        self.path = library
        self.library = binding.load(library)

    @classmethod
    def load(cls) -> "VirtualGpu":
        """Builds and loads the device, once per process, and tracks torch's tensors if torch is imported.

        Tensors made before the first call after torch's import stay unknown to the device.
        """
        if cls._loaded is None:
            cls._loaded = cls(build())
        if "torch" in sys.modules and not cls._loaded.library.virtual_gpu_watch_torch():
            raise RuntimeError("torch is imported but its libc10.so was not found, so its tensors cannot be tracked")
        return cls._loaded

    def configure(self, arch: str = "gfx1201", devices: int = 1, schedule_seed: int = 0) -> None:
        """Becomes `devices` devices that report `arch`, features included (`gfx1201:xnack-`). Device 0 is current.

        A `schedule_seed` other than 0 draws the order of work-groups and how their waves take turns.
        """
        self.library.virtual_gpu_configure(arch.encode(), devices)
        self.library.virtual_gpu_set_schedule_seed(schedule_seed)

    def reset(self) -> None:
        """Forgets launch records, findings, the last fault, injected failures and HIP's last error."""
        self.library.virtual_gpu_reset_records()

    def records(self) -> list[LaunchRecord]:
        """The launches completed since the last reset, in order."""
        return [
            LaunchRecord(**{**fields, "grid": tuple(fields["grid"]), "block": tuple(fields["block"])})
            for fields in json.loads(self.library.virtual_gpu_records_json())
        ]

    def sanitize(self, on: bool = True) -> None:
        """Starts or stops the sanitizer, for launches and allocations from now on. See docs/sanitizer.md."""
        self.library.virtual_gpu_sanitize(int(on))

    def fault_classes(self) -> list[str]:
        """Every class of fault that the sanitizer tells apart."""
        return self.library.virtual_gpu_fault_classes().decode().split()

    def findings(self) -> list[Finding]:
        """What the sanitizer found since the last reset, in order of first occurrence."""
        return [Finding(**fields) for fields in json.loads(self.library.virtual_gpu_findings_json())]

    def launches(self, kernel: str) -> int:
        """How often the kernel of this name was launched since the last reset."""
        return sum(record.kernel == kernel for record in self.records())

    @contextmanager
    def count_launches(self, kernel: str | None = None) -> Iterator[Counted]:
        """Counts the launches, of one kernel or of all, that complete inside the block."""
        counted = Counted()
        before = len(self.records())
        yield counted
        counted.launches = sum(kernel in (None, record.kernel) for record in self.records()[before:])

    def last_fault(self) -> str:
        """Why the last call failed, in words; empty when none has since the last reset."""
        return self.library.virtual_gpu_last_fault().decode()

    def fail_next(self, function: str, error: int) -> None:
        """Makes the next call of a HIP function do nothing and return `error`."""
        self.library.virtual_gpu_fail_next(function.encode(), error)

    def reset_torch_peak(self) -> None:
        """Makes the tensor storage that torch holds now the level that `torch_peak` counts from."""
        self.library.virtual_gpu_reset_torch_peak()

    def torch_peak(self) -> int:
        """The most bytes of tensor storage above that level at any time since: a GPU's max_memory_allocated."""
        return self.library.virtual_gpu_torch_peak_bytes()

    @contextmanager
    def accept_only(self) -> Iterator[None]:
        """Checks launches in the block, but neither runs nor records them: what remains is the host's work."""
        self.library.virtual_gpu_accept_only(1)
        try:
            yield
        finally:
            self.library.virtual_gpu_accept_only(0)

    def implemented(self) -> set[tuple[str, str]]:
        """(encoding, mnemonic) of every instruction that the device executes."""
        lines = self.library.virtual_gpu_implemented().decode().split("\n")
        return {(encoding, mnemonic) for encoding, mnemonic in (line.split() for line in lines if line)}

    def hip(self, function: str, *arguments: Any) -> None:
        """Calls a HIP function. HipError unless it returns hipSuccess."""
        code = getattr(self.library, function)(*arguments)
        if code:
            raise HipError(function, code, self.library.hipGetErrorName(code).decode(), self.last_fault())

    def device_count(self) -> int:
        return self._query_int("hipGetDeviceCount")

    def current_device(self) -> int:
        return self._query_int("hipGetDevice")

    def set_device(self, device: int) -> None:
        self.hip("hipSetDevice", device)

    def device_properties(self, device: int) -> dict[str, int | str]:
        """What HIP says about a device, under the names of torch's device properties."""
        buffer = ctypes.create_string_buffer(_PROPERTIES_BYTES)
        self.hip("hipGetDevicePropertiesR0600", buffer, device)
        text = {name: ctypes.string_at(ctypes.addressof(buffer) + at).decode() for name, at in _TEXT_PROPERTIES.items()}
        numbers = {name: struct.unpack_from(code, buffer, at)[0] for name, (at, code) in _NUMBER_PROPERTIES.items()}
        return {**text, **numbers}

    def add_allocation(self, address: int, size: int, name: str) -> None:
        """Lets kernels access host memory that neither HIP nor torch's allocator gave out."""
        self.library.virtual_gpu_add_allocation(address, size, name.encode())

    def remove_allocation(self, address: int) -> None:
        """Ends what `add_allocation` began."""
        self.library.virtual_gpu_remove_allocation(address)

    def create_stream(self) -> int:
        """The handle of a new stream of the current device."""
        stream = ctypes.c_void_p()
        self.hip("hipStreamCreate", ctypes.byref(stream))
        return stream.value

    def allocate(self, contents: bytes) -> int:
        """The address of a new device allocation that holds `contents` and ends right after them."""
        address = ctypes.c_void_p()
        self.hip("hipMalloc", ctypes.byref(address), ctypes.c_size_t(len(contents)))
        ctypes.memmove(address, contents, len(contents))
        return address.value

    def _query_int(self, function: str) -> int:
        value = ctypes.c_int()
        self.hip(function, ctypes.byref(value))
        return value.value

    def read(self, address: int, size: int) -> bytes:
        """`size` bytes of device memory."""
        return ctypes.string_at(address, size)

    def free(self, address: int) -> None:
        self.hip("hipFree", ctypes.c_void_p(address))

    def load_module(self, image: bytes) -> Module:
        """Loads a code object or an offload bundle on the current device. HipError when it cannot run there."""
        handle = ctypes.c_void_p()
        self.hip("hipModuleLoadData", ctypes.byref(handle), image)
        return Module(self, handle)

    def launch(
        self,
        function: ctypes.c_void_p,
        grid: Sequence[int],
        block: Sequence[int],
        arguments: bytes,
        lds: int = 0,
        stream: int = 0,
    ) -> None:
        """Launches a kernel and waits. HipError when it faults.

        `grid` counts work-groups and, like `block`, may leave out trailing ones. `arguments` is the argument buffer in
        C layout: `struct.pack` without a byte-order prefix pads as C does. `lds` is dynamic LDS in bytes.
        """
        size = ctypes.c_size_t(len(arguments))
        buffer = ctypes.create_string_buffer(arguments, len(arguments) or 1)
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 3)
        sizes = [*grid, *[1] * (3 - len(grid)), *block, *[1] * (3 - len(block))]
        handle = ctypes.c_void_p(stream)
        self.hip("hipModuleLaunchKernel", function, *map(ctypes.c_uint, sizes), ctypes.c_uint(lds), handle, None, extra)
