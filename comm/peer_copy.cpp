#include "comm/peer_copy.h"

#include <sys/uio.h>

#include <cstddef>

namespace shale::comm {
namespace {

using Transfer = decltype(&process_vm_readv);

// A call moves less than 2 GiB, and may stop early at a page boundary.
bool transfer(Transfer call, int32_t pid, uint64_t address, std::byte* local, int64_t bytes) {
  while (bytes > 0) {
    const auto size = static_cast<size_t>(bytes);
    const iovec here{.iov_base = local, .iov_len = size};
    const iovec there{.iov_base = reinterpret_cast<void*>(address), .iov_len = size};
    const ssize_t moved = call(pid, &here, 1, &there, 1, 0);
    if (moved <= 0) return false;
    local += moved;
    address += static_cast<uint64_t>(moved);
    bytes -= moved;
  }
  return true;
}

}  // namespace

bool copy_from_peer(int32_t pid, uint64_t address, void* to, int64_t bytes) {
  return transfer(process_vm_readv, pid, address, static_cast<std::byte*>(to), bytes);
}

bool copy_to_peer(int32_t pid, uint64_t address, const void* from, int64_t bytes) {
  // The call takes both sides as not const and only reads this one.
  auto* local = static_cast<std::byte*>(const_cast<void*>(from));
  return transfer(process_vm_writev, pid, address, local, bytes);
}

}  // namespace shale::comm
