#include "shale/runtime/io/file_maps.h"

#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "shale/base/error.h"

namespace shale {
namespace {

FileMaps::Entry entry_of(const MappedFile& file) {
  std::error_code error;  // ignored: a file that is gone gets another time, so it counts as changed
  const auto time = std::filesystem::last_write_time(file.path(), error).time_since_epoch();
  return {.path = file.path(),
          .bytes = static_cast<int64_t>(file.bytes().size()),
          .modified_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count()};
}

}  // namespace

size_t FileMaps::add(Entry file) {
  slots_.push_back({.file = std::move(file)});
  return slots_.size() - 1;
}

size_t FileMaps::add(MappedFile file) {
  const size_t number = add(entry_of(file));
  keep(slots_[number], std::make_shared<const MappedFile>(std::move(file)));
  return number;
}

std::shared_ptr<const MappedFile> FileMaps::map(size_t file) const {
  std::unique_lock lock(mutex_);
  Slot& slot = slots_[file];
  slot.is_used = true;
  if (slot.map != nullptr) return slot.map;
  lock.unlock();  // other threads need not wait, because opening a file on a network takes long
  const Entry& expected = slot.file;
  const auto map = std::make_shared<const MappedFile>(
      expected.path, MapOptions{.pattern = AccessPattern::kRandom});
  const Entry found = entry_of(*map);
  if (found.bytes != expected.bytes || found.modified_ns != expected.modified_ns) {
    throw DataError(cat(expected.path, ": has ", found.bytes, " bytes, expected the file with ",
                        expected.bytes,
                        " bytes that was there at the start of the run: it was changed or "
                        "replaced; a run needs its data unchanged"));
  }
  lock.lock();
  if (slot.map == nullptr) keep(slot, map);
  return map;
}

// Keeps a mapping. If too many files are mapped, first unmaps one that was not used since hand_
// last passed it (CLOCK algorithm).
void FileMaps::keep(Slot& slot, std::shared_ptr<const MappedFile> map) const {
  while (mapped_ >= most_) {
    Slot& other = slots_[hand_];
    hand_ = (hand_ + 1) % slots_.size();
    if (other.map == nullptr || std::exchange(other.is_used, false)) continue;
    other.map.reset();
    --mapped_;
  }
  slot.map = std::move(map);
  ++mapped_;
}

std::vector<FileMaps::Entry> FileMaps::entries() const {
  std::vector<Entry> files;
  for (const Slot& slot : slots_) files.push_back(slot.file);
  return files;
}

}  // namespace shale
