#pragma once

#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/runtime/offload/disk_memory.h"
#include "shale/runtime/tensor/stream.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::offload {

// How host memory is used by a HostTier.
struct HostTierOptions {
  int threads = 1;          // CPU threads of a kernel on host tensors
  int64_t host_memory = 0;  // budget in bytes; 0: none
  // Parameters, gradients and optimizer states lie in a file of this folder instead (DiskMemory);
  // empty: in memory.
  std::string folder = {};
};

// Host memory beside a device's: pinned if the device is a GPU, without a budget of its own unless
// one is given. On the CPU both are the same kind of memory, but the device's is budgeted. Tensors
// here belong to context(), so kernels on them run on the CPU.
//
// Copies go over two streams, one in each direction, beside the device's compute stream. Host
// tensors are not ordered by streams: whoever reads or writes one on the CPU waits for the event of
// its last copy first.
class HostTier {
 public:
  // `device` must outlive this.
  HostTier(Context& device, const HostTierOptions& options);
  ~HostTier();  // waits for the copies
  HostTier(const HostTier&) = delete;
  HostTier& operator=(const HostTier&) = delete;

  Context& device() { return device_; }
  Context& context() { return context_; }

  // A dense vector in host memory. Throws OutOfMemoryError naming `what`.
  Tensor allocate(int64_t count, DType dtype, MemoryTag tag, std::string_view what);
  // Lets go of a host tensor when a copy that uses it is over.
  void release_after(Tensor host, Event copied);

  // Of tensors on a disk; without one they do nothing. A tensor that is acquired is in memory up to
  // its release; prefetch() starts what acquire() waits for. `fetch` false: all of it is written
  // next. changed: the disk's copy is not what it was. settle() returns when all that was released
  // is on the disk, before others than who released it write there. Kernels of context() and
  // download() throw InternalError before a write that could be lost (DiskMemory::check_writable).
  bool on_disk() const { return disk_ != nullptr; }
  void prefetch(const Tensor& host);
  void acquire(const Tensor& host, bool fetch = true);
  void release(const Tensor& host, bool changed);
  void settle();
  const DiskMemory* disk() const { return disk_.get(); }

  // All work queued on the device's compute stream so far.
  Event computed() const { return {device_.backend(), device_.exec().stream}; }
  // Copies between contiguous tensors of the same size, once all of `after` has come to pass; the
  // event is the copy's end. The device tensor may be dropped at once, the host tensor may not.
  using Events = std::initializer_list<Event>;
  Event download(const Tensor& from_device, const Tensor& to_host, Events after);
  Event upload(const Tensor& from_host, const Tensor& to_device, Events after);
  // The bytes of a storage.
  Event download(const Storage& from_device, const Tensor& to_host, Events after);

 private:
  struct Copy {
    void* to;
    const void* from;
    int64_t bytes;
    const Storage& on_device;
  };
  Event queue(const Copy& copy, const Stream& stream, Events after);
  void reap(bool wait);

  class WriteCheck;

  Context& device_;
  std::unique_ptr<DiskMemory> disk_;  // null: none
  Context context_;
  std::unique_ptr<WriteCheck> write_check_;  // of a disk
  std::optional<Context::Observation> checked_;
  Stream down_;
  Stream up_;
  std::mutex mutex_;
  std::vector<std::pair<Event, Tensor>> leaving_;  // host tensors that copies still use
};

}  // namespace shale::offload
