#include "shale/runtime/io/direct_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "shale/base/error.h"

namespace shale {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

}  // namespace

void FreeDirectMemory::operator()(std::byte* memory) const {
  munmap(memory, bytes);
}

DirectMemory allocate_direct_memory(size_t bytes) {
  const bool is_large = bytes >= kHugePage;
  const size_t size = align_up(std::max<size_t>(bytes, 1));
  const size_t slack = is_large ? kHugePage : 0;  // allows alignment to a huge page
  void* mapped = mmap(nullptr, size + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      /*fd=*/-1, 0);
  if (mapped == MAP_FAILED) {
    throw OutOfMemoryError(cat("direct I/O: cannot allocate a buffer of ",
                               format_bytes(double(bytes)), ": ", std::strerror(errno)));
  }
  auto* begin = static_cast<std::byte*>(mapped);
  const size_t before = slack == 0 ? 0 : (kHugePage - uintptr_t(begin) % kHugePage) % kHugePage;
  if (before > 0) munmap(begin, before);
  if (slack > before) munmap(begin + before + size, slack - before);
  // The result is not checked: without huge pages, transfers are only slower.
  if (is_large) madvise(begin + before, size, MADV_HUGEPAGE);
  return DirectMemory(begin + before, {size});
}

}  // namespace shale
