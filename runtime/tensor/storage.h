#pragma once

#include <cstdint>

#include "shale/runtime/tensor/allocator.h"

namespace shale {

class Context;

// A piece of device memory that tensors share; it goes back to the allocator with its last owner.
class Storage {
 public:
  Storage(Context& context, CachingAllocator::Block* block, int64_t bytes)
      : context_(&context), block_(block), data_(CachingAllocator::data(block)), bytes_(bytes) {}
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Context& context() const { return *context_; }
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  void record_stream(void* stream) const;  // see CachingAllocator::record_stream

 private:
  Context* context_;
  CachingAllocator::Block* block_;
  void* data_;
  int64_t bytes_;
};

}  // namespace shale
