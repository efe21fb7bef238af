#include "shale/kernels/simt/engine/global_memory.h"

#include <algorithm>
#include <utility>

namespace shale::emulator {

void GlobalMemory::add(const void* p, size_t bytes, Watch watch) {
  const std::lock_guard lock(mutex_);
  told_ = true;
  table_.reset();
  if (bytes == 0) return;
  const auto* begin = static_cast<const std::byte*>(p);
  GlobalRange range{.begin = begin, .bytes = bytes};
  if (watch == Watch::kBytes) range.shadow = std::make_shared<Mapping>(bytes * sizeof(GlobalCell));
  ranges_[begin] = std::move(range);
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
  std::fill_n(range.cells() + offset, std::min(bytes, range.bytes - offset), kWrittenCell);
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
  // The numbers begin anew: what the first launches left must not be taken for that of the next.
  for (const auto& [begin, range] : ranges_) {
    GlobalCell* const cells = range.cells();
    for (size_t i = 0; cells != nullptr && i < range.bytes; ++i) {
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
