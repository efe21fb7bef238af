#include <algorithm>
#include <cstring>
#include <exception>

#include "shale/base/error.h"
#include "shale/runtime/tensor/upload_ring_internal.h"

namespace shale {
namespace {

constexpr size_t kAlignment = 64;     // alignment with which the copy engine reads
constexpr size_t kMostUnderWay = 64;  // maximum number of pending uploads, each with an event

}  // namespace

UploadRing::~UploadRing() {
  try {
    while (!under_way_.empty()) retire_first();
  } catch (const std::exception&) {
    // Ignores the error, because a failed device no longer reads the memory.
  }
  if (memory_ != nullptr) backend_.host_memory().free(memory_, bytes_);
}

void UploadRing::upload(void* to, const void* from, size_t bytes, void* stream) {
  if (!takes(bytes)) {
    throw InternalError(cat("upload: ", bytes, " bytes, expected at most ", bytes_ / 4));
  }
  const std::lock_guard lock(mutex_);
  if (memory_ == nullptr) {
    memory_ = static_cast<std::byte*>(backend_.host_memory().allocate(bytes_));
  }
  const size_t begin = make_room(bytes);
  std::memcpy(memory_ + begin, from, bytes);
  backend_.copy(to, memory_ + begin, bytes, stream);
  under_way_.push_back({begin, begin + bytes, backend_.record_event(stream)});
  next_ = (begin + bytes + kAlignment - 1) / kAlignment * kAlignment;
}

size_t UploadRing::make_room(size_t bytes) {
  const size_t begin = next_ + bytes > bytes_ ? 0 : next_;
  const auto overlaps = [&](const Upload& upload) {
    return upload.begin < begin + bytes && begin < upload.end;
  };
  while (under_way_.size() == kMostUnderWay || std::ranges::any_of(under_way_, overlaps)) {
    retire_first();
  }
  return begin;
}

void UploadRing::retire_first() {
  const Upload& first = under_way_.front();
  backend_.synchronize_event(first.read);
  backend_.destroy_event(first.read);
  under_way_.pop_front();
}

}  // namespace shale
