#pragma once

#include <string>

#include "shale/models/training/report/memory_ledger.h"

namespace shale::models {

// The forms of a memory profile, by the end of a file's name. Throws ConfigError for another.
void check_memory_profile(const std::string& path);  // ".svg" or ".pickle"

// What lived when. As a picture: memory in use by tag over the order of allocations, with the
// ledger's marks and, below, the largest shares of the peak. As a snapshot that PyTorch's viewer of
// memory reads (pytorch.org/memory_viz), in which an allocation's stack is asker, module and tag.
// Throws DiskError.
void write_memory_profile(const std::string& path, const MemoryLedger& ledger,
                          const std::string& title);

std::string memory_svg(const MemoryLedger& ledger, const std::string& title);
std::string memory_snapshot(const MemoryLedger& ledger);  // a pickle

}  // namespace shale::models
