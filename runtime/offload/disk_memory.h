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

// Memory whose contents are in a file (ZeRO-Infinity, arXiv:2104.07857). An acquired range is in
// memory. The range is read and written back with direct I/O, which overlaps with the caller's
// work. Any other access goes through the page cache and is slow. Reads are always correct. Writes
// are lost while a range is being transferred, so nobody may write to it from prefetch() or
// release() until the next acquire() or settle() (check_writable).
//
// A range is the memory of a tensor. Ranges in use do not overlap. Only their whole pages are
// transferred; the ends, less than a page each, stay in the page cache.
class DiskMemory : public MemoryProvider {
 public:
  // Creates an unnamed file in `folder`, which disappears when the process ends for any reason.
  // Throws DiskError.
  explicit DiskMemory(const std::string& folder, AsyncIo io = AsyncIo::kAuto);
  ~DiskMemory() override;
  DiskMemory(const DiskMemory&) = delete;
  DiskMemory& operator=(const DiskMemory&) = delete;

  // Reserves disk space for the memory. Its contents are zero.
  void* allocate(size_t bytes) override;
  void free(void* memory, size_t bytes) noexcept override;

  // Starts reading a range, unless it is in memory or being read.
  void prefetch(std::span<std::byte> range);
  // Waits until the range is in memory. fetch: if false, the contents are not read, because the
  // caller will overwrite the whole range. Throws DiskError.
  void acquire(std::span<std::byte> range, bool fetch = true);
  // Ends the use of a range in memory. changed: true if its contents must be written back to the
  // file.
  void release(std::span<std::byte> range, bool changed);

  // Waits until all released ranges are in the file. Call it before writing to a range that was not
  // acquired.
  void settle();

  // Throws InternalError if a write to `range` could be lost, that is, if the range was prefetched
  // or released, and neither acquired nor settled since. The message begins with `what`.
  void check_writable(std::string_view what, std::span<const std::byte> range) const;

  bool uses_io_uring() const { return file_.uses_io_uring(); }
  // Number of bytes read and written so far.
  struct Traffic {
    int64_t read = 0, written = 0;
  };
  Traffic traffic() const;
  int64_t resident_bytes() const;  // bytes of all ranges that are in memory or being transferred

 private:
  enum class State : uint8_t {
    kFetching,  // is being read into `arriving`
    kHere,
    kLeaving,  // is still in memory, and is being written
    kLeft,     // only in the file; check_writable() needs the entry until settle()
  };
  struct Range {
    size_t bytes = 0;
    State state = State::kHere;
    AsyncFile::Ticket ticket = 0;
    std::byte* arriving = nullptr;  // memory into which a read is in progress; null: no read
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
    int64_t offset = 0;  // offset in the file
  };
  std::map<std::byte*, Segment> segments_;
  Ranges ranges_;  // ranges that are in memory, being transferred, or released since settle()
  int64_t end_ = 0;
  Traffic traffic_;
  int64_t resident_ = 0;
};

}  // namespace shale::offload
