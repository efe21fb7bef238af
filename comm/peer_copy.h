#pragma once

#include <cstdint>

namespace shale::comm {

// Copies between this process and memory of another process of the node that is not shared: the
// kernel does it in one pass (process_vm_readv), where its rules on tracing processes allow it.
// Return whether it worked; errno says why not.
bool copy_from_peer(int32_t pid, uint64_t address, void* to, int64_t bytes);
bool copy_to_peer(int32_t pid, uint64_t address, const void* from, int64_t bytes);

}  // namespace shale::comm
