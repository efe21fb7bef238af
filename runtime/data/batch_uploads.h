#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shale/runtime/tensor/context.h"
#include "shale/runtime/tensor/stream.h"

namespace shale {

// Uploads batches while the device computes: a batch is copied to pinned memory, from there by a
// separate stream to a buffer of the device, and from there by the compute stream, in its turn,
// to the tensors. So the compute stream waits for the device's memory only. Two batches can be on
// the way; a third waits for the first one's copy. Use from one thread.
class BatchUploads {
 public:
  struct Field {
    void* to;  // device memory, used on the compute stream
    int64_t bytes;
    // Any host memory, which has been read when upload() returns; shorter than `bytes` in dry runs.
    std::span<const std::byte> from;
  };

  explicit BatchUploads(Context& context) : context_(context), stream_(context.backend()) {}
  ~BatchUploads();
  BatchUploads(const BatchUploads&) = delete;
  BatchUploads& operator=(const BatchUploads&) = delete;

  void upload(const std::vector<Field>& fields);

 private:
  struct Slot {
    std::byte* pinned = nullptr;
    std::shared_ptr<Storage> landing{};  // of the device
    int64_t bytes = 0;
    Event landed{};  // the device has read `pinned`
    Event taken{};   // the compute stream has read `landing`
  };
  void grow(Slot& slot, int64_t bytes);

  Context& context_;
  Stream stream_;
  std::array<Slot, 2> slots_;
  size_t next_ = 0;
};

}  // namespace shale
