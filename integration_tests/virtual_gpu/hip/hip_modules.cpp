// SPDX-License-Identifier: MIT
// The HIP runtime's modules, kernels compiled into programs, and launches.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "core/faults.h"
#include "core/memory.h"
#include "hip/hip_state.h"

namespace virtual_gpu {
namespace {

// How the two families of launch functions report a launch that can never work.
struct LaunchErrors {
    hipError_t configuration;
    hipError_t function;
};
constexpr LaunchErrors kModuleLaunch = {hipErrorInvalidValue, hipErrorInvalidHandle};
constexpr LaunchErrors kRuntimeLaunch = {hipErrorInvalidConfiguration, hipErrorInvalidDeviceFunction};

std::string base_arch() { return runtime().arch.substr(0, runtime().arch.find(':')); }

hipModule_t load_module(const uint8_t* image, size_t bytes) {
    Runtime& state = runtime();
    std::lock_guard lock(state.mutex);
    require(base_arch() == "gfx1201", hipErrorNoBinaryForGpu, "the device is not a gfx1201");
    auto module = std::make_unique<ihipModule_t>();
    module->device = current_device();
    try {
        if (bytes == 0) bytes = readable_bytes(image);
        module->object =
            CodeObject::load(image, bytes, "code object #" + std::to_string(++state.module_count));
    } catch (const BadCodeObject& error) {
        fail(error.wrong_target ? hipErrorNoBinaryForGpu : hipErrorInvalidImage, error.what());
    }
    hipModule_t handle = module.get();
    state.modules[handle] = std::move(module);
    return handle;
}

ihipModule_t& check_module(hipModule_t module) {
    require(runtime().modules.count(module), hipErrorInvalidHandle, "the module handle is not a live module");
    return *module;
}

hipFunction_t find_function(hipModule_t module, const std::string& name) {
    std::lock_guard lock(runtime().mutex);
    const Kernel* kernel = check_module(module).object->find_kernel(name);
    if (!kernel) fail(hipErrorNotFound, "the code object has no kernel " + name);
    return &module->functions.try_emplace(name, ihipModuleSymbol_t{module, kernel}).first->second;
}

void check_function(hipFunction_t function, hipError_t error) {
    std::lock_guard lock(runtime().mutex);
    for (const auto& [handle, module] : runtime().modules)
        for (const auto& [name, known] : module->functions)
            if (&known == function) return;
    fail(error, "the function handle belongs to no live module");
}

// The explicit arguments, laid out as the kernel reads them, from one pointer per argument.
std::vector<uint8_t> gather_arguments(const Kernel& kernel, void** parameters) {
    std::vector<uint8_t> result(explicit_argument_bytes(kernel));
    size_t index = 0;
    for (const KernelArgument& argument : kernel.arguments) {
        if (argument.hidden()) continue;
        require(parameters && parameters[index], hipErrorInvalidValue, "a kernel argument is missing");
        std::memcpy(result.data() + argument.offset, parameters[index++], argument.size);
    }
    return result;
}

// The explicit arguments from HIP's `extra` array, which passes the whole buffer.
std::vector<uint8_t> read_argument_buffer(const Kernel& kernel, void** extra) {
    constexpr uintptr_t kPointer = 1, kSize = 2, kEnd = 3;
    const uint8_t* buffer = nullptr;
    size_t bytes = 0;
    for (int i = 0;; i += 2) {
        const auto key = reinterpret_cast<uintptr_t>(extra[i]);
        if (key == kEnd) break;
        require(key == kPointer || key == kSize, hipErrorInvalidValue, "`extra` holds an unknown key");
        if (key == kPointer) buffer = static_cast<const uint8_t*>(extra[i + 1]);
        if (key == kSize) bytes = *static_cast<const size_t*>(extra[i + 1]);
    }
    const size_t wanted = explicit_argument_bytes(kernel);
    require(buffer || !wanted, hipErrorInvalidValue, "`extra` holds no argument buffer");
    require(bytes >= wanted, hipErrorInvalidValue,
            "the argument buffer is shorter than the kernel's arguments");
    return std::vector<uint8_t>(buffer, buffer + wanted);
}

void check_geometry(const Kernel& kernel, const LaunchGeometry& geometry, const LaunchErrors& errors) {
    uint64_t items = 1;
    for (int axis = 0; axis < 3; ++axis) {
        require(geometry.grid[axis] && geometry.block[axis], errors.configuration,
                "a launch dimension is zero");
        require(geometry.block[axis] <= kMaxWorkgroupSize, errors.configuration, "the block is too large");
        items *= geometry.block[axis];
    }
    require(items <= kMaxWorkgroupSize, errors.configuration, "the block has more than 1024 threads");
    require(items <= kernel.max_work_group_size, errors.configuration,
            "the block has more threads than the kernel was compiled for");
    require(uint64_t(kernel.descriptor.group_segment_bytes) + geometry.dynamic_lds_bytes <= kMaxLdsBytes,
            hipErrorInvalidValue, "static and dynamic shared memory exceed 64 KiB");
}

// Runs `function` and keeps a record of it. The geometry's grid counts work-items.
void launch(hipFunction_t function, const LaunchGeometry& geometry, hipStream_t stream,
            const std::vector<uint8_t>& arguments, const LaunchErrors& errors) {
    const ihipModule_t& module = *function->module;
    require(module.device == current_device(), errors.function,
            "the kernel's module was loaded on another device than the current one");
    require(device_of(stream, hipErrorInvalidValue) == current_device(), hipErrorInvalidHandle,
            "the stream belongs to another device than the current one");
    const Kernel& kernel = *function->kernel;
    check_geometry(kernel, geometry, errors);
    if (runtime().accepts_only) return;
    LaunchRecord record{kernel.name,   {}, {}, geometry.dynamic_lds_bytes, reinterpret_cast<uint64_t>(stream),
                        module.device, {}};
    for (int axis = 0; axis < 3; ++axis) {
        record.block[axis] = geometry.block[axis];
        record.grid[axis] = (geometry.grid[axis] - 1) / geometry.block[axis] + 1;
    }
    try {
        record.result = run_kernel(*module.object, kernel, geometry, arguments);
    } catch (const IllegalAccess& fault) {
        fail(hipErrorIllegalAddress, fault.what());
    } catch (const KernelFault& fault) {
        fail(hipErrorLaunchFailure, fault.what());
    } catch (const NotModelled& gap) {
        fail(hipErrorNotSupported, gap.what());
    }
    std::lock_guard lock(runtime().mutex);
    runtime().records.push_back(std::move(record));
}

// Work-groups to work-items. HIP addresses the items of an axis with 32 bits.
LaunchGeometry make_geometry(const uint32_t (&groups)[3], const uint32_t (&block)[3],
                             uint32_t dynamic_lds_bytes, const LaunchErrors& errors) {
    LaunchGeometry geometry;
    geometry.dynamic_lds_bytes = dynamic_lds_bytes;
    for (int axis = 0; axis < 3; ++axis) {
        require(groups[axis] <= kMaxGrid[axis], errors.configuration, "the grid is too large");
        const uint64_t items = uint64_t(groups[axis]) * block[axis];
        require(items <= UINT32_MAX, hipErrorInvalidConfiguration, "grid times block exceeds 32 bits");
        geometry.grid[axis] = uint32_t(items);
        geometry.block[axis] = block[axis];
    }
    return geometry;
}

void launch_module_kernel(hipFunction_t function, const LaunchGeometry& geometry, hipStream_t stream,
                          void** parameters, void** extra) {
    require(!(parameters && extra), hipErrorInvalidValue, "both kernelParams and extra are given");
    const Kernel& kernel = *function->kernel;
    launch(function, geometry, stream,
           extra ? read_argument_buffer(kernel, extra) : gather_arguments(kernel, parameters), kModuleLaunch);
}

// --- Kernels compiled into programs: the compiler registers a fat binary and its kernels before main ---

struct FatBinary {
    const uint8_t* image;
    std::map<int, hipModule_t> module_of_device;  // loaded at first use
};
struct RegisteredKernel {
    FatBinary* binary;
    std::string name;
};
struct PendingLaunch {
    dim3 grid, block;
    size_t dynamic_lds_bytes;
    hipStream_t stream;
};

struct Registrations {
    std::map<FatBinary*, std::unique_ptr<FatBinary>> binaries;
    std::map<const void*, RegisteredKernel> kernels;    // by the address of the host stub
    std::map<const void*, RegisteredKernel> variables;  // by the address of the host shadow
};
Registrations& registrations() {
    static auto* instance = new Registrations;
    return *instance;
}

hipModule_t module_on_current_device(FatBinary& binary) {
    hipModule_t& module = binary.module_of_device[current_device()];
    if (!module) module = load_module(binary.image, 0);
    return module;
}

hipFunction_t registered_function(const void* stub) {
    std::lock_guard lock(runtime().mutex);
    const auto found = registrations().kernels.find(stub);
    require(found != registrations().kernels.end(), hipErrorInvalidDeviceFunction,
            "the function was never registered as a kernel");
    return find_function(module_on_current_device(*found->second.binary), found->second.name);
}

thread_local std::vector<PendingLaunch> pending_launches;

// How many blocks fit on one compute unit: 2 SIMDs of 16 waves and 1536
// VGPRs in granules of 24, and 64 KiB of LDS.
int blocks_per_multiprocessor(const Kernel& kernel, int block, size_t dynamic_lds_bytes) {
    constexpr uint32_t kSimds = 2, kMaxWaves = 16, kVgprsPerSimd = 1536, kGranule = 24;
    const uint32_t vgprs = std::max(kGranule, (kernel.vgprs + kGranule - 1) / kGranule * kGranule);
    const uint32_t waves = kSimds * std::min(kMaxWaves, kVgprsPerSimd / vgprs);
    const uint32_t waves_per_block = uint32_t(block + kLanes - 1) / kLanes;
    const uint64_t lds = kernel.descriptor.group_segment_bytes + dynamic_lds_bytes;
    uint64_t blocks = waves / waves_per_block;
    if (lds) blocks = std::min<uint64_t>(blocks, kMaxLdsBytes / lds);
    return int(blocks);
}

}  // namespace
}  // namespace virtual_gpu

using namespace virtual_gpu;

VIRTUAL_GPU_API hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
    return api("hipModuleLoadData", [&] {
        require(module && image, hipErrorInvalidValue);
        *module = load_module(static_cast<const uint8_t*>(image), 0);
    });
}
VIRTUAL_GPU_API hipError_t hipModuleLoadDataEx(hipModule_t* module, const void* image, unsigned, int*,
                                               void**) {
    return api("hipModuleLoadDataEx", [&] {
        require(module && image, hipErrorInvalidValue);
        *module = load_module(static_cast<const uint8_t*>(image), 0);
    });
}
VIRTUAL_GPU_API hipError_t hipModuleLoad(hipModule_t* module, const char* path) {
    return api("hipModuleLoad", [&] {
        require(module && path, hipErrorInvalidValue);
        std::ifstream file(path, std::ios::binary);
        require(bool(file), hipErrorFileNotFound);
        const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
        require(!bytes.empty(), hipErrorInvalidImage, "the file is empty");
        *module = load_module(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    });
}
VIRTUAL_GPU_API hipError_t hipModuleUnload(hipModule_t module) {
    return api("hipModuleUnload", [&] {
        std::lock_guard lock(runtime().mutex);
        check_module(module);
        runtime().modules.erase(module);
    });
}
VIRTUAL_GPU_API hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module,
                                                const char* name) {
    return api("hipModuleGetFunction", [&] {
        require(function && name, hipErrorInvalidValue);
        *function = find_function(module, name);
    });
}
VIRTUAL_GPU_API hipError_t hipModuleGetGlobal(void** address, size_t* bytes, hipModule_t module,
                                              const char* name) {
    return api("hipModuleGetGlobal", [&] {
        require(name, hipErrorInvalidValue);
        std::lock_guard lock(runtime().mutex);
        const Symbol* symbol = check_module(module).object->find_variable(name);
        if (!symbol) fail(hipErrorNotFound, std::string("the code object has no variable ") + name);
        if (address) *address = reinterpret_cast<void*>(symbol->address);
        if (bytes) *bytes = symbol->bytes;
    });
}

VIRTUAL_GPU_API hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y,
                                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                                 unsigned block_z, unsigned dynamic_lds_bytes,
                                                 hipStream_t stream, void** parameters, void** extra) {
    return api("hipModuleLaunchKernel", [&] {
        check_function(function, hipErrorInvalidHandle);
        const LaunchGeometry geometry = make_geometry({grid_x, grid_y, grid_z}, {block_x, block_y, block_z},
                                                      dynamic_lds_bytes, kModuleLaunch);
        launch_module_kernel(function, geometry, stream, parameters, extra);
    });
}
// Unlike the above, its grid counts work-items and need not be a multiple of the block.
VIRTUAL_GPU_API hipError_t hipExtModuleLaunchKernel(hipFunction_t function, uint32_t items_x,
                                                    uint32_t items_y, uint32_t items_z, uint32_t block_x,
                                                    uint32_t block_y, uint32_t block_z,
                                                    size_t dynamic_lds_bytes, hipStream_t stream,
                                                    void** parameters, void** extra, hipEvent_t start,
                                                    hipEvent_t stop, uint32_t) {
    return api("hipExtModuleLaunchKernel", [&] {
        check_function(function, hipErrorInvalidHandle);
        require(!start && !stop, hipErrorNotSupported, "events of hipExtModuleLaunchKernel are not modelled");
        const LaunchGeometry geometry{
            {items_x, items_y, items_z}, {block_x, block_y, block_z}, uint32_t(dynamic_lds_bytes)};
        launch_module_kernel(function, geometry, stream, parameters, extra);
    });
}
VIRTUAL_GPU_API hipError_t hipLaunchKernel(const void* stub, dim3 grid, dim3 block, void** parameters,
                                           size_t dynamic_lds_bytes, hipStream_t stream) {
    return api("hipLaunchKernel", [&] {
        hipFunction_t function = registered_function(stub);
        require(dynamic_lds_bytes <= kMaxLdsBytes, hipErrorInvalidValue, "shared memory exceeds 64 KiB");
        const LaunchGeometry geometry = make_geometry({grid.x, grid.y, grid.z}, {block.x, block.y, block.z},
                                                      uint32_t(dynamic_lds_bytes), kRuntimeLaunch);
        launch(function, geometry, stream, gather_arguments(*function->kernel, parameters), kRuntimeLaunch);
    });
}

// hipFunction_attribute by number; the module and runtime queries below both read this.
static int function_attribute(const Kernel& kernel, int attribute) {
    switch (attribute) {
        case 0:
            return int(kernel.max_work_group_size);  // MAX_THREADS_PER_BLOCK
        case 1:
            return int(kernel.descriptor.group_segment_bytes);  // SHARED_SIZE_BYTES
        case 2:
            return 0;  // CONST_SIZE_BYTES
        case 3:
            return int(kernel.descriptor.private_segment_bytes);  // LOCAL_SIZE_BYTES
        case 4:
            return int(kernel.vgprs);  // NUM_REGS
        case 8:
            return int(kMaxLdsBytes -
                       kernel.descriptor.group_segment_bytes);  // MAX_DYNAMIC_SHARED_SIZE_BYTES
        default:
            fail(hipErrorInvalidValue,
                 "function attribute " + std::to_string(attribute) + " is not modelled");
    }
}
VIRTUAL_GPU_API hipError_t hipFuncGetAttribute(int* value, int attribute, hipFunction_t function) {
    return api("hipFuncGetAttribute", [&] {
        require(value, hipErrorInvalidValue);
        check_function(function, hipErrorInvalidDeviceFunction);
        *value = function_attribute(*function->kernel, attribute);
    });
}
struct hipFuncAttributes {
    int binary_version, cache_mode;
    size_t const_bytes, local_bytes;
    int max_dynamic_shared_bytes, max_threads_per_block, registers, preferred_carveout, ptx_version;
    size_t shared_bytes;
};
VIRTUAL_GPU_API hipError_t hipFuncGetAttributes(hipFuncAttributes* attributes, const void* stub) {
    return api("hipFuncGetAttributes", [&] {
        require(attributes, hipErrorInvalidValue);
        const Kernel& kernel = *registered_function(stub)->kernel;
        *attributes = {};
        attributes->max_threads_per_block = function_attribute(kernel, 0);
        attributes->shared_bytes = size_t(function_attribute(kernel, 1));
        attributes->local_bytes = size_t(function_attribute(kernel, 3));
        attributes->registers = function_attribute(kernel, 4);
        attributes->max_dynamic_shared_bytes = function_attribute(kernel, 8);
    });
}
// All 64 KiB are available without asking, so the hint changes nothing.
VIRTUAL_GPU_API hipError_t hipFuncSetAttribute(const void* stub, int, int) {
    return api("hipFuncSetAttribute", [&] { registered_function(stub); });
}
VIRTUAL_GPU_API hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                                              hipFunction_t function,
                                                                              int block,
                                                                              size_t dynamic_lds_bytes) {
    return api("hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", [&] {
        require(blocks && block > 0 && block <= int(kMaxWorkgroupSize), hipErrorInvalidValue);
        check_function(function, hipErrorInvalidDeviceFunction);
        *blocks = blocks_per_multiprocessor(*function->kernel, block, dynamic_lds_bytes);
    });
}
VIRTUAL_GPU_API hipError_t hipOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* stub,
                                                                        int block, size_t dynamic_lds_bytes) {
    return api("hipOccupancyMaxActiveBlocksPerMultiprocessor", [&] {
        require(blocks && block > 0 && block <= int(kMaxWorkgroupSize), hipErrorInvalidValue);
        *blocks = blocks_per_multiprocessor(*registered_function(stub)->kernel, block, dynamic_lds_bytes);
    });
}

// --- What compiled programs call before main and around <<<...>>> ---

VIRTUAL_GPU_API void** __hipRegisterFatBinary(const void* wrapper) {
    struct Wrapper {
        uint32_t magic, version;
        const void* binary;
        void* unused;
    };
    constexpr uint32_t kMagic = 0x48495046;  // "HIPF"
    const auto* fields = static_cast<const Wrapper*>(wrapper);
    if (fields->magic != kMagic || fields->version != 1) return nullptr;
    std::lock_guard lock(runtime().mutex);
    auto binary = std::make_unique<FatBinary>();
    binary->image = static_cast<const uint8_t*>(fields->binary);
    FatBinary* handle = binary.get();
    registrations().binaries[handle] = std::move(binary);
    return reinterpret_cast<void**>(handle);
}
VIRTUAL_GPU_API void __hipRegisterFunction(void** binary, const void* stub, char*, const char* name, unsigned,
                                           void*, void*, void*, void*, int*) {
    std::lock_guard lock(runtime().mutex);
    registrations().kernels[stub] = {reinterpret_cast<FatBinary*>(binary), name};
}
VIRTUAL_GPU_API void __hipRegisterVar(void** binary, void* shadow, char*, char* name, int, size_t, int, int) {
    std::lock_guard lock(runtime().mutex);
    registrations().variables[shadow] = {reinterpret_cast<FatBinary*>(binary), name};
}
VIRTUAL_GPU_API void __hipUnregisterFatBinary(void** handle) {
    std::lock_guard lock(runtime().mutex);
    auto* binary = reinterpret_cast<FatBinary*>(handle);
    const auto belongs = [&](const auto& entry) { return entry.second.binary == binary; };
    std::erase_if(registrations().kernels, belongs);
    std::erase_if(registrations().variables, belongs);
    const auto found = registrations().binaries.find(binary);
    if (found == registrations().binaries.end()) return;
    for (const auto& [device, module] : binary->module_of_device) runtime().modules.erase(module);
    registrations().binaries.erase(found);
}
VIRTUAL_GPU_API hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t dynamic_lds_bytes,
                                                      hipStream_t stream) {
    pending_launches.push_back({grid, block, dynamic_lds_bytes, stream});
    return hipSuccess;
}
VIRTUAL_GPU_API hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* dynamic_lds_bytes,
                                                     hipStream_t* stream) {
    return api("__hipPopCallConfiguration", [&] {
        require(!pending_launches.empty(), hipErrorInvalidConfiguration,
                "no launch configuration was pushed");
        const PendingLaunch& pending = pending_launches.back();
        *grid = pending.grid;
        *block = pending.block;
        *dynamic_lds_bytes = pending.dynamic_lds_bytes;
        *stream = pending.stream;
        pending_launches.pop_back();
    });
}
VIRTUAL_GPU_API hipError_t hipGetSymbolAddress(void** address, const void* shadow) {
    return api("hipGetSymbolAddress", [&] {
        require(address, hipErrorInvalidValue);
        std::lock_guard lock(runtime().mutex);
        const auto found = registrations().variables.find(shadow);
        require(found != registrations().variables.end(), hipErrorNotFound,
                "the variable was never registered");
        const auto& [binary, name] = found->second;
        const Symbol* symbol = module_on_current_device(*binary)->object->find_variable(name);
        if (!symbol) fail(hipErrorNotFound, "the code object has no variable " + name);
        *address = reinterpret_cast<void*>(symbol->address);
    });
}
