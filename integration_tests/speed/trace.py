# SPDX-License-Identifier: MIT
"""Traces of launches on the virtual device, and the WGP model that replays them (observers/timing_*.cpp there)."""

import ctypes
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from integration_tests.speed import card as machine
from integration_tests.virtual_gpu import VirtualGpu
from integration_tests.virtual_gpu.binding import ScheduleStep


def _structure(names: bytes, kind: type) -> type[ctypes.Structure]:
    """A C structure of the timing model, with the names that the device gives its fields, in the device's order."""
    return type("Fields", (ctypes.Structure,), {"_fields_": [(name, kind) for name in names.decode().split()]})


Timing = dict[str, float]


@dataclass(frozen=True)
class Step:
    """One instruction of a modelled schedule. `instruction` is its dword position, times are cycles.

    `executed` is the first cycle in which it executes, for vector instructions; 0 for others.
    """

    wave: int
    instruction: int
    issued: int
    executed: int


@dataclass(frozen=True)
class Launch:
    """What one traced launch executed and moved; fields as in virtual_gpu/observers/timing_trace.h."""

    index: int
    kernel: str
    workgroups: int
    waves_per_workgroup: int
    lds_bytes: int
    vgprs: int
    spills: int
    workgroup_processor_mode: int
    lds_cycles: int
    lds_conflict_cycles: int
    lds_bytes_moved: int
    lane_bytes_read: int
    lane_bytes_written: int
    requested_bytes_read: int
    requested_bytes_written: int
    distinct_bytes_read: int
    distinct_bytes_written: int
    executed: dict[str, int] = field(repr=False)

    @property
    def waves(self) -> int:
        return self.workgroups * self.waves_per_workgroup

    def resident_workgroups(self) -> int:
        """Work-groups that one WGP holds at a time, from VGPRs, LDS and wave slots."""
        granule = int(machine.VGPR_GRANULE.value)
        allocated = max(-(-self.vgprs // granule), 1) * granule
        waves_per_simd = min(int(machine.VGPRS_PER_SIMD.value) // allocated, int(machine.WAVES_PER_SIMD.value))
        # In CU mode a work-group's waves share two SIMDs and its LDS is one CU's half.
        parts = 1 if self.workgroup_processor_mode else machine.CUS_PER_WGP
        simds = machine.SIMDS_PER_WGP // parts
        by_waves = waves_per_simd // -(-self.waves_per_workgroup // simds)
        by_lds = int(machine.LDS_BYTES_PER_WGP.value) // parts // self.lds_bytes if self.lds_bytes else by_waves
        return parts * min(by_waves, by_lds)


class Traces:
    """The launches that a `traced` block made; its timings are valid until the next block begins."""

    def __init__(self, gpu: VirtualGpu):
        self.gpu = gpu
        self.launches: list[Launch] = []

    def of(self, kernel: str) -> Launch:
        """The only launch of a kernel. ValueError when there is none or another one."""
        (launch,) = [launch for launch in self.launches if launch.kernel == kernel]
        return launch

    def time(self, launch: Launch, resident: int, total: int, **changed: float) -> Timing:
        """Modelled cycles of one WGP for `total` work-groups, `resident` at a time; `changed` replaces constants."""
        device = self.gpu.library
        result = _structure(device.virtual_gpu_timing_result_names(), ctypes.c_uint64)()
        parameters = self._parameters(changed)
        if device.virtual_gpu_trace_simulate(
            launch.index, resident, total, ctypes.byref(parameters), ctypes.byref(result)
        ):
            raise ValueError(f"{launch.kernel} cannot be modelled: no work-group was recorded, or its waves never end")
        return {name: getattr(result, name) for name, _ in result._fields_}

    def schedule(self, launch: Launch, **changed: float) -> list[Step]:
        """What the waves on a WGP's first SIMD do when one work-group runs alone, in order of issue."""
        steps: list[Step] = []
        tell = ScheduleStep(lambda *values: steps.append(Step(*values)))
        parameters = self._parameters(changed)
        if self.gpu.library.virtual_gpu_trace_schedule(launch.index, ctypes.byref(parameters), tell):
            raise ValueError(f"{launch.kernel} cannot be modelled: no work-group was recorded, or its waves never end")
        return steps

    def _parameters(self, changed: dict[str, float]) -> ctypes.Structure:
        parameters = _structure(self.gpu.library.virtual_gpu_timing_parameter_names(), ctypes.c_uint32)()
        wanted = {name for name, _ in parameters._fields_}
        if wanted != set(machine.TIMING):
            differing = ", ".join(sorted(wanted ^ set(machine.TIMING)))
            raise ValueError(f"the timing model and speed/card.py do not name the same constants: {differing}")
        for name, constant in machine.TIMING.items():
            setattr(parameters, name, round(changed.get(name, constant.value)))
        return parameters


@contextmanager
def traced(gpu: VirtualGpu, workgroups: int = 1) -> Iterator[Traces]:
    """Traces every launch in the block; the waves of the first `workgroups` of each can be timed afterwards."""
    traces = Traces(gpu)
    gpu.library.virtual_gpu_trace_start(workgroups)
    try:
        yield traces
    finally:
        gpu.library.virtual_gpu_trace_stop()
    described = json.loads(gpu.library.virtual_gpu_trace_json())
    traces.launches = [Launch(index=index, **launch) for index, launch in enumerate(described)]
