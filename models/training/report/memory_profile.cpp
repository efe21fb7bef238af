#include "shale/models/training/report/memory_profile.h"

#include "shale/runtime/io/atomic_file.h"

namespace shale::models {

void write_memory_profile(const std::string& path, const MemoryLedger& ledger,
                          const std::string& title) {
  const bool is_picture = path.ends_with(".svg");
  write_file_atomically(path, is_picture ? memory_svg(ledger, title) : memory_snapshot(ledger));
}

}  // namespace shale::models
