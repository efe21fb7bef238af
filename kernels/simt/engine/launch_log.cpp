#include "shale/kernels/simt/engine/launch_log.h"

#include <dlfcn.h>
#include <elf.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <set>

#include "shale/base/error.h"

namespace shale::emulator {
namespace {

// Maps addresses to function names in one ELF file, including functions with internal linkage.
class Symbols {
 public:
  explicit Symbols(const char* path) {
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    Elf64_Ehdr header;
    if (bytes.size() < sizeof header) return;
    std::memcpy(&header, bytes.data(), sizeof header);
    std::vector<Elf64_Shdr> sections(header.e_shnum);
    std::memcpy(sections.data(), bytes.data() + header.e_shoff,
                sections.size() * sizeof(Elf64_Shdr));
    for (const Elf64_Shdr& section : sections) {
      if (section.sh_type != SHT_SYMTAB) continue;
      const char* names = bytes.data() + sections[section.sh_link].sh_offset;
      std::vector<Elf64_Sym> symbols(section.sh_size / sizeof(Elf64_Sym));
      std::memcpy(symbols.data(), bytes.data() + section.sh_offset, section.sh_size);
      for (const Elf64_Sym& symbol : symbols) {
        if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) {
          names_.try_emplace(symbol.st_value, names + symbol.st_name);
        }
      }
    }
  }
  std::string at(uint64_t address) const {
    const auto found = names_.find(address);
    return found == names_.end() ? "unknown" : found->second;
  }

 private:
  std::map<uint64_t, std::string> names_;
};

std::string symbol_of(const void* function) {
  Dl_info info{};
  if (dladdr(function, &info) == 0) return "unknown";
  static std::map<std::string, Symbols> files;
  const auto [file, is_new] = files.try_emplace(info.dli_fname, info.dli_fname);
  return file->second.at(reinterpret_cast<uint64_t>(function) -
                         reinterpret_cast<uint64_t>(info.dli_fbase));
}

FILE* open_log() {
  const char* path = std::getenv("SHALE_EMU_LAUNCHES");
  if (path == nullptr || *path == '\0') return nullptr;
  FILE* const file = std::fopen(path, "w");
  if (file == nullptr) throw ConfigError(cat("SHALE_EMU_LAUNCHES: cannot write ", path));
  return file;
}

}  // namespace

void log_launch(const Grid& grid, int arch) {
  static FILE* const file = open_log();
  if (file == nullptr) return;
  static std::mutex mutex;
  static std::set<std::tuple<const void*, int, int64_t, size_t>> seen;
  const int64_t threads = int64_t{grid.threads.x} * grid.threads.y * grid.threads.z;
  const std::lock_guard lock(mutex);
  if (!seen.insert({grid.function, arch, threads, grid.dynamic_bytes}).second) return;
  std::fprintf(file, "%s %d %lld %zu\n", symbol_of(grid.function).c_str(), arch,
               static_cast<long long>(threads), grid.dynamic_bytes);
  std::fflush(file);
}

}  // namespace shale::emulator
