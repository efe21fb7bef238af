#include "shale/kernels/simt/engine/shared_memory.h"

#include <algorithm>
#include <cstring>

#include "shale/base/address_sanitizer.h"
#include "shale/base/text.h"
#include "shale/kernels/simt/engine/block.h"

namespace shale::emulator {
namespace {

constexpr size_t kRedZone = 128;
constexpr int kRedByte = 0xcb;
constexpr int kPoison = 0xff;
constexpr size_t kDynamicAlignment = 1024;  // alignment of the dynamic shared memory, in bytes

size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

SharedMemory::SharedMemory(Block& block)
    : block_(block), mapping_(kBytes + 2 * kPageBytes), arena_(mapping_.data() + kPageBytes) {
  mapping_.forbid(0, kPageBytes);
  mapping_.forbid(kPageBytes + kBytes, kPageBytes);
}

void SharedMemory::reset(size_t dynamic_bytes, size_t limit) {
  parts_.clear();
  end_ = 0;
  limit_ = limit;
  address_sanitizer::poison(arena_, kBytes);
  add_part(nullptr, dynamic_bytes, 1);
}

std::byte* SharedMemory::static_object(const void* key, size_t bytes, size_t alignment) {
  for (const Part& part : parts_) {
    if (part.key == key) return arena_ + part.begin;
  }
  const size_t needed = needed_with(bytes, alignment);
  if (needed > limit_) {
    block_.fail(Fault::kLaunch,
                cat("static and dynamic shared memory need ", needed, " bytes, a block has ",
                    limit_, limit_ == kUnasked ? " unless more is requested" : ""));
  }
  return add_part(key, bytes, alignment);
}

size_t SharedMemory::needed_with(size_t bytes, size_t alignment) const {
  size_t all = 0;
  for (const Part& part : parts_) {
    if (part.key != nullptr) all = round_up(all, part.alignment) + part.bytes;
  }
  all = round_up(all, alignment) + bytes;
  const size_t dynamic = parts_.front().bytes;
  return dynamic == 0 ? all : round_up(all, kDynamicAlignment) + dynamic;
}

std::byte* SharedMemory::add_part(const void* key, size_t bytes, size_t alignment) {
  const size_t begin = round_up(end_, std::max<size_t>(alignment, 16));
  if (begin + bytes + kRedZone > kBytes) {
    block_.fail(Fault::kOutOfBounds, "too many static objects in shared memory");
  }
  parts_.push_back({key, begin, bytes, alignment});
  end_ = begin + bytes + kRedZone;
  address_sanitizer::unpoison(arena_ + begin, bytes);
  std::memset(arena_ + begin, kPoison, bytes);
  address_sanitizer::unpoison(arena_ + begin + bytes, kRedZone);
  std::memset(arena_ + begin + bytes, kRedByte, kRedZone);
  address_sanitizer::poison(arena_ + begin + bytes, kRedZone);
  return arena_ + begin;
}

uint32_t SharedMemory::offset_of(const void* p) const {
  if (!contains(p)) block_.fail(Fault::kOutOfBounds, "the address is not one of shared memory");
  return static_cast<uint32_t>(static_cast<const std::byte*>(p) - arena_);
}

uint32_t SharedMemory::check(const void* p, size_t bytes, size_t alignment,
                             const char* what) const {
  const uint32_t offset = offset_of(p);
  if (offset % alignment != 0) {
    std::string text = cat(what, " at ", describe(offset), " needs an address that is ",
                           "a multiple of ", alignment);
    block_.fail(Fault::kMisaligned, std::move(text));
  }
  if (!allocated(offset, bytes)) {
    std::string text = cat(what, " of ", bytes, " bytes at ", describe(offset),
                           " is outside the block's shared memory");
    block_.fail(Fault::kOutOfBounds, std::move(text));
  }
  return offset;
}

bool SharedMemory::allocated(size_t offset, size_t bytes) const {
  return std::any_of(parts_.begin(), parts_.end(), [&](const Part& part) {
    return offset >= part.begin && offset + bytes <= part.begin + part.bytes;
  });
}

std::string SharedMemory::describe(size_t offset) const {
  size_t index = 0;
  while (index + 1 < parts_.size() && parts_[index + 1].begin <= offset) ++index;
  const Part& part = parts_[index];
  const std::string name =
      part.key == nullptr ? "dynamic shared memory" : cat("static shared object ", index);
  return cat(name, " (", part.bytes, " bytes) + ", offset - part.begin);
}

std::string SharedMemory::damage() const {
  for (const Part& part : parts_) {
    const std::byte* zone = arena_ + part.begin + part.bytes;
    address_sanitizer::unpoison(zone, kRedZone);
    const auto* hit = std::find_if(zone, zone + kRedZone, [](std::byte byte) {
      return byte != static_cast<std::byte>(kRedByte);
    });
    if (hit != zone + kRedZone) {
      return cat("a write outside the block's shared memory, at ",
                 describe(static_cast<size_t>(hit - arena_)));
    }
  }
  return {};
}

}  // namespace shale::emulator
