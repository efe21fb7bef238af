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

// Options of a HostTier.
struct HostTierOptions {
  int threads = 1;          // CPU threads per kernel on host tensors
  int64_t host_memory = 0;  // limit of host memory in bytes; 0: no limit
  // Folder for a file that holds parameters, gradients and optimizer states (DiskMemory). Empty:
  // they stay in host memory.
  std::string folder = {};
};

// Host memory that extends a device's memory, with its own memory limit (HostTierOptions). It is
// pinned if the device is a GPU. If the device is the CPU, both are ordinary host memory. Host
// tensors belong to context(), so kernels on them run on the CPU.
//
// Copies use two streams, one per direction, besides the compute stream. Streams do not order
// accesses to host tensors: before the CPU reads or writes one, it must wait for the event of its
// last copy.
class HostTier {
 public:
  // The device's context must outlive this object.
  HostTier(Context& device, const HostTierOptions& options);
  ~HostTier();  // waits for pending copies
  HostTier(const HostTier&) = delete;
  HostTier& operator=(const HostTier&) = delete;

  Context& device() { return device_; }
  Context& context() { return context_; }

  // Allocates a dense vector in host memory. Throws OutOfMemoryError with `what` in its message.
  Tensor allocate(int64_t count, DType dtype, MemoryTag tag, std::string_view what);
  // Frees a host tensor once the copy with the event `copied` has finished.
  void release_after(Tensor host, Event copied);

  // Functions for tensors that are kept on disk; without a disk they do nothing.
  //
  // - prefetch() starts to read a tensor into memory.
  // - acquire() waits until the tensor is in memory, where it stays until release(). fetch: if
  //   false, the contents are not read, because the caller will overwrite the whole tensor.
  // - release() ends the use of the tensor. changed: true if it must be written back to the disk.
  // - settle() waits until all released tensors are on the disk. Call it before other code writes
  //   to them.
  //
  // Kernels of context() and download() throw InternalError before a write that could be lost.
  bool on_disk() const { return disk_ != nullptr; }
  void prefetch(const Tensor& host);
  void acquire(const Tensor& host, bool fetch = true);
  void release(const Tensor& host, bool changed);
  void settle();
  const DiskMemory* disk() const { return disk_.get(); }

  // Returns an event that follows all work now queued on the device's compute stream.
  Event computed() const { return {device_.backend(), device_.exec().stream}; }
  // Copy between contiguous tensors of equal size. The copy starts after the events `after`. The
  // functions return the event of its end. The device tensor may be freed immediately, the host
  // tensor only after the copy.
  using Events = std::initializer_list<Event>;
  Event download(const Tensor& from_device, const Tensor& to_host, Events after);
  Event upload(const Tensor& from_host, const Tensor& to_device, Events after);
  // Copies the bytes of a storage.
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
  std::unique_ptr<DiskMemory> disk_;  // null: no tensors on disk
  Context context_;
  std::unique_ptr<WriteCheck> write_check_;  // null: no tensors on disk
  std::optional<Context::Observation> checked_;
  Stream down_;
  Stream up_;
  std::mutex mutex_;
  // host tensors to free after the copies that use them
  std::vector<std::pair<Event, Tensor>> leaving_;
};

}  // namespace shale::offload
