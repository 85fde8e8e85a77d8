// SPDX-License-Identifier: MIT
// The HIP runtime's devices, memory, streams, events and errors. Work is finished when a call returns, so
// waiting is trivial; host memory is device memory.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "core/fresh_memory.h"
#include "core/memory.h"
#include "hip/hip_state.h"

namespace virtual_gpu {

Runtime& runtime() {
    static auto* instance = new Runtime;  // never destroyed: libraries unregister their kernels at exit
    return *instance;
}

int& current_device() {
    thread_local int device = 0;
    return device;
}

hipError_t& last_error() {
    thread_local hipError_t error = hipSuccess;
    return error;
}

hipError_t take_injected_failure(const char* name) {
    Runtime& state = runtime();
    std::lock_guard lock(state.mutex);
    const auto found = state.failures_to_inject.find(name);
    if (found == state.failures_to_inject.end()) return hipSuccess;
    const hipError_t error = found->second;
    state.failures_to_inject.erase(found);
    return error;
}

hipError_t remember(const char* name, hipError_t error, const std::string& explanation) {
    last_error() = error;
    if (!explanation.empty()) {
        Runtime& state = runtime();
        std::lock_guard lock(state.mutex);
        state.last_fault = explanation;
        std::fprintf(stderr, "virtual gfx1201: %s: %s\n", name, explanation.c_str());
    }
    return error;
}

int device_of(hipStream_t stream, hipError_t when_invalid) {
    const auto value = reinterpret_cast<uintptr_t>(stream);
    constexpr uintptr_t kLegacyStream = 1, kPerThreadStream = 2;
    if (value == 0 || value == kLegacyStream || value == kPerThreadStream) return current_device();
    Runtime& state = runtime();
    std::lock_guard lock(state.mutex);
    require(state.streams.count(stream), when_invalid, "the stream handle is not a live stream");
    return stream->device;
}

namespace {

constexpr int kHipVersion = 70253211;  // 7.2.53211: major * 10,000,000 + minor * 100,000 + patch

// Facts about the device that more than one query returns.
constexpr int kCompute[2] = {12, 0};
constexpr int kComputeUnits = 64;
constexpr int kMultiprocessors = kComputeUnits / 2;  // HIP counts work-group processors
constexpr int kClockKilohertz = 2920000;
constexpr int kMemoryClockKilohertz = 1258000;
constexpr int kMemoryBusBits = 256;
constexpr int kL2Bytes = 8 << 20;
constexpr int kRegistersPerBlock = 1536 * 32 * 4;
constexpr int kThreadsPerMultiprocessor = 2048;
constexpr char kName[] = "virtual AMD Radeon AI PRO R9700";

void check_device(int device) {
    std::lock_guard lock(runtime().mutex);
    require(device >= 0 && device < runtime().devices, hipErrorInvalidDevice, "no such device");
}

// hipDeviceProp_t as of HIP 6 ("R0600"): its size, and the offsets of the fields that are not zero here.
constexpr size_t kPropertiesBytes = 1472;

void fill_properties(uint8_t* properties) {
    std::memset(properties, 0, kPropertiesBytes);
    const auto put = [&](size_t offset, auto value) {
        std::memcpy(properties + offset, &value, sizeof value);
    };
    std::memcpy(properties, kName, sizeof kName);
    put(288, kDeviceMemoryBytes);      // totalGlobalMem
    put(296, uint64_t(kMaxLdsBytes));  // sharedMemPerBlock
    put(304, kRegistersPerBlock);      // regsPerBlock
    put(308, int(kLanes));             // warpSize
    put(312, uint64_t(0x7fffffff));    // memPitch
    put(320, int(kMaxWorkgroupSize));  // maxThreadsPerBlock
    for (int axis = 0; axis < 3; ++axis) {
        put(324 + 4 * axis, int(kMaxWorkgroupSize));  // maxThreadsDim
        put(336 + 4 * axis, int(kMaxGrid[axis]));     // maxGridSize
    }
    put(348, kClockKilohertz);            // clockRate
    put(352, uint64_t(0x7fffffff));       // totalConstMem
    put(360, kCompute[0]);                // major
    put(364, kCompute[1]);                // minor
    put(388, kMultiprocessors);           // multiProcessorCount
    put(400, 1);                          // canMapHostMemory
    put(576, 1);                          // concurrentKernels
    put(604, 1);                          // unifiedAddressing
    put(608, kMemoryClockKilohertz);      // memoryClockRate
    put(612, kMemoryBusBits);             // memoryBusWidth
    put(616, kL2Bytes);                   // l2CacheSize
    put(624, kThreadsPerMultiprocessor);  // maxThreadsPerMultiProcessor
    put(640, uint64_t(kMaxLdsBytes));     // sharedMemPerMultiprocessor
    put(648, kRegistersPerBlock);         // regsPerMultiprocessor
    put(696, uint64_t(kMaxLdsBytes));     // sharedMemPerBlockOptin
    put(744, 1);                          // memoryPoolsSupported
    std::lock_guard lock(runtime().mutex);
    std::strncpy(reinterpret_cast<char*>(properties) + 1160, runtime().arch.c_str(), 255);  // gcnArchName
    put(1416, uint64_t(kMaxLdsBytes));  // maxSharedMemoryPerMultiProcessor
}

// hipDeviceAttribute_t by number; attributes that are not listed are refused.
int device_attribute(int attribute, int device) {
    switch (attribute) {
        case 5:
            return kClockKilohertz;  // ClockRate
        case 8:
            return 1;  // ConcurrentKernels
        case 10:
            return 0;  // CooperativeLaunch
        case 16:
            return 0;  // Integrated
        case 19:
            return kL2Bytes;  // L2CacheSize
        case 23:
            return kCompute[0];  // ComputeCapabilityMajor
        case 24:
            return 0;  // ManagedMemory
        case 26:
        case 27:
        case 28:
            return kMaxWorkgroupSize;  // MaxBlockDimX, Y, Z
        case 29:
        case 30:
        case 31:
            return int(kMaxGrid[attribute - 29]);  // MaxGridDimX, Y, Z
        case 56:
            return kMaxWorkgroupSize;  // MaxThreadsPerBlock
        case 57:
            return kThreadsPerMultiprocessor;  // MaxThreadsPerMultiProcessor
        case 59:
            return kMemoryBusBits;  // MemoryBusWidth
        case 60:
            return kMemoryClockKilohertz;  // MemoryClockRate
        case 61:
            return kCompute[1];  // ComputeCapabilityMinor
        case 63:
            return kMultiprocessors;  // MultiprocessorCount
        case 67:
            return device + 1;  // PciBusId
        case 71:
        case 72:
            return kRegistersPerBlock;  // MaxRegistersPerBlock, PerMultiprocessor
        case 74:
        case 75:
        case 76:
            return kMaxLdsBytes;  // MaxSharedMemoryPerBlock, PerBlockOptin, PerMultiprocessor
        case 85:
            return 1;  // UnifiedAddressing
        case 87:
            return kLanes;  // WarpSize
        case 88:
            return 1;  // MemoryPoolsSupported
        case 10002:
            return kMaxLdsBytes;  // MaxSharedMemoryPerMultiprocessor
        default:
            fail(hipErrorInvalidValue, "device attribute " + std::to_string(attribute) + " is not modelled");
    }
}

void* allocate(size_t bytes, const char* kind, bool host) {
    if (bytes == 0) return nullptr;
    // Freshly allocated device memory holds anything: this pattern is NaN in every float format.
    constexpr int kFreshByte = 0xff;
    // Neighbours must not touch, or an overrun would land in the next allocation.
    constexpr size_t kAlignment = 256, kGap = 256;
    Runtime& state = runtime();
    std::lock_guard lock(state.mutex);
    require(bytes <= kDeviceMemoryBytes - state.allocated_bytes, hipErrorOutOfMemory);
    void* memory = nullptr;
    require(posix_memalign(&memory, kAlignment, bytes + kGap) == 0, hipErrorOutOfMemory);
    if (watching_fresh_memory())
        fill_fresh(memory, bytes);
    else
        std::memset(memory, kFreshByte, bytes);
    const auto address = reinterpret_cast<uint64_t>(memory);
    state.allocations[address] = {bytes, current_device(), host};
    state.allocated_bytes += bytes;
    add_allocation(address, bytes, kind + std::string(" #") + std::to_string(++state.allocation_count));
    return memory;
}

void release(void* memory) {
    if (!memory) return;
    Runtime& state = runtime();
    std::lock_guard lock(state.mutex);
    const auto address = reinterpret_cast<uint64_t>(memory);
    const auto found = state.allocations.find(address);
    require(found != state.allocations.end(), hipErrorInvalidValue,
            "the pointer to free is not a live allocation");
    const uint64_t bytes = found->second.bytes;
    state.allocated_bytes -= bytes;
    state.allocations.erase(found);
    remove_allocation(address);
    free_later(memory, bytes);
}

// The HIP allocation that holds `pointer`, or nullptr. Its begin is left in `begin`.
const DeviceAllocation* find_device_allocation(const void* pointer, uint64_t& begin) {
    const auto address = reinterpret_cast<uint64_t>(pointer);
    auto above = runtime().allocations.upper_bound(address);
    if (above == runtime().allocations.begin()) return nullptr;
    --above;
    begin = above->first;
    return address < begin + above->second.bytes ? &above->second : nullptr;
}

// As in HIP: an access through an allocation that HIP knows must stay inside it.
void check_range(const void* pointer, size_t bytes) {
    require(pointer || !bytes, hipErrorInvalidValue, "null pointer");
    std::lock_guard lock(runtime().mutex);
    uint64_t begin = 0;
    const DeviceAllocation* allocation = find_device_allocation(pointer, begin);
    if (!allocation) return;
    const uint64_t offset = reinterpret_cast<uint64_t>(pointer) - begin;
    require(bytes <= allocation->bytes - offset, hipErrorInvalidValue, "the range leaves its allocation");
}

void copy(void* to, const void* from, size_t bytes) {
    check_range(to, bytes);
    check_range(from, bytes);
    std::memmove(to, from, bytes);
}

template <typename T>
void fill(void* to, T value, size_t count) {
    require(count <= SIZE_MAX / sizeof value, hipErrorInvalidValue, "the count overflows");
    check_range(to, count * sizeof value);
    std::fill_n(static_cast<T*>(to), count, value);
}

void create_stream(hipStream_t* stream, uint32_t flags) {
    require(stream, hipErrorInvalidValue);
    std::lock_guard lock(runtime().mutex);
    *stream = new ihipStream_t{current_device(), flags};
    runtime().streams.insert(*stream);
}

void create_event(hipEvent_t* event) {
    require(event, hipErrorInvalidValue);
    std::lock_guard lock(runtime().mutex);
    *event = new ihipEvent_t;
    runtime().events.insert(*event);
}

void check_event(hipEvent_t event) {
    std::lock_guard lock(runtime().mutex);
    require(runtime().events.count(event), hipErrorInvalidHandle, "the event handle is not a live event");
}

}  // namespace
}  // namespace virtual_gpu

using namespace virtual_gpu;

// --- Devices ---

VIRTUAL_GPU_API hipError_t hipInit(unsigned flags) {
    return api("hipInit", [&] { require(flags == 0, hipErrorInvalidValue); });
}
VIRTUAL_GPU_API hipError_t hipDriverGetVersion(int* version) {
    return api("hipDriverGetVersion", [&] { *version = kHipVersion; });
}
VIRTUAL_GPU_API hipError_t hipRuntimeGetVersion(int* version) {
    return api("hipRuntimeGetVersion", [&] { *version = kHipVersion; });
}
VIRTUAL_GPU_API hipError_t hipGetDeviceCount(int* count) {
    return api("hipGetDeviceCount", [&] {
        require(count, hipErrorInvalidValue);
        *count = runtime().devices;
    });
}
VIRTUAL_GPU_API hipError_t hipGetDevice(int* device) {
    return api("hipGetDevice", [&] {
        require(device, hipErrorInvalidValue);
        *device = current_device();
    });
}
VIRTUAL_GPU_API hipError_t hipSetDevice(int device) {
    return api("hipSetDevice", [&] {
        check_device(device);
        current_device() = device;
    });
}
VIRTUAL_GPU_API hipError_t hipDeviceSynchronize() {
    return api("hipDeviceSynchronize", [] {});
}
VIRTUAL_GPU_API hipError_t hipDeviceGet(int* device, int ordinal) {
    return api("hipDeviceGet", [&] {
        check_device(ordinal);
        *device = ordinal;
    });
}
VIRTUAL_GPU_API hipError_t hipDeviceGetAttribute(int* value, int attribute, int device) {
    return api("hipDeviceGetAttribute", [&] {
        require(value, hipErrorInvalidValue);
        check_device(device);
        *value = device_attribute(attribute, device);
    });
}
VIRTUAL_GPU_API hipError_t hipGetDevicePropertiesR0600(void* properties, int device) {
    return api("hipGetDevicePropertiesR0600", [&] {
        require(properties, hipErrorInvalidValue);
        check_device(device);
        fill_properties(static_cast<uint8_t*>(properties));
        std::memcpy(static_cast<uint8_t*>(properties) + 584, &++device, sizeof device);  // pciBusID
    });
}
VIRTUAL_GPU_API hipError_t hipDeviceGetName(char* name, int bytes, int device) {
    return api("hipDeviceGetName", [&] {
        require(name && bytes > 0, hipErrorInvalidValue);
        check_device(device);
        std::snprintf(name, size_t(bytes), "%s", kName);
    });
}
VIRTUAL_GPU_API hipError_t hipDeviceTotalMem(size_t* bytes, int device) {
    return api("hipDeviceTotalMem", [&] {
        require(bytes, hipErrorInvalidValue);
        check_device(device);
        *bytes = kDeviceMemoryBytes;
    });
}
VIRTUAL_GPU_API hipError_t hipMemGetInfo(size_t* available, size_t* total) {
    return api("hipMemGetInfo", [&] {
        require(available && total, hipErrorInvalidValue);
        std::lock_guard lock(runtime().mutex);
        *available = kDeviceMemoryBytes - runtime().allocated_bytes;
        *total = kDeviceMemoryBytes;
    });
}

// --- Memory ---

VIRTUAL_GPU_API hipError_t hipMalloc(void** memory, size_t bytes) {
    return api("hipMalloc", [&] {
        require(memory, hipErrorInvalidValue);
        *memory = allocate(bytes, "hipMalloc", false);
    });
}
VIRTUAL_GPU_API hipError_t hipMallocAsync(void** memory, size_t bytes, hipStream_t stream) {
    return api("hipMallocAsync", [&] {
        require(memory, hipErrorInvalidValue);
        device_of(stream, hipErrorInvalidValue);
        *memory = allocate(bytes, "hipMallocAsync", false);
    });
}
VIRTUAL_GPU_API hipError_t hipHostMalloc(void** memory, size_t bytes, unsigned) {
    return api("hipHostMalloc", [&] {
        require(memory, hipErrorInvalidValue);
        *memory = allocate(bytes, "hipHostMalloc", true);
    });
}
VIRTUAL_GPU_API hipError_t hipFree(void* memory) {
    return api("hipFree", [&] { release(memory); });
}
VIRTUAL_GPU_API hipError_t hipFreeAsync(void* memory, hipStream_t stream) {
    return api("hipFreeAsync", [&] {
        device_of(stream, hipErrorInvalidValue);
        release(memory);
    });
}
VIRTUAL_GPU_API hipError_t hipHostFree(void* memory) {
    return api("hipHostFree", [&] { release(memory); });
}

VIRTUAL_GPU_API hipError_t hipMemcpy(void* to, const void* from, size_t bytes, int) {
    return api("hipMemcpy", [&] { copy(to, from, bytes); });
}
VIRTUAL_GPU_API hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, int, hipStream_t stream) {
    return api("hipMemcpyAsync", [&] {
        device_of(stream, hipErrorInvalidValue);
        copy(to, from, bytes);
    });
}
VIRTUAL_GPU_API hipError_t hipMemcpyWithStream(void* to, const void* from, size_t bytes, int,
                                               hipStream_t stream) {
    return api("hipMemcpyWithStream", [&] {
        device_of(stream, hipErrorInvalidValue);
        copy(to, from, bytes);
    });
}

// The driver-style copies differ only in what their names promise about the two sides.
#define VIRTUAL_GPU_COPY(name)                                                                             \
    VIRTUAL_GPU_API hipError_t name(void* to, const void* from, size_t bytes) {                            \
        return api(#name, [&] { copy(to, from, bytes); });                                                 \
    }                                                                                                      \
    VIRTUAL_GPU_API hipError_t name##Async(void* to, const void* from, size_t bytes, hipStream_t stream) { \
        return api(#name "Async", [&] {                                                                    \
            device_of(stream, hipErrorInvalidValue);                                                       \
            copy(to, from, bytes);                                                                         \
        });                                                                                                \
    }
VIRTUAL_GPU_COPY(hipMemcpyHtoD)
VIRTUAL_GPU_COPY(hipMemcpyDtoH)
VIRTUAL_GPU_COPY(hipMemcpyDtoD)
#undef VIRTUAL_GPU_COPY

#define VIRTUAL_GPU_FILL(name, Parameter, Element)                                                        \
    VIRTUAL_GPU_API hipError_t name(void* to, Parameter value, size_t count) {                            \
        return api(#name, [&] { fill(to, Element(value), count); });                                      \
    }                                                                                                     \
    VIRTUAL_GPU_API hipError_t name##Async(void* to, Parameter value, size_t count, hipStream_t stream) { \
        return api(#name "Async", [&] {                                                                   \
            device_of(stream, hipErrorInvalidValue);                                                      \
            fill(to, Element(value), count);                                                              \
        });                                                                                               \
    }
VIRTUAL_GPU_FILL(hipMemset, int, uint8_t)
VIRTUAL_GPU_FILL(hipMemsetD8, unsigned char, uint8_t)
VIRTUAL_GPU_FILL(hipMemsetD16, unsigned short, uint16_t)
VIRTUAL_GPU_FILL(hipMemsetD32, int, uint32_t)
#undef VIRTUAL_GPU_FILL

struct hipPointerAttribute_t {
    int type;  // hipMemoryType: 0 unregistered, 1 host, 2 device
    int device;
    void* device_pointer;
    void* host_pointer;
    int is_managed;
    unsigned allocation_flags;
};
VIRTUAL_GPU_API hipError_t hipPointerGetAttributes(hipPointerAttribute_t* attributes, const void* pointer) {
    return api("hipPointerGetAttributes", [&] {
        require(attributes && pointer, hipErrorInvalidValue);
        std::lock_guard lock(runtime().mutex);
        uint64_t begin = 0;
        const DeviceAllocation* allocation = find_device_allocation(pointer, begin);
        void* address = const_cast<void*>(pointer);
        if (allocation)
            *attributes = {allocation->host ? 1 : 2,
                           allocation->device,
                           address,
                           allocation->host ? address : nullptr,
                           0,
                           0};
        else
            *attributes = {};
    });
}

// --- Streams and events ---

VIRTUAL_GPU_API hipError_t hipStreamCreate(hipStream_t* stream) {
    return api("hipStreamCreate", [&] { create_stream(stream, 0); });
}
VIRTUAL_GPU_API hipError_t hipStreamCreateWithFlags(hipStream_t* stream, unsigned flags) {
    return api("hipStreamCreateWithFlags", [&] { create_stream(stream, flags); });
}
VIRTUAL_GPU_API hipError_t hipStreamCreateWithPriority(hipStream_t* stream, unsigned flags, int) {
    return api("hipStreamCreateWithPriority", [&] { create_stream(stream, flags); });
}
VIRTUAL_GPU_API hipError_t hipDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return api("hipDeviceGetStreamPriorityRange", [&] {
        *least = 0;
        *greatest = -1;
    });
}
VIRTUAL_GPU_API hipError_t hipStreamDestroy(hipStream_t stream) {
    return api("hipStreamDestroy", [&] {
        std::lock_guard lock(runtime().mutex);
        require(runtime().streams.erase(stream), hipErrorInvalidHandle,
                "the stream handle is not a live stream");
        delete stream;
    });
}
VIRTUAL_GPU_API hipError_t hipStreamSynchronize(hipStream_t stream) {
    return api("hipStreamSynchronize", [&] { device_of(stream, hipErrorInvalidHandle); });
}
VIRTUAL_GPU_API hipError_t hipStreamQuery(hipStream_t stream) {
    return api("hipStreamQuery", [&] { device_of(stream, hipErrorInvalidHandle); });
}
VIRTUAL_GPU_API hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned) {
    return api("hipStreamWaitEvent", [&] {
        device_of(stream, hipErrorInvalidHandle);
        check_event(event);
    });
}
VIRTUAL_GPU_API hipError_t hipStreamIsCapturing(hipStream_t stream, int* status) {
    return api("hipStreamIsCapturing", [&] {
        require(status, hipErrorInvalidValue);
        device_of(stream, hipErrorInvalidHandle);
        *status = 0;  // hipStreamCaptureStatusNone
    });
}
VIRTUAL_GPU_API hipError_t hipStreamGetDevice(hipStream_t stream, int* device) {
    return api("hipStreamGetDevice", [&] {
        require(device, hipErrorInvalidValue);
        *device = device_of(stream, hipErrorInvalidHandle);
    });
}
VIRTUAL_GPU_API hipError_t hipEventCreate(hipEvent_t* event) {
    return api("hipEventCreate", [&] { create_event(event); });
}
VIRTUAL_GPU_API hipError_t hipEventCreateWithFlags(hipEvent_t* event, unsigned) {
    return api("hipEventCreateWithFlags", [&] { create_event(event); });
}
VIRTUAL_GPU_API hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream) {
    return api("hipEventRecord", [&] {
        device_of(stream, hipErrorInvalidHandle);
        check_event(event);
        event->recorded = true;
        event->time = std::chrono::steady_clock::now();
    });
}
VIRTUAL_GPU_API hipError_t hipEventSynchronize(hipEvent_t event) {
    return api("hipEventSynchronize", [&] { check_event(event); });
}
VIRTUAL_GPU_API hipError_t hipEventQuery(hipEvent_t event) {
    return api("hipEventQuery", [&] { check_event(event); });
}
VIRTUAL_GPU_API hipError_t hipEventElapsedTime(float* milliseconds, hipEvent_t start, hipEvent_t stop) {
    return api("hipEventElapsedTime", [&] {
        require(milliseconds, hipErrorInvalidValue);
        check_event(start);
        check_event(stop);
        require(start->recorded && stop->recorded, hipErrorInvalidHandle, "an event was never recorded");
        *milliseconds = std::chrono::duration<float, std::milli>(stop->time - start->time).count();
    });
}
VIRTUAL_GPU_API hipError_t hipEventDestroy(hipEvent_t event) {
    return api("hipEventDestroy", [&] {
        check_event(event);
        std::lock_guard lock(runtime().mutex);
        runtime().events.erase(event);
        delete event;
    });
}

// --- Errors ---

VIRTUAL_GPU_API hipError_t hipGetLastError() { return std::exchange(last_error(), hipSuccess); }
VIRTUAL_GPU_API hipError_t hipPeekAtLastError() { return last_error(); }
VIRTUAL_GPU_API const char* hipGetErrorString(hipError_t error) {
    switch (error) {
#define VIRTUAL_GPU_ERROR(code, name, text) \
    case name:                              \
        return text;
        VIRTUAL_GPU_HIP_ERRORS(VIRTUAL_GPU_ERROR)
#undef VIRTUAL_GPU_ERROR
    }
    return "unrecognized error code";
}
VIRTUAL_GPU_API const char* hipGetErrorName(hipError_t error) {
    switch (error) {
#define VIRTUAL_GPU_ERROR(code, name, text) \
    case name:                              \
        return #name;
        VIRTUAL_GPU_HIP_ERRORS(VIRTUAL_GPU_ERROR)
#undef VIRTUAL_GPU_ERROR
    }
    return "hipErrorUnknown";
}
