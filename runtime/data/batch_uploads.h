#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shale/runtime/tensor/context.h"
#include "shale/runtime/tensor/stream.h"

namespace shale {

// Uploads batches while the device computes. The host copies a batch to pinned memory, a separate
// stream copies it to a device buffer, and the compute stream copies the buffer to the tensors, at
// the speed of device memory. Two batches can be in flight; a third waits until the first is in its
// device buffer. Use from one thread.
class BatchUploads {
 public:
  struct Field {
    void* to;  // destination in device memory, used on the compute stream
    int64_t bytes;
    // Source in host memory; not used after upload() returns. In dry runs it may be shorter than
    // `bytes`.
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
    std::shared_ptr<Storage> landing{};  // the device buffer
    int64_t bytes = 0;
    Event landed{};  // event: the device has read `pinned`
    Event taken{};   // event: the compute stream has read `landing`
  };
  void grow(Slot& slot, int64_t bytes);

  Context& context_;
  Stream stream_;
  std::array<Slot, 2> slots_;
  size_t next_ = 0;
};

}  // namespace shale
