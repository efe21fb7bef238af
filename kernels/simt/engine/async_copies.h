#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shale/kernels/simt/engine/site.h"

namespace shale::emulator {

class Block;
struct Fiber;

// The cp.async operations of one thread. Memory is poisoned when a copy is issued and filled when
// it is waited for, the latest that the hardware may do it.
class AsyncCopies {
 public:
  struct Copy {
    std::byte* to;  // shared memory
    const std::byte* from;
    uint32_t copied, zeroed;  // bytes, one part after the other
  };

  void issue(Fiber& self, const Copy& copy);
  void commit() { groups_.push_back(copies_.size()); }
  // Until at most `newest` groups are outstanding.
  void wait(Fiber& self, size_t newest);
  bool outstanding() const { return !copies_.empty(); }
  void reset() {
    copies_.clear();
    groups_.clear();
  }

 private:
  std::vector<Copy> copies_{};    // oldest first
  std::vector<size_t> groups_{};  // where in copies_ each committed group ends
};

// What kernels call, on the current thread.
void cp_async(void* to, const void* from, uint32_t bytes, uint32_t valid_bytes, Site site);
void cp_async_commit(Site site);
void cp_async_wait(int newest, Site site);

}  // namespace shale::emulator
