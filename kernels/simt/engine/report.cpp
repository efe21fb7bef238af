#include "shale/kernels/simt/engine/report.h"

#include <dlfcn.h>

#include <cstdio>
#include <map>
#include <vector>

#include "shale/base/text.h"
#include "shale/kernels/simt/engine/block.h"

namespace shale::emulator {
namespace {

std::string index_text(const Index3& index) {
  return cat("(", index.x, ",", index.y, ",", index.z, ")");
}

// Returns the primitive that a thread executes, and its place: "barrier_sync 1 (gemm/gemm.cu:31)".
std::string place(const Fiber& fiber) {
  const std::string_view primitive = fiber.primitive;
  const std::string number = primitive.starts_with("barrier_") ? cat(" ", fiber.barrier) : "";
  return cat(primitive, number, " (", fiber.site, ")");
}

// Returns the numbers as ranges: "0-31, 40".
std::string ranges(const std::vector<int>& ids) {
  std::string text;
  for (size_t i = 0; i < ids.size();) {
    size_t last = i;
    while (last + 1 < ids.size() && ids[last + 1] == ids[last] + 1) ++last;
    if (!text.empty()) text += ", ";
    text += last == i ? cat(ids[i]) : cat(ids[i], "-", ids[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace

std::string to_string(const Site& site) {
  // Keeps only the last folder and the file name, because the other folders depend on the build
  // machine.
  std::string_view path = site.file;
  if (const size_t slash = path.rfind('/'); slash != path.npos && slash > 0) {
    if (const size_t before = path.rfind('/', slash - 1); before != path.npos) {
      path.remove_prefix(before + 1);
    }
  }
  return cat(path, ":", site.line);
}

std::string describe_failure(const Block& block, std::string what, const Fiber* self) {
  const Site& launch = block.grid().site;
  std::string text =
      cat(launch.function, " (", launch, "): ", what, " [block ", index_text(block.index()));
  if (self != nullptr) {
    text += cat(", thread ", index_text(self->index));
    if (self->primitive != nullptr) {
      text += cat(", at or after ", place(*self));
    }
  }
  return text + "]";
}

std::string describe_threads(std::span<const Fiber> fibers) {
  std::map<std::string, std::vector<int>> groups;
  for (const Fiber& fiber : fibers) {
    const bool ended = fiber.state == Fiber::State::kExited;
    std::string what = ended ? "have ended" : cat("wait at ", place(fiber));
    if (!ended && fiber.primitive == std::string_view("mbarrier_wait")) {
      what += cat(" for ", fiber.block->mbarriers().describe(fiber.barrier));
    }
    if (!ended && fiber.primitive == std::string_view("grow_registers")) {
      what += cat(" ", fiber.block->registers().describe(fiber));
    }
    groups[what].push_back(fiber.id);
  }
  std::string text;
  for (const auto& [what, ids] : groups) {
    text += cat(text.empty() ? "" : "; ", "threads ", ranges(ids), " ", what);
  }
  return text;
}

std::string describe_instruction(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "unknown";
  std::string_view file = info.dli_fname;
  file.remove_prefix(file.rfind('/') + 1);
  char offset[32];
  std::snprintf(offset, sizeof(offset), "+0x%tx",
                static_cast<const char*>(address) - static_cast<const char*>(info.dli_fbase));
  return cat(file, offset);
}

}  // namespace shale::emulator
