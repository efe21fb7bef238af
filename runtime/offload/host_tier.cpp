#include "shale/runtime/offload/host_tier.h"

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/kernels/kernel_call.h"

namespace shale::offload {
namespace {

std::span<std::byte> memory_of(const Tensor& x) {
  return {static_cast<std::byte*>(x.data()), static_cast<size_t>(x.bytes())};
}

}  // namespace

// Before a kernel runs, checks that the memory it will write may be written
// (DiskMemory::check_writable).
class HostTier::WriteCheck : public kernels::CallObserver {
 public:
  explicit WriteCheck(const DiskMemory& disk) : disk_(disk) {}
  void around(const kernels::SlotCall& call) override {
    for (const View& view : kernels::written_by(call)) {
      check(call.slot().name(), view.data, view.bytes());
    }
    call.run();
  }
  void writing(const void* to, int64_t bytes) override { check("copy", to, bytes); }

 private:
  void check(std::string_view what, const void* to, int64_t bytes) const {
    disk_.check_writable(what, {static_cast<const std::byte*>(to), static_cast<size_t>(bytes)});
  }
  const DiskMemory& disk_;
};

HostTier::HostTier(Context& device, const HostTierOptions& options)
    : device_(device),
      disk_(options.folder.empty() ? nullptr : std::make_unique<DiskMemory>(options.folder)),
      context_({.threads = options.threads, .device_memory = options.host_memory, .name = "host"}),
      down_(device.backend()),
      up_(device.backend()) {
  for (int tag = 0; tag < kMemoryTags; ++tag) {
    context_.allocator().set_provider(MemoryTag(tag), &device.backend().host_memory());
  }
  if (disk_ == nullptr) return;
  for (const MemoryTag tag : {MemoryTag::kParameter, MemoryTag::kGradient, MemoryTag::kOptimizer}) {
    context_.allocator().set_provider(tag, disk_.get());
  }
  write_check_ = std::make_unique<WriteCheck>(*disk_);
  checked_.emplace(context_, *write_check_);
}

void HostTier::prefetch(const Tensor& host) {
  if (on_disk()) disk_->prefetch(memory_of(host));
}

void HostTier::acquire(const Tensor& host, bool fetch) {
  if (on_disk()) disk_->acquire(memory_of(host), fetch);
}

void HostTier::release(const Tensor& host, bool changed) {
  if (on_disk()) disk_->release(memory_of(host), changed);
}

void HostTier::settle() {
  if (on_disk()) disk_->settle();
}

HostTier::~HostTier() {
  try {
    down_.synchronize();
    up_.synchronize();
    // the device is lost, so no copy uses host memory any more
  } catch (const std::exception& error) {
    log_warning("offload: ", error.what());
  }
  for (const Stream* stream : {&down_, &up_}) device_.allocator().forget_stream(stream->handle());
}

Tensor HostTier::allocate(int64_t count, DType dtype, MemoryTag tag, std::string_view what) {
  reap(/*wait=*/false);
  try {
    return empty(context_, {count}, dtype, tag, what);
  } catch (const OutOfMemoryError&) {
    reap(/*wait=*/true);
    return empty(context_, {count}, dtype, tag, what);
  }
}

void HostTier::release_after(Tensor host, Event copied) {
  if (copied.done()) return;
  const std::lock_guard lock(mutex_);
  leaving_.emplace_back(std::move(copied), std::move(host));
}

void HostTier::reap(bool wait) {
  const std::lock_guard lock(mutex_);
  std::erase_if(leaving_, [&](const auto& entry) {
    if (wait) entry.first.synchronize();
    return entry.first.done();
  });
}

namespace {

void check_sizes(const Tensor& from, const Tensor& to) {
  check_contiguous("offload", "source", from);
  check_contiguous("offload", "target", to);
  if (from.bytes() == to.bytes()) return;
  throw ShapeError(cat("offload: the source is ", to_string(from), ", the target ", to_string(to),
                       ", expected equal numbers of bytes"));
}

}  // namespace

Event HostTier::download(const Tensor& from_device, const Tensor& to_host, Events after) {
  check_sizes(from_device, to_host);
  if (on_disk()) disk_->check_writable("offload: download", memory_of(to_host));
  return queue({to_host.data(), from_device.data(), to_host.bytes(), *from_device.storage()}, down_,
               after);
}

Event HostTier::upload(const Tensor& from_host, const Tensor& to_device, Events after) {
  check_sizes(from_host, to_device);
  return queue({to_device.data(), from_host.data(), to_device.bytes(), *to_device.storage()}, up_,
               after);
}

Event HostTier::download(const Storage& from_device, const Tensor& to_host, Events after) {
  if (to_host.bytes() != from_device.bytes()) {
    throw ShapeError(cat("offload: the source has ", from_device.bytes(), " bytes, the target is ",
                         to_string(to_host), ", expected equal numbers of bytes"));
  }
  return queue({to_host.data(), from_device.data(), to_host.bytes(), from_device}, down_, after);
}

Event HostTier::queue(const Copy& copy, const Stream& stream, Events after) {
  for (const Event& event : after) event.hold_back(stream.handle());
  copy.on_device.record_stream(stream.handle());
  device_.backend().copy(copy.to, copy.from, static_cast<size_t>(copy.bytes), stream.handle());
  return stream.mark();
}

}  // namespace shale::offload
