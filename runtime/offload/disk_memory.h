#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "shale/runtime/io/async_file.h"
#include "shale/runtime/tensor/memory_provider.h"

namespace shale::offload {

// Memory whose contents lie in a file (ZeRO-Infinity, arXiv:2104.07857). A range that was acquired
// is in memory; it is fetched, and written back, past the system's cache, and on the way beside
// what the caller does. Any other access goes through the system's cache, slowly. Reads are always
// right. Writes are lost while a range is on its way to or from the file, so from prefetch() or
// release() to the next acquire() or settle() nobody may write to it (check_writable).
//
// A range is a tensor's memory. Those in use do not overlap; of each, whole pages alone are moved:
// what is left at its ends, less than a page, stays in the cache.
class DiskMemory : public MemoryProvider {
 public:
  // A file in `folder`, which has no name: it is gone with the process, however that ends. Throws
  // DiskError.
  explicit DiskMemory(const std::string& folder, AsyncIo io = AsyncIo::kAuto);
  ~DiskMemory() override;
  DiskMemory(const DiskMemory&) = delete;
  DiskMemory& operator=(const DiskMemory&) = delete;

  // Reserves the disk's room for it. Zero.
  void* allocate(size_t bytes) override;
  void free(void* memory, size_t bytes) noexcept override;

  // Starts to fetch a range, unless it is in memory or on its way.
  void prefetch(std::span<std::byte> range);
  // Returns when it is in memory. `fetch` false: what it holds is not needed, as it is all written
  // next. Throws DiskError.
  void acquire(std::span<std::byte> range, bool fetch = true);
  // It is not needed in memory any more; changed: what it holds has to be written back.
  void release(std::span<std::byte> range, bool changed);

  // Returns when all that was released is in the file. Before a range is written without having
  // been acquired.
  void settle();

  // Throws InternalError, which begins with `what`, if a write to `range` could be lost: it was
  // prefetched or released, and neither acquired nor settled since.
  void check_writable(std::string_view what, std::span<const std::byte> range) const;

  bool uses_io_uring() const { return file_.uses_io_uring(); }
  // Moved so far, in bytes.
  struct Traffic {
    int64_t read = 0, written = 0;
  };
  Traffic traffic() const;
  int64_t resident_bytes() const;  // of ranges in memory or on their way

 private:
  enum class State : uint8_t {
    kFetching,  // into `arriving`
    kHere,
    kLeaving,  // still there, while it is written
    kLeft,     // in the file alone; kept up to settle() for check_writable()
  };
  struct Range {
    size_t bytes = 0;
    State state = State::kHere;
    AsyncFile::Ticket ticket = 0;
    std::byte* arriving = nullptr;  // null: none
  };
  using Ranges = std::map<std::byte*, Range>;

  int64_t offset_of(const std::byte* memory) const;
  Ranges::iterator start(std::span<std::byte> pages, bool fetch);
  std::pair<Ranges::const_iterator, Ranges::const_iterator> overlapping(
      std::span<const std::byte> memory) const;
  void finish(Ranges::iterator range);
  void drop(Ranges::iterator range);
  void drop_written(bool wait);
  void map_file(std::byte* at, size_t bytes, int64_t offset) const;

  std::string path_;
  AsyncFile file_;
  mutable std::mutex mutex_;
  struct Segment {
    size_t bytes = 0;
    int64_t offset = 0;  // in the file
  };
  std::map<std::byte*, Segment> segments_;
  Ranges ranges_;  // that are not just mapped, or were left since settle()
  int64_t end_ = 0;
  Traffic traffic_;
  int64_t resident_ = 0;
};

}  // namespace shale::offload
