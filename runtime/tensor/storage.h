#pragma once

#include <cstdint>

#include "shale/runtime/tensor/allocator.h"

namespace shale {

class Context;
class RowPieces;

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

  // Of a tensor whose rows are still travelling (row_pieces.h), what waits for them; else null.
  // Who reads values waits: Tensor::view() does.
  RowPieces* rows() const { return rows_; }
  void set_rows(RowPieces* rows) { rows_ = rows; }

 private:
  Context* context_;
  CachingAllocator::Block* block_;
  void* data_;
  int64_t bytes_;
  RowPieces* rows_ = nullptr;
};

}  // namespace shale
