#include "shale/runtime/tensor/memory.h"

namespace shale {

void empty_cache(Context& context) {
  context.allocator().release_cached();
}

std::string memory_summary(Context& context) {
  return context.allocator().memory_summary();
}

}  // namespace shale
