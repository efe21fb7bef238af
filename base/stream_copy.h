#pragma once

#include <cstddef>

namespace shale {

// Copies memory that will not be read again soon, without the caches if the CPU supports it. A
// plain copy would first read the cache lines that it overwrites, a third of its traffic, and evict
// other data. Meant for large copies. Source and destination may have any alignment and must not
// overlap. Other threads see the result as after a plain copy.
void stream_copy(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace shale
