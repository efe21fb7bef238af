#pragma once

#include <string>

#include "shale/models/training/report/memory_ledger.h"

namespace shale::models {

// Writes a memory timeline. If the path ends in ".svg", draws the memory in use by tag over the
// sequence of allocations, with the ledger's marks and, below, the largest shares of the peak.
// Otherwise writes a snapshot for PyTorch's memory viewer (pytorch.org/memory_viz), in which the
// stack of an allocation consists of requester, module and tag. Throws DiskError.
void write_memory_profile(const std::string& path, const MemoryLedger& ledger,
                          const std::string& title);

std::string memory_svg(const MemoryLedger& ledger, const std::string& title);
std::string memory_snapshot(const MemoryLedger& ledger);  // Returns the snapshot, a pickle.

}  // namespace shale::models
