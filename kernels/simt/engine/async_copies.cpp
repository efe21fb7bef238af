#include "shale/kernels/simt/engine/async_copies.h"

#include <cstring>

#include "shale/base/text.h"
#include "shale/kernels/simt/engine/block.h"

namespace shale::emulator {

void AsyncCopies::issue(Fiber& self, const Copy& copy) {
  const uint32_t bytes = copy.copied + copy.zeroed;
  const uint32_t offset = self.block->shared().check(copy.to, bytes, bytes, "cp.async");
  if (copy.copied > 0) check_waited(self, "starts a cp.async from");
  if (copy.copied > 0 && reinterpret_cast<uintptr_t>(copy.from) % bytes != 0) {
    self.block->fail(Fault::kMisaligned,
                     cat("cp.async of ", bytes, " bytes from an address in global memory that is ",
                         "no multiple of ", bytes));
  }
  if (copy.copied > 0) self.block->global().access(copy.from, copy.copied, Access::kRead);
  self.block->tracker().copy_issued(self.actor, offset, bytes);
  std::memset(copy.to, 0xff, bytes);
  copies_.push_back(copy);
}

void AsyncCopies::wait(Fiber& self, size_t newest) {
  if (groups_.size() <= newest) return;
  const size_t landing_groups = groups_.size() - newest;
  const size_t landing = groups_[landing_groups - 1];
  for (size_t i = 0; i < landing; ++i) {
    const Copy& copy = copies_[i];
    if (copy.copied > 0) std::memcpy(copy.to, copy.from, copy.copied);
    if (copy.zeroed > 0) std::memset(copy.to + copy.copied, 0, copy.zeroed);
    self.block->tracker().copy_landed(self.actor, self.block->shared().offset_of(copy.to),
                                      copy.copied + copy.zeroed);
  }
  copies_.erase(copies_.begin(), copies_.begin() + static_cast<ptrdiff_t>(landing));
  groups_.erase(groups_.begin(), groups_.begin() + static_cast<ptrdiff_t>(landing_groups));
  for (size_t& end : groups_) end -= landing;
}

void cp_async(void* to, const void* from, uint32_t bytes, uint32_t valid_bytes, Site site) {
  Fiber& self = enter("cp.async", site);
  self.copies.issue(self, {static_cast<std::byte*>(to), static_cast<const std::byte*>(from),
                           valid_bytes, bytes - valid_bytes});
}

void cp_async_commit(Site site) {
  enter("cp.async.commit_group", site).copies.commit();
}

void cp_async_wait(int newest, Site site) {
  Fiber& self = enter("cp.async.wait_group", site);
  self.copies.wait(self, static_cast<size_t>(newest));
}

}  // namespace shale::emulator
