// SPDX-License-Identifier: MIT
#include "core/code_object.h"

#include <elf.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "core/memory.h"
#include "core/message_pack.h"

namespace virtual_gpu {
namespace {

constexpr uint16_t kMachineAmdgpu = 224;
constexpr uint8_t kOsAbiHsa = 64;
constexpr uint8_t kAbiVersion5 = 3, kAbiVersion6 = 4;
constexpr uint32_t kFlagMachineMask = 0xff;
constexpr uint32_t kMachineGfx1201 = 0x4e, kMachineGfx12Generic = 0x59;
constexpr uint32_t kNoteAmdgpuMetadata = 32;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kMaxLoadedBytes = uint64_t(1) << 30;

// Relocation types of the AMDGPU ELF ABI that a linked code object can hold.
enum : uint32_t {
    kRelocNone = 0,
    kRelocAbs32Lo = 1,
    kRelocAbs32Hi = 2,
    kRelocAbs64 = 3,
    kRelocRelative64 = 13
};

constexpr char kBundleMagic[] = "__CLANG_OFFLOAD_BUNDLE__";
constexpr char kCompressedBundleMagic[] = "CCOB";
constexpr size_t kBundleMagicBytes = sizeof kBundleMagic - 1;

// A byte range that is never read past its end.
struct Bytes {
    const uint8_t* data;
    uint64_t size;

    Bytes slice(uint64_t offset, uint64_t bytes, const char* what) const {
        if (offset > size || bytes > size - offset)
            throw BadCodeObject(std::string("the image is truncated: ") + what + " lies outside it");
        return {data + offset, bytes};
    }
    template <typename T>
    T read(uint64_t offset, const char* what) const {
        T value;
        std::memcpy(&value, slice(offset, sizeof value, what).data, sizeof value);
        return value;
    }
    std::string c_string(uint64_t offset, const char* what) const {
        if (offset >= size)
            throw BadCodeObject(std::string("the image is truncated: ") + what + " lies outside it");
        const auto* begin = reinterpret_cast<const char*>(data + offset);
        return std::string(begin, strnlen(begin, size - offset));
    }
};

bool starts_with(Bytes bytes, const char* magic, size_t magic_bytes) {
    return bytes.size >= magic_bytes && std::memcmp(bytes.data, magic, magic_bytes) == 0;
}

struct BundleEntry {
    uint64_t offset, bytes;
    std::string target;
};

std::vector<BundleEntry> bundle_entries(Bytes bundle) {
    const auto count = bundle.read<uint64_t>(kBundleMagicBytes, "bundle header");
    uint64_t position = kBundleMagicBytes + 8;
    std::vector<BundleEntry> entries;
    for (uint64_t i = 0; i < count; ++i) {
        const auto offset = bundle.read<uint64_t>(position, "bundle entry");
        const auto bytes = bundle.read<uint64_t>(position + 8, "bundle entry");
        const auto name_bytes = bundle.read<uint64_t>(position + 16, "bundle entry");
        const Bytes name = bundle.slice(position + 24, name_bytes, "bundle entry");
        entries.push_back({offset, bytes, std::string(reinterpret_cast<const char*>(name.data), name_bytes)});
        position += 24 + name_bytes;
    }
    return entries;
}

// "hip-amdgcn-amd-amdhsa--gfx1201:sramecc+" -> "gfx1201". Empty for host entries.
std::string processor_of(const std::string& target) {
    const size_t at = target.rfind("--gfx");
    if (at == std::string::npos) return "";
    return target.substr(at + 2, target.find(':', at) - at - 2);
}

Bytes choose_from_bundle(Bytes bundle) {
    std::string found;
    for (const BundleEntry& entry : bundle_entries(bundle)) {
        if (processor_of(entry.target) == "gfx1201")
            return bundle.slice(entry.offset, entry.bytes, "bundle payload");
        found += (found.empty() ? "" : ", ") + entry.target;
    }
    throw BadCodeObject("the offload bundle has no gfx1201 entry; it holds " + found, true);
}

void check_elf_header(const Elf64_Ehdr& header) {
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        throw BadCodeObject("the image is neither ELF nor bundle");
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB)
        throw BadCodeObject("the image is not a little-endian 64-bit ELF");
    if (header.e_machine != kMachineAmdgpu || header.e_ident[EI_OSABI] != kOsAbiHsa)
        throw BadCodeObject("the image is an ELF for another machine, not an AMDGPU HSA code object", true);
    const uint32_t machine = header.e_flags & kFlagMachineMask;
    if (machine != kMachineGfx1201 && machine != kMachineGfx12Generic) {
        char text[96];
        std::snprintf(text, sizeof text, "the code object is for AMDGPU machine 0x%02x, not gfx1201 (0x%02x)",
                      machine, kMachineGfx1201);
        throw BadCodeObject(text, true);
    }
    const uint8_t version = header.e_ident[EI_ABIVERSION];
    if (version != kAbiVersion5 && version != kAbiVersion6)
        throw BadCodeObject("the code object's version is neither 5 nor 6");
    if (header.e_type != ET_DYN) throw BadCodeObject("the code object is not linked");
    if (header.e_phentsize != sizeof(Elf64_Phdr) ||
        (header.e_shnum && header.e_shentsize != sizeof(Elf64_Shdr)))
        throw BadCodeObject("the ELF header's table entry sizes are wrong");
}

uint32_t bits(uint32_t word, int low, int count) { return word >> low & ((1u << count) - 1); }

// Field positions: LLVM's AMDGPU usage guide, "Kernel Descriptor" and COMPUTE_PGM_RSRC1/2 for GFX12.
KernelDescriptor read_descriptor(Bytes image, uint64_t offset, uint64_t address, const std::string& name) {
    const Bytes raw = image.slice(offset, 64, "kernel descriptor");
    KernelDescriptor result;
    result.group_segment_bytes = raw.read<uint32_t>(0, "");
    result.private_segment_bytes = raw.read<uint32_t>(4, "");
    result.kernarg_bytes = raw.read<uint32_t>(8, "");
    result.entry = address + raw.read<int64_t>(16, "");
    const auto rsrc1 = raw.read<uint32_t>(48, "");
    const auto rsrc2 = raw.read<uint32_t>(52, "");
    const auto properties = raw.read<uint16_t>(56, "");
    const auto preload = raw.read<uint16_t>(58, "");
    // FLOAT_MODE becomes MODE[7:0]; FP16_OVFL becomes MODE[23].
    result.mode = bits(rsrc1, 12, 8) | bits(rsrc1, 26, 1) << 23;
    result.workgroup_processor_mode = bits(rsrc1, 29, 1);
    result.user_sgprs = bits(rsrc2, 1, 5);
    for (int axis = 0; axis < 3; ++axis) result.wants_workgroup_id[axis] = bits(rsrc2, 7 + axis, 1);
    result.work_item_id_dimensions = bits(rsrc2, 11, 2) + 1;
    result.wants_dispatch_ptr = bits(properties, 1, 1);
    result.wants_queue_ptr = bits(properties, 2, 1);
    result.wants_kernarg_ptr = bits(properties, 3, 1);
    result.wants_dispatch_id = bits(properties, 4, 1);
    result.wants_private_segment_size = bits(properties, 6, 1);
    result.uses_dynamic_stack = bits(properties, 11, 1);
    // Scratch is architected on gfx12: the two older ways of finding it do not exist.
    if (bits(properties, 0, 1) || bits(properties, 5, 1))
        throw BadCodeObject("kernel " + name + " asks for scratch set-up that gfx1201 does not have");
    if (!bits(properties, 10, 1)) throw BadCodeObject("kernel " + name + " is not compiled for wave32");
    if (preload) throw BadCodeObject("kernel " + name + " preloads arguments, which gfx1201 cannot do");
    return result;
}

uint32_t number(const MessagePackValue& value) {
    return value.kind == MessagePackValue::Kind::kInteger ? uint32_t(value.integer) : 0;
}

std::vector<KernelArgument> read_arguments(const MessagePackValue& metadata, const Kernel& kernel) {
    std::vector<KernelArgument> result;
    for (const MessagePackValue& entry : metadata.array) {
        KernelArgument argument{entry[".name"].string, entry[".value_kind"].string, number(entry[".offset"]),
                                number(entry[".size"])};
        if (argument.offset > kernel.descriptor.kernarg_bytes ||
            argument.size > kernel.descriptor.kernarg_bytes - argument.offset)
            throw BadCodeObject("an argument of kernel " + kernel.name +
                                " lies outside its argument segment");
        result.push_back(std::move(argument));
    }
    return result;
}

}  // namespace

class Loader {
  public:
    Loader(Bytes image, const std::string& name) : image_(image), name_(name), object_(new CodeObject) {}

    std::unique_ptr<CodeObject> load() {
        header_ = image_.read<Elf64_Ehdr>(0, "ELF header");
        check_elf_header(header_);
        read_program_headers();
        load_segments();
        read_symbols();
        relocate();
        read_metadata();
        add_allocation(base(), object_->memory_bytes_, name_);
        object_->program_ =
            decode_program(object_->memory_ + text_.p_vaddr, text_.p_memsz, base() + text_.p_vaddr);
        return std::move(object_);
    }

  private:
    uint64_t base() const { return reinterpret_cast<uint64_t>(object_->memory_); }
    Bytes loaded() const { return {object_->memory_, object_->memory_bytes_}; }

    void read_program_headers() {
        for (int i = 0; i < header_.e_phnum; ++i)
            segments_.push_back(image_.read<Elf64_Phdr>(header_.e_phoff + uint64_t(i) * sizeof(Elf64_Phdr),
                                                        "program header"));
        for (const Elf64_Phdr& segment : segments_) {
            if (segment.p_type != PT_LOAD) continue;
            if (segment.p_memsz > kMaxLoadedBytes || segment.p_vaddr > kMaxLoadedBytes ||
                segment.p_filesz > segment.p_memsz)
                throw BadCodeObject("a segment's size or address is absurd");
            object_->memory_bytes_ =
                std::max<size_t>(object_->memory_bytes_, segment.p_vaddr + segment.p_memsz);
            if (!(segment.p_flags & PF_X)) continue;
            if (text_.p_memsz) throw BadCodeObject("the code object has more than one executable segment");
            text_ = segment;
        }
        if (!text_.p_memsz) throw BadCodeObject("the code object has no executable segment");
    }

    void load_segments() {
        const size_t mapped = (object_->memory_bytes_ + kPage - 1) / kPage * kPage;
        void* memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) throw BadCodeObject("no memory for the code object");
        object_->memory_ = static_cast<uint8_t*>(memory);
        for (const Elf64_Phdr& segment : segments_) {
            if (segment.p_type != PT_LOAD) continue;
            const Bytes bytes = image_.slice(segment.p_offset, segment.p_filesz, "segment");
            std::memcpy(object_->memory_ + segment.p_vaddr, bytes.data, bytes.size);
        }
    }

    void read_symbols() {
        for (int i = 0; i < header_.e_shnum; ++i) {
            const auto section =
                image_.read<Elf64_Shdr>(header_.e_shoff + uint64_t(i) * sizeof(Elf64_Shdr), "section header");
            if (section.sh_type != SHT_DYNSYM) continue;
            const auto names = image_.read<Elf64_Shdr>(
                header_.e_shoff + uint64_t(section.sh_link) * sizeof(Elf64_Shdr), "section header");
            const Bytes strings = image_.slice(names.sh_offset, names.sh_size, "symbol names");
            const Bytes table = image_.slice(section.sh_offset, section.sh_size, "symbol table");
            for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.size; at += sizeof(Elf64_Sym)) {
                const auto symbol = table.read<Elf64_Sym>(at, "symbol");
                symbols_.push_back({strings.c_string(symbol.st_name, "symbol name"), symbol});
            }
        }
        if (symbols_.empty()) throw BadCodeObject("the code object has no dynamic symbols");
        for (const auto& [name, symbol] : symbols_) {
            if (symbol.st_shndx == SHN_UNDEF) continue;
            loaded().slice(symbol.st_value, symbol.st_size, "symbol");
            const bool descriptor = name.size() > 3 && name.compare(name.size() - 3, 3, ".kd") == 0;
            if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && !descriptor)
                object_->variables_[name] = {base() + symbol.st_value, symbol.st_size};
        }
    }

    uint64_t symbol_address(uint64_t index) const {
        if (index >= symbols_.size()) throw BadCodeObject("a relocation names a symbol that does not exist");
        const auto& [name, symbol] = symbols_[index];
        if (symbol.st_shndx == SHN_UNDEF) throw BadCodeObject("undefined symbol " + name);
        return base() + symbol.st_value;
    }

    void relocate() {
        uint64_t table = 0, bytes = 0;
        for (const Elf64_Phdr& segment : segments_) {
            if (segment.p_type != PT_DYNAMIC) continue;
            const Bytes dynamic = image_.slice(segment.p_offset, segment.p_filesz, "dynamic section");
            for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= dynamic.size; at += sizeof(Elf64_Dyn)) {
                const auto entry = dynamic.read<Elf64_Dyn>(at, "dynamic entry");
                if (entry.d_tag == DT_RELA) table = entry.d_un.d_ptr;
                if (entry.d_tag == DT_RELASZ) bytes = entry.d_un.d_val;
                if (entry.d_tag == DT_JMPREL)
                    throw BadCodeObject("the code object has procedure linkage relocations");
            }
        }
        const Bytes relocations = loaded().slice(table, bytes, "relocations");
        for (uint64_t at = 0; at + sizeof(Elf64_Rela) <= relocations.size; at += sizeof(Elf64_Rela))
            apply(relocations.read<Elf64_Rela>(at, "relocation"));
    }

    void apply(const Elf64_Rela& relocation) {
        const uint32_t type = ELF64_R_TYPE(relocation.r_info);
        if (type == kRelocNone) return;
        const uint64_t origin =
            type == kRelocRelative64 ? base() : symbol_address(ELF64_R_SYM(relocation.r_info));
        uint64_t value = origin + relocation.r_addend;
        uint64_t bytes = 8;
        switch (type) {
            case kRelocRelative64:
            case kRelocAbs64:
                break;
            case kRelocAbs32Lo:
                bytes = 4;
                break;
            case kRelocAbs32Hi:
                bytes = 4, value >>= 32;
                break;
            default:
                throw BadCodeObject("relocation type " + std::to_string(type) + " is not supported");
        }
        loaded().slice(relocation.r_offset, bytes, "relocated word");
        std::memcpy(object_->memory_ + relocation.r_offset, &value, bytes);
    }

    void read_metadata() {
        for (const Elf64_Phdr& segment : segments_) {
            if (segment.p_type != PT_NOTE) continue;
            const Bytes notes = image_.slice(segment.p_offset, segment.p_filesz, "note");
            for (uint64_t at = 0; at + sizeof(Elf64_Nhdr) <= notes.size;) {
                const auto note = notes.read<Elf64_Nhdr>(at, "note");
                const uint64_t description = at + sizeof note + (uint64_t(note.n_namesz) + 3) / 4 * 4;
                const Bytes payload = notes.slice(description, note.n_descsz, "note");
                if (note.n_type == kNoteAmdgpuMetadata) {
                    read_kernels(parse(payload));
                    return;
                }
                at = description + (uint64_t(note.n_descsz) + 3) / 4 * 4;
            }
        }
        throw BadCodeObject("the code object has no AMDGPU metadata");
    }

    static MessagePackValue parse(Bytes payload) {
        try {
            return read_message_pack(payload.data, payload.size);
        } catch (const std::runtime_error& error) {
            throw BadCodeObject(error.what());
        }
    }

    void read_kernels(const MessagePackValue& metadata) {
        for (const MessagePackValue& entry : metadata["amdhsa.kernels"].array) {
            Kernel kernel;
            kernel.name = entry[".name"].string;
            const std::string descriptor_name = entry[".symbol"].string;
            const auto symbol = std::find_if(symbols_.begin(), symbols_.end(), [&](const auto& candidate) {
                return candidate.first == descriptor_name && candidate.second.st_shndx != SHN_UNDEF;
            });
            if (symbol == symbols_.end()) throw BadCodeObject("kernel " + kernel.name + " has no descriptor");
            const uint64_t offset = symbol->second.st_value;
            kernel.descriptor = read_descriptor(loaded(), offset, base() + offset, kernel.name);
            const uint64_t text = base() + text_.p_vaddr;
            if (kernel.descriptor.entry < text || kernel.descriptor.entry >= text + text_.p_memsz)
                throw BadCodeObject("kernel " + kernel.name + " starts outside the executable segment");
            kernel.arguments = read_arguments(entry[".args"], kernel);
            if (const uint32_t limit = number(entry[".max_flat_workgroup_size"]))
                kernel.max_work_group_size = limit;
            kernel.vgprs = number(entry[".vgpr_count"]);
            kernel.sgprs = number(entry[".sgpr_count"]);
            kernel.vgpr_spills = number(entry[".vgpr_spill_count"]);
            kernel.sgpr_spills = number(entry[".sgpr_spill_count"]);
            object_->kernels_[kernel.name] = std::move(kernel);
        }
    }

    Bytes image_;
    std::string name_;
    std::unique_ptr<CodeObject> object_;
    Elf64_Ehdr header_{};
    std::vector<Elf64_Phdr> segments_;
    Elf64_Phdr text_{};
    std::vector<std::pair<std::string, Elf64_Sym>> symbols_;
};

std::unique_ptr<CodeObject> CodeObject::load(const uint8_t* image, size_t bytes, const std::string& name) {
    Bytes whole{image, bytes};
    if (starts_with(whole, kCompressedBundleMagic, 4))
        throw BadCodeObject("the image is a compressed offload bundle; build with --no-offload-compress");
    if (starts_with(whole, kBundleMagic, kBundleMagicBytes)) whole = choose_from_bundle(whole);
    return Loader(whole, name).load();
}

CodeObject::~CodeObject() {
    if (!memory_) return;
    remove_allocation(reinterpret_cast<uint64_t>(memory_));
    munmap(memory_, (memory_bytes_ + kPage - 1) / kPage * kPage);
}

const Kernel* CodeObject::find_kernel(const std::string& name) const {
    const auto found = kernels_.find(name);
    return found == kernels_.end() ? nullptr : &found->second;
}

const Symbol* CodeObject::find_variable(const std::string& name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() ? nullptr : &found->second;
}

size_t readable_bytes(const uint8_t* image) {
    const auto address = reinterpret_cast<uint64_t>(image);
    uint64_t end = address;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        unsigned long long first = 0, last = 0;
        char readable = 0;
        if (std::sscanf(line.c_str(), "%llx-%llx %c", &first, &last, &readable) != 3 || readable != 'r')
            continue;
        if (first <= end && end < last) end = last;
    }
    return end - address;
}

}  // namespace virtual_gpu
