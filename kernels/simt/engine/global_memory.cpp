#include "shale/kernels/simt/engine/global_memory.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace shale::emulator {

void GlobalMemory::add(const void* p, size_t bytes) {
  insert({.begin = static_cast<const std::byte*>(p), .bytes = bytes});
}

void GlobalMemory::add_watched(const void* p, size_t bytes, size_t element_bytes) {
  const int shift = std::countr_zero(element_bytes);
  const size_t cells = (bytes >> shift) + 1;
  insert({.begin = static_cast<const std::byte*>(p),
          .bytes = bytes,
          .element_shift = shift,
          .shadow = std::make_shared<Mapping>(cells * sizeof(GlobalCell))});
}

void GlobalMemory::insert(GlobalRange range) {
  const std::lock_guard lock(mutex_);
  told_ = true;
  table_.reset();
  if (range.bytes > 0) ranges_[range.begin] = std::move(range);
}

void GlobalMemory::remove(const void* p) noexcept {
  const std::lock_guard lock(mutex_);
  table_.reset();
  ranges_.erase(static_cast<const std::byte*>(p));
}

void GlobalMemory::written(const void* p, size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto* begin = static_cast<const std::byte*>(p);
  const auto next = ranges_.upper_bound(begin);
  if (bytes == 0 || next == ranges_.begin()) return;
  const GlobalRange& range = std::prev(next)->second;
  const auto offset = static_cast<size_t>(begin - range.begin);
  if (range.cells() == nullptr || offset >= range.bytes) return;
  const size_t last = std::min(offset + bytes, range.bytes) - 1;
  std::fill(range.cells() + (offset >> range.element_shift),
            range.cells() + (last >> range.element_shift) + 1, kWrittenCell);
}

std::shared_ptr<const GlobalTable> GlobalMemory::table() {
  const std::lock_guard lock(mutex_);
  if (!told_) return nullptr;
  if (table_ == nullptr) {
    auto table = std::make_shared<GlobalTable>();
    for (const auto& [begin, range] : ranges_) table->push_back(range);
    table_ = std::move(table);
  }
  return table_;
}

uint16_t GlobalMemory::next_launch() {
  const std::lock_guard lock(mutex_);
  if (++launches_ != 0) return launches_;
  // Launch numbers start again at 1, so cells must forget the launches that had these numbers
  // before.
  for (const auto& [begin, range] : ranges_) {
    GlobalCell* const cells = range.cells();
    const size_t count = cells == nullptr ? 0 : (range.bytes >> range.element_shift) + 1;
    for (size_t i = 0; i < count; ++i) {
      if ((cells[i] & ~kWrittenCell) != 0) cells[i] &= kWrittenCell;
    }
  }
  return ++launches_;
}

const GlobalRange* find_range(const GlobalTable& table, const void* p) {
  const auto* byte = static_cast<const std::byte*>(p);
  const auto next = std::upper_bound(
      table.begin(), table.end(), byte,
      [](const std::byte* at, const GlobalRange& range) { return at < range.begin; });
  if (next == table.begin()) return nullptr;
  const GlobalRange& range = *std::prev(next);
  return static_cast<size_t>(byte - range.begin) < range.bytes ? &range : nullptr;
}

}  // namespace shale::emulator
