#pragma once

#include <string>

#include "shale/runtime/tensor/context.h"

namespace shale {

// The device memory of a context, for its user; PyTorch has both names.

// Gives free memory that the context's allocator holds back to the system, for other programs and
// for tensors of sizes that do not fit into it. Waits for work that still uses freed memory. What
// is in use stays where it is, and with it the segment that it lies in.
void empty_cache(Context& context);

// A table of what is in use by tag, now and when most was, of what is held for it, and of how much
// of that is free, in one piece and in all.
std::string memory_summary(Context& context);

}  // namespace shale
