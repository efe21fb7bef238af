#include "shale/runtime/data/batch_uploads.h"

#include <algorithm>
#include <cstring>
#include <exception>

#include "shale/base/log.h"
#include "shale/runtime/tensor/storage.h"

namespace shale {
namespace {

// Returns the bytes that a field needs in a slot. They are rounded up, so that the next field is
// aligned for the copy engine.
int64_t room_of(const BatchUploads::Field& field) {
  constexpr int64_t kAlignment = 64;
  return (field.bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

BatchUploads::~BatchUploads() {
  try {
    stream_.synchronize();
  } catch (const std::exception& error) {
    log_warning("batch: ", error.what());  // a failed device no longer reads the memory
  }
  for (const Slot& slot : slots_) {
    if (slot.pinned != nullptr) {
      context_.backend().host_memory().free(slot.pinned, static_cast<size_t>(slot.bytes));
    }
  }
}

void BatchUploads::grow(Slot& slot, int64_t bytes) {
  if (bytes <= slot.bytes) return;
  slot.landed.synchronize();
  MemoryProvider& host = context_.backend().host_memory();
  if (slot.pinned != nullptr) host.free(slot.pinned, static_cast<size_t>(slot.bytes));
  slot.pinned = static_cast<std::byte*>(host.allocate(static_cast<size_t>(bytes)));
  slot.bytes = bytes;
  slot.landing = context_.allocate(bytes, MemoryTag::kData, "batch upload buffer");
  // Another tensor had this memory before, and queued work on the compute stream may still use it.
  slot.taken = Event(context_.backend(), context_.exec().stream);
}

void BatchUploads::upload(const std::vector<Field>& fields) {
  Slot& slot = slots_[next_++ % slots_.size()];
  int64_t bytes = 0;
  for (const Field& field : fields) bytes += room_of(field);
  // Grows both slots, so that the first upload allocates all the memory.
  for (Slot& any : slots_) grow(any, bytes);
  slot.landed.synchronize();
  slot.taken.hold_back(stream_.handle());
  DeviceBackend& device = context_.backend();
  auto* const landing = static_cast<std::byte*>(slot.landing->data());
  int64_t at = 0;
  for (const Field& field : fields) {
    std::memcpy(slot.pinned + at, field.from.data(),
                std::min(field.from.size(), static_cast<size_t>(field.bytes)));
    device.copy(landing + at, slot.pinned + at, static_cast<size_t>(field.bytes), stream_.handle());
    at += room_of(field);
  }
  slot.landed = stream_.mark();
  slot.landed.hold_back(context_.exec().stream);
  at = 0;
  for (const Field& field : fields) {
    context_.copy(field.to, landing + at, field.bytes);
    at += room_of(field);
  }
  slot.taken = Event(device, context_.exec().stream);
}

}  // namespace shale
