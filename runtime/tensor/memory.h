#pragma once

#include <string>

#include "shale/runtime/tensor/context.h"

namespace shale {

// Functions with which users control a context's memory; they have PyTorch's names.

// Returns unused memory of the context's allocator to the system, so that other programs, or
// tensors of other sizes, can use it. Waits for work that still uses freed memory. Segments that
// hold used blocks stay.
void empty_cache(Context& context);

// Returns a table of bytes: in use by tag, now and at the peak; reserved; and free within the
// reserved memory, in total and in the largest block.
std::string memory_summary(Context& context);

}  // namespace shale
