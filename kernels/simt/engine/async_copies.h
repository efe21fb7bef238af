#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shale/kernels/simt/engine/site.h"

namespace shale::emulator {

class Block;
struct Fiber;

// The cp.async operations of one thread. The target is filled with 0xff bytes when a copy is
// issued, and with the data when the thread waits for it, which is the latest time that the
// hardware allows.
class AsyncCopies {
 public:
  struct Copy {
    std::byte* to;  // target in shared memory
    const std::byte* from;
    uint32_t copied, zeroed;  // `copied` bytes, then `zeroed` zero bytes
  };

  void issue(Fiber& self, const Copy& copy);
  void commit() { groups_.push_back(copies_.size()); }
  // Waits until at most the `newest` newest groups are outstanding.
  void wait(Fiber& self, size_t newest);
  bool outstanding() const { return !copies_.empty(); }
  void reset() {
    copies_.clear();
    groups_.clear();
  }

 private:
  std::vector<Copy> copies_{};    // oldest first
  std::vector<size_t> groups_{};  // index in copies_ of each committed group's end
};

// Functions that kernels call; they act for the current thread.
void cp_async(void* to, const void* from, uint32_t bytes, uint32_t valid_bytes, Site site);
void cp_async_commit(Site site);
void cp_async_wait(int newest, Site site);

}  // namespace shale::emulator
