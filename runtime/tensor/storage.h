#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "shale/runtime/tensor/allocator.h"

namespace shale {

class Context;
class RowPieces;

// Device memory that tensors share. Its last owner returns it to the allocator.
class Storage {
 public:
  Storage(std::shared_ptr<DeviceMemory> memory, CachingAllocator::Block* block, int64_t bytes)
      : memory_(std::move(memory)),
        block_(block),
        data_(CachingAllocator::data(block)),
        bytes_(bytes) {}
  ~Storage() { memory_->allocator.free(block_); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Context& context() const {
    if (memory_->context == nullptr) throw_context_ended();
    return *memory_->context;
  }
  void* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  void record_stream(void* stream) const { memory_->allocator.record_stream(block_, stream); }

  // If rows of the tensor are still in transfer, returns the pieces to wait for (row_pieces.h);
  // else null. Code that reads the values must wait; Tensor::view() does.
  RowPieces* rows() const { return rows_; }
  void set_rows(RowPieces* rows) { rows_ = rows; }

 private:
  [[noreturn]] static void throw_context_ended();

  std::shared_ptr<DeviceMemory> memory_;
  CachingAllocator::Block* block_;
  void* data_;
  int64_t bytes_;
  RowPieces* rows_ = nullptr;
};

}  // namespace shale
