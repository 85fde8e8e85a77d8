// SPDX-License-Identifier: MIT
// Makes the bounds of torch's CPU tensors known to the device, exactly and without the tests' help: the calls
// by which libc10.so allocates and frees tensor storage are redirected, in its own import table, to the two
// wrappers below. Storage that torch gets elsewhere (NumPy arrays, memory-mapped files, shared memory) is not
// seen.
#include <elf.h>
#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "control.h"
#include "core/fresh_memory.h"
#include "core/memory.h"

namespace virtual_gpu {
namespace {

// Storage that torch holds now, in bytes, and the most since the last reset. What was allocated before the
// watch began is not counted but its release is, so that only differences mean something.
std::atomic<int64_t> held_bytes = 0, peak_bytes = 0;

// malloc's own size of a block: free() is not told the one that was asked for. Some bytes more, the same both
// times.
void count_storage(int64_t bytes) {
    const int64_t now = held_bytes += bytes;
    int64_t peak = peak_bytes;
    while (now > peak && !peak_bytes.compare_exchange_weak(peak, now)) {
    }
}

int tracked_posix_memalign(void** memory, size_t alignment, size_t bytes) {
    const bool watching = watching_fresh_memory();
    const int error = posix_memalign(memory, alignment, bytes + (watching ? kGuardBytes : 0));
    if (error) return error;
    // Tensors larger than that are there for their addresses: filling them would make all of it resident.
    if (watching && bytes <= kLargestFilled) fill_fresh(*memory, bytes);
    add_allocation(reinterpret_cast<uint64_t>(*memory), bytes, "torch tensor storage");
    count_storage(int64_t(malloc_usable_size(*memory)));
    return 0;
}

void tracked_free(void* memory) {
    // Before the memory can be handed to another thread.
    uint64_t bytes = 0;
    const bool tracked = memory && remove_allocation(reinterpret_cast<uint64_t>(memory), &bytes);
    if (memory) count_storage(-int64_t(malloc_usable_size(memory)));
    if (tracked)
        free_later(memory, bytes);
    else
        free(memory);
}

struct Redirection {
    const char* symbol;
    void* replacement;
};
const Redirection kRedirections[] = {
    {"posix_memalign", reinterpret_cast<void*>(&tracked_posix_memalign)},
    {"free", reinterpret_cast<void*>(&tracked_free)},
};

// Import tables may be read-only after relocation; other data shares their pages, so they stay writable.
void write_slot(void** slot, void* value) {
    const uintptr_t page_bytes = uintptr_t(sysconf(_SC_PAGESIZE));
    void* page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot) & ~(page_bytes - 1));
    if (mprotect(page, page_bytes, PROT_READ | PROT_WRITE) == 0) *slot = value;
}

int redirect(uint64_t base, const Elf64_Rela* table, uint64_t bytes, const Elf64_Sym* symbols,
             const char* names) {
    int count = 0;
    for (const Elf64_Rela* entry = table; entry < table + bytes / sizeof *table; ++entry) {
        const uint32_t type = ELF64_R_TYPE(entry->r_info);
        if (type != R_X86_64_JUMP_SLOT && type != R_X86_64_GLOB_DAT) continue;
        const char* name = names + symbols[ELF64_R_SYM(entry->r_info)].st_name;
        for (const Redirection& redirection : kRedirections) {
            if (std::strcmp(name, redirection.symbol) != 0) continue;
            write_slot(reinterpret_cast<void**>(base + entry->r_offset), redirection.replacement);
            ++count;
        }
    }
    return count;
}

int watch_library(dl_phdr_info* library, size_t, void* count) {
    const char* slash = std::strrchr(library->dlpi_name, '/');
    if (!slash || std::strcmp(slash + 1, "libc10.so") != 0) return 0;
    uint64_t found[DT_JMPREL + 1] = {};
    for (int i = 0; i < library->dlpi_phnum; ++i) {
        if (library->dlpi_phdr[i].p_type != PT_DYNAMIC) continue;
        const auto* entry =
            reinterpret_cast<const Elf64_Dyn*>(library->dlpi_addr + library->dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; ++entry)
            if (entry->d_tag > 0 && entry->d_tag <= DT_JMPREL) found[entry->d_tag] = entry->d_un.d_ptr;
    }
    const auto* symbols = reinterpret_cast<const Elf64_Sym*>(found[DT_SYMTAB]);
    const auto* names = reinterpret_cast<const char*>(found[DT_STRTAB]);
    const auto walk = [&](int table, int bytes) {
        return redirect(library->dlpi_addr, reinterpret_cast<const Elf64_Rela*>(found[table]), found[bytes],
                        symbols, names);
    };
    *static_cast<int*>(count) += walk(DT_JMPREL, DT_PLTRELSZ) + walk(DT_RELA, DT_RELASZ);
    return 1;
}

}  // namespace
}  // namespace virtual_gpu

VIRTUAL_GPU_API int virtual_gpu_watch_torch() {
    int count = 0;
    dl_iterate_phdr(virtual_gpu::watch_library, &count);
    return count;
}

VIRTUAL_GPU_API void virtual_gpu_reset_torch_peak() {
    virtual_gpu::held_bytes = 0;
    virtual_gpu::peak_bytes = 0;
}

VIRTUAL_GPU_API int64_t virtual_gpu_torch_peak_bytes() { return virtual_gpu::peak_bytes; }
