#pragma once

#include <string>

#include "shale/runtime/tensor/context.h"

namespace shale {

// Memory control of a context for users, with PyTorch's names.

// Returns unused memory of the context's allocator to the system, so that other programs, or
// tensors of other sizes, can use it. Waits for work that still uses freed memory. Segments that
// hold used blocks stay.
void empty_cache(Context& context);

// Returns a table: bytes in use by tag, now and at the peak; bytes reserved; free bytes among the
// reserved ones, in total and in the largest block.
std::string memory_summary(Context& context);

}  // namespace shale
