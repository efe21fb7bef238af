#include "shale/models/training/report/memory_profile.h"

#include "shale/base/error.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale::models {

void check_memory_profile(const std::string& path) {
  if (path.ends_with(".svg") || path.ends_with(".pickle")) return;
  throw ConfigError(cat("--memory-profile ", path,
                        ": expected a name that ends in .svg, for a picture, or in .pickle, for "
                        "PyTorch's viewer"));
}

void write_memory_profile(const std::string& path, const MemoryLedger& ledger,
                          const std::string& title) {
  check_memory_profile(path);
  const bool is_picture = path.ends_with(".svg");
  write_file_atomically(path, is_picture ? memory_svg(ledger, title) : memory_snapshot(ledger));
}

}  // namespace shale::models
