#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "shale/runtime/tensor/storage.h"

namespace shale {

// Memory of somebody else, on the context's device, as the storage of tensors. `release` is called
// once, when nobody uses it any more and what was queued on the compute stream is done; it must not
// throw. It counts in no statistics of memory.
std::shared_ptr<Storage> adopt_memory(Context& context, void* memory, int64_t bytes,
                                      std::function<void()> release);

}  // namespace shale
