#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "shale/runtime/tensor/storage.h"

namespace shale {

// Wraps memory that the caller owns, on the context's device, as the storage of tensors. `release`
// is called once, when nothing uses the memory any more and the work queued on the compute stream
// is done; it must not throw. Memory statistics do not include this memory.
std::shared_ptr<Storage> adopt_memory(Context& context, void* memory, int64_t bytes,
                                      std::function<void()> release);

}  // namespace shale
