#pragma once

#include <cstddef>

namespace shale {

// Copies memory that nobody reads again soon. Where the processor can, the bytes go past its
// caches: a plain copy first reads the lines that it is about to overwrite, which is a third of its
// traffic, and pushes out what was in the caches. For large copies; both may have any alignment,
// and must not overlap. Other threads see the bytes as they see a plain copy's.
void stream_copy(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace shale
