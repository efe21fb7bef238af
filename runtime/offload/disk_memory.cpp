#include "shale/runtime/offload/disk_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/runtime/io/direct_memory.h"

namespace shale::offload {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw DiskError(cat("offload: ", path, ": ", what, ": ", std::strerror(error)));
}

FileHandle open_file(const std::string& folder) {
  const int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) {
    throw MissingInputError(
        cat("offload: ", folder, ": no such folder; create it on the disk to use"));
  }
  if (fd < 0 && errno == EOPNOTSUPP) {
    throw DiskError(
        cat("offload: ", folder,
            ": the file system does not support O_TMPFILE; use ext4, XFS, Btrfs or tmpfs"));
  }
  if (fd < 0) fail(folder, "making a file in this folder failed", errno);
  // If the file system does not support O_DIRECT, fcntl fails and I/O goes through the page cache.
  const int flags = fcntl(fd, F_GETFL);
  if (flags >= 0) fcntl(fd, F_SETFL, flags | O_DIRECT);
  return FileHandle(fd);
}

// Returns the pages that lie completely inside a range.
std::span<std::byte> pages_of(std::span<std::byte> range) {
  const auto begin = reinterpret_cast<uintptr_t>(range.data());
  const size_t skipped = align_up(begin) - begin;
  if (range.size() < skipped) return {};
  return range.subspan(skipped, align_down(range.size() - skipped));
}

std::byte* new_pages(size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw OutOfMemoryError(
        cat("offload: cannot allocate ", format_bytes(double(bytes)), ": ", std::strerror(errno)));
  }
  // The result is not checked: without huge pages, access is only slower.
  if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(memory);
}

}  // namespace

DiskMemory::DiskMemory(const std::string& folder, AsyncIo io)
    : path_(folder), file_(open_file(folder), folder, io) {}

DiskMemory::~DiskMemory() {
  try {
    const std::lock_guard lock(mutex_);
    drop_written(/*wait=*/true);
    for (auto& [begin, range] : ranges_) {
      if (range.state == State::kFetching) file_.wait(range.ticket);
      if (range.arriving != nullptr) munmap(range.arriving, range.bytes);
    }
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
  for (const auto& [begin, segment] : segments_) munmap(begin, segment.bytes);
}

// ---- Allocation ----

void DiskMemory::map_file(std::byte* at, size_t bytes, int64_t offset) const {
  if (mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_.handle(), offset) ==
      MAP_FAILED) {
    fail(path_, "mmap", errno);
  }
}

void* DiskMemory::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  const size_t size = align_up(bytes);
  const int64_t offset = end_;
  if (const int error = posix_fallocate(file_.handle(), offset, static_cast<off_t>(size))) {
    throw DiskError(cat("offload: ", path_, ": no space for ", format_bytes(double(size)),
                        " more after ", format_bytes(double(end_)), ": ", std::strerror(error)));
  }
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file_.handle(),
                            static_cast<off_t>(offset));
  if (memory == MAP_FAILED) fail(path_, "mmap", errno);
  end_ += static_cast<int64_t>(size);
  segments_[static_cast<std::byte*>(memory)] = {size, offset};
  return memory;
}

void DiskMemory::free(void* memory, size_t) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = segments_.find(static_cast<std::byte*>(memory));
  if (found == segments_.end()) return;
  const Segment segment = found->second;
  try {
    for (auto range = ranges_.lower_bound(found->first);
         range != ranges_.end() && range->first < found->first + segment.bytes;) {
      if (range->second.state != State::kLeft) {
        finish(range);
        drop(range);
      }
      range = ranges_.erase(range);
    }
    // a failed transfer does no harm, because the memory is being freed
  } catch (const std::exception& error) {
    log_warning(error.what());
  }
  munmap(memory, segment.bytes);
  // Returns the disk space to the file system. If that fails, the space stays used until the
  // process ends.
  fallocate(file_.handle(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, segment.offset,
            static_cast<off_t>(segment.bytes));
  segments_.erase(found);
}

int64_t DiskMemory::offset_of(const std::byte* memory) const {
  auto found = segments_.upper_bound(const_cast<std::byte*>(memory));
  if (found == segments_.begin())
    throw InternalError("offload: the memory is not in the offload file");
  --found;
  const auto at = memory - found->first;
  if (at >= static_cast<std::ptrdiff_t>(found->second.bytes)) {
    throw InternalError("offload: the memory is not in the offload file");
  }
  return found->second.offset + at;
}

// ---- Ranges ----

// Returns the entries of ranges_ that overlap with `memory`, as begin and end iterators.
std::pair<DiskMemory::Ranges::const_iterator, DiskMemory::Ranges::const_iterator>
DiskMemory::overlapping(std::span<const std::byte> memory) const {
  auto* const begin = const_cast<std::byte*>(memory.data());
  auto first = ranges_.upper_bound(begin);
  if (first != ranges_.begin()) {
    const auto before = std::prev(first);
    if (begin < before->first + before->second.bytes) first = before;
  }
  return {first, ranges_.lower_bound(begin + memory.size())};
}

DiskMemory::Ranges::iterator DiskMemory::start(std::span<std::byte> pages, bool fetch) {
  // Removes overlapping ranges that are only in the file (kLeft): their memory may have been freed
  // and allocated again with other sizes.
  for (auto [at, end] = overlapping(pages); at != end;) {
    at = at->second.state == State::kLeft ? ranges_.erase(at) : std::next(at);
  }
  const auto found = ranges_.find(pages.data());
  if (found != ranges_.end()) {
    if (found->second.bytes != pages.size()) {
      throw InternalError(cat("offload: requested ", pages.size(),
                              " bytes of a range that is in memory with ", found->second.bytes,
                              " bytes"));
    }
    return found;
  }
  drop_written(/*wait=*/false);
  Range range{
      .bytes = pages.size(), .state = State::kFetching, .arriving = new_pages(pages.size())};
  if (fetch) {
    range.ticket = file_.read(offset_of(pages.data()), {range.arriving, range.bytes});
    traffic_.read += static_cast<int64_t>(range.bytes);
  }
  resident_ += static_cast<int64_t>(range.bytes);
  return ranges_.emplace(pages.data(), range).first;
}

// Waits for a range's transfer. After a read, moves the data to the range's address.
void DiskMemory::finish(Ranges::iterator at) {
  Range& range = at->second;
  if (range.state != State::kHere && range.ticket != 0) file_.wait(range.ticket);
  range.ticket = 0;
  if (range.state == State::kFetching) {
    if (mremap(range.arriving, range.bytes, range.bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
               at->first) == MAP_FAILED) {
      fail(path_, "mremap", errno);
    }
    range.arriving = nullptr;
  }
  range.state = State::kHere;
}

void DiskMemory::drop(Ranges::iterator at) {
  map_file(at->first, at->second.bytes, offset_of(at->first));
  resident_ -= static_cast<int64_t>(at->second.bytes);
  at->second.state = State::kLeft;
}

// Unmaps ranges whose contents have been written to the file. wait: also waits for pending writes.
void DiskMemory::drop_written(bool wait) {
  for (auto range = ranges_.begin(); range != ranges_.end();) {
    const auto at = range++;
    if (at->second.state != State::kLeaving) continue;
    if (!wait && !file_.done(at->second.ticket)) continue;
    file_.wait(at->second.ticket);
    at->second.ticket = 0;
    drop(at);
  }
}

void DiskMemory::prefetch(std::span<std::byte> range) {
  const std::lock_guard lock(mutex_);
  const std::span<std::byte> pages = pages_of(range);
  if (!pages.empty()) start(pages, /*fetch=*/true);
}

void DiskMemory::acquire(std::span<std::byte> range, bool fetch) {
  const std::lock_guard lock(mutex_);
  const std::span<std::byte> pages = pages_of(range);
  if (!pages.empty()) finish(start(pages, fetch));
}

void DiskMemory::release(std::span<std::byte> range, bool changed) {
  const std::lock_guard lock(mutex_);
  const std::span<std::byte> pages = pages_of(range);
  const auto found = ranges_.find(pages.data());
  if (pages.empty() || found == ranges_.end()) return;
  if (found->second.state != State::kHere) {
    throw InternalError("offload: a range was released that had not been acquired");
  }
  if (!changed) return drop(found);
  found->second.state = State::kLeaving;
  found->second.ticket = file_.write(offset_of(pages.data()), pages);
  traffic_.written += static_cast<int64_t>(pages.size());
}

void DiskMemory::settle() {
  const std::lock_guard lock(mutex_);
  drop_written(/*wait=*/true);
  std::erase_if(ranges_, [](const auto& range) { return range.second.state == State::kLeft; });
}

void DiskMemory::check_writable(std::string_view what, std::span<const std::byte> range) const {
  if (range.empty()) return;
  const std::lock_guard lock(mutex_);
  for (auto [at, end] = overlapping(range); at != end; ++at) {
    const State state = at->second.state;
    if (state == State::kHere) continue;
    throw InternalError(cat(what, ": writes ", range.size(), " bytes of memory on the disk that ",
                            state == State::kFetching ? "was prefetched" : "was released",
                            "; acquire the memory before writing to it"));
  }
}

DiskMemory::Traffic DiskMemory::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

int64_t DiskMemory::resident_bytes() const {
  const std::lock_guard lock(mutex_);
  return resident_;
}

}  // namespace shale::offload
