#pragma once

#include <cstdint>

#include "shale/runtime/tensor/allocator.h"

namespace shale {

class Context;
class RowPieces;

// Device memory that tensors share. Its last owner returns it to the allocator.
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

  // Pieces to wait for, if rows of the tensor are still in transfer (row_pieces.h); else null.
  // Readers of values must wait; Tensor::view() does.
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
