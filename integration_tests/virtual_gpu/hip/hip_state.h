// SPDX-License-Identifier: MIT
// What the HIP entry points share: devices, handles, errors, launch records. Declares itself what it needs of
// HIP.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "control.h"
#include "core/code_object.h"
#include "core/dispatch.h"

// HIP's error codes, under HIP's names: code, identifier, text.
#define VIRTUAL_GPU_HIP_ERRORS(ERROR)                                                              \
    ERROR(0, hipSuccess, "no error")                                                               \
    ERROR(1, hipErrorInvalidValue, "invalid argument")                                             \
    ERROR(2, hipErrorOutOfMemory, "out of memory")                                                 \
    ERROR(9, hipErrorInvalidConfiguration, "invalid configuration argument")                       \
    ERROR(17, hipErrorInvalidDevicePointer, "invalid device pointer")                              \
    ERROR(98, hipErrorInvalidDeviceFunction, "invalid device function")                            \
    ERROR(101, hipErrorInvalidDevice, "invalid device ordinal")                                    \
    ERROR(200, hipErrorInvalidImage, "device kernel image is invalid")                             \
    ERROR(209, hipErrorNoBinaryForGpu, "no kernel image is available for execution on the device") \
    ERROR(301, hipErrorFileNotFound, "file not found")                                             \
    ERROR(400, hipErrorInvalidHandle, "invalid resource handle")                                   \
    ERROR(500, hipErrorNotFound, "named symbol not found")                                         \
    ERROR(600, hipErrorNotReady, "device not ready")                                               \
    ERROR(700, hipErrorIllegalAddress, "an illegal memory access was encountered")                 \
    ERROR(719, hipErrorLaunchFailure, "unspecified launch failure")                                \
    ERROR(801, hipErrorNotSupported, "operation not supported")                                    \
    ERROR(999, hipErrorUnknown, "unknown error")

enum hipError_t : int {
#define VIRTUAL_GPU_ERROR(code, name, text) name = code,
    VIRTUAL_GPU_HIP_ERRORS(VIRTUAL_GPU_ERROR)
#undef VIRTUAL_GPU_ERROR
};

struct dim3 {
    uint32_t x, y, z;
};

// HIP's opaque handles are pointers to these.
struct ihipStream_t {
    int device;
    uint32_t flags;
};
struct ihipEvent_t {
    bool recorded = false;
    std::chrono::steady_clock::time_point time;
};
struct ihipModule_t;
struct ihipModuleSymbol_t {
    ihipModule_t* module;
    const virtual_gpu::Kernel* kernel;
};
struct ihipModule_t {
    int device;
    std::unique_ptr<virtual_gpu::CodeObject> object;
    std::map<std::string, ihipModuleSymbol_t> functions;
};
using hipStream_t = ihipStream_t*;
using hipEvent_t = ihipEvent_t*;
using hipModule_t = ihipModule_t*;
using hipFunction_t = ihipModuleSymbol_t*;

namespace virtual_gpu {

constexpr uint64_t kDeviceMemoryBytes = uint64_t(32) << 30;
constexpr uint32_t kMaxGrid[3] = {0x7fffffffu, 65536, 65536};

struct DeviceAllocation {
    uint64_t bytes;
    int device;
    bool host;  // from hipHostMalloc
};

struct LaunchRecord {
    std::string kernel;
    uint32_t grid[3];  // work-groups, the last one of an axis possibly partial
    uint32_t block[3];
    uint32_t dynamic_lds_bytes;
    uint64_t stream;
    int device;
    LaunchResult result;
};

// An error with the explanation that HIP's codes leave out; it ends up in virtual_gpu_last_fault().
struct HipFailure {
    hipError_t error;
    std::string explanation;
};
[[noreturn]] inline void fail(hipError_t error, std::string explanation = "") {
    throw HipFailure{error, std::move(explanation)};
}
inline void require(bool condition, hipError_t error, const char* explanation = "") {
    if (!condition) fail(error, explanation);
}

struct Runtime {
    std::recursive_mutex mutex;  // guards everything below; not held while a kernel runs
    std::string arch = "gfx1201";
    int devices = 1;
    std::map<uint64_t, DeviceAllocation> allocations;
    uint64_t allocated_bytes = 0, allocation_count = 0, module_count = 0;
    std::set<hipStream_t> streams;
    std::set<hipEvent_t> events;
    std::map<hipModule_t, std::unique_ptr<ihipModule_t>> modules;
    std::vector<LaunchRecord> records;
    std::string last_fault;
    std::multimap<std::string, hipError_t> failures_to_inject;
    std::atomic<bool> accepts_only{false};  // launches are checked, then neither run nor recorded
};
Runtime& runtime();

int& current_device();     // of this thread
hipError_t& last_error();  // of this thread

// The body of every entry point: injected failures, exceptions to error codes, the thread's last error.
template <typename Body>
hipError_t api(const char* name, Body body);

// A failure prepared by virtual_gpu_fail_next for this entry point, or hipSuccess.
hipError_t take_injected_failure(const char* name);
hipError_t remember(const char* name, hipError_t error, const std::string& explanation);

template <typename Body>
hipError_t api(const char* name, Body body) {
    if (const hipError_t injected = take_injected_failure(name))
        return remember(name, injected, "injected by a test");
    try {
        body();
        return hipSuccess;
    } catch (const HipFailure& failure) {
        return remember(name, failure.error, failure.explanation);
    } catch (const std::exception& error) {
        return remember(name, hipErrorUnknown, error.what());
    }
}

// The device that a stream handle belongs to. The handles that HIP reserves belong to the current device.
int device_of(hipStream_t stream, hipError_t when_invalid);

}  // namespace virtual_gpu
