// io_uring without liburing: two rings, for requests and completions, in memory that the process
// shares with the kernel (man io_uring, linux/io_uring.h).

#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/runtime/io/async_file_engines.h"

namespace shale {
namespace {

constexpr unsigned kEntries = 64;  // maximum number of pieces in flight

int setup(unsigned entries, io_uring_params& params) {
  return static_cast<int>(syscall(__NR_io_uring_setup, entries, &params));
}
int enter(int ring, unsigned submit, unsigned wait_for) {
  const unsigned flags = wait_for > 0 ? unsigned{IORING_ENTER_GETEVENTS} : 0U;
  return static_cast<int>(
      syscall(__NR_io_uring_enter, ring, submit, wait_for, flags, nullptr, size_t{0}));
}

// Memory shared with the kernel.
class Mapping {
 public:
  Mapping() = default;
  Mapping(int ring, uint64_t offset, size_t bytes)
      : memory_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring,
                     static_cast<off_t>(offset))),
        bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : memory_(std::exchange(other.memory_, MAP_FAILED)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping() {
    if (is_there()) munmap(memory_, bytes_);
  }
  bool is_there() const { return memory_ != MAP_FAILED; }
  template <typename T>
  T* at(unsigned offset) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(memory_) + offset);
  }

 private:
  void* memory_ = MAP_FAILED;
  size_t bytes_ = 0;
};

class IoUringEngine final : public AsyncFile::Engine {
 public:
  explicit IoUringEngine(int file) : file_(file), free_(kEntries), pieces_(kEntries) {
    for (unsigned i = 0; i < kEntries; ++i) free_[i] = i;
    io_uring_params params{};
    const int ring = setup(kEntries, params);
    if (ring < 0) return;
    ring_ = FileHandle(ring);
    requests_ = Mapping(ring, IORING_OFF_SQ_RING,
                        params.sq_off.array + params.sq_entries * sizeof(unsigned));
    completions_ = Mapping(ring, IORING_OFF_CQ_RING,
                           params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
    entries_ = Mapping(ring, IORING_OFF_SQES, params.sq_entries * sizeof(io_uring_sqe));
    if (!requests_.is_there() || !completions_.is_there() || !entries_.is_there()) {
      ring_ = FileHandle();
      return;
    }
    sq_ = params.sq_off, cq_ = params.cq_off;
    // Makes entry i of the submission ring refer to request i, for good.
    for (unsigned i = 0; i < params.sq_entries; ++i) requests_.at<unsigned>(sq_.array)[i] = i;
  }
  bool works() const { return ring_.is_open(); }

  void submit(const AsyncFile::Piece& piece) override { waiting_.push_back(piece); }

  void collect(AsyncFile& file, Done done, bool block) override {
    push();
    bool any = reap(file, done);
    while (block && !any) {
      if (flying_ == 0)
        throw InternalError("io_uring: wait() was called without a pending request");
      if (enter(ring_.get(), 0, 1) < 0 && errno != EINTR) fail("wait");
      any = reap(file, done);
    }
    if (any) push();
  }

 private:
  [[noreturn]] static void fail(const char* what) {
    throw DiskError(cat("io_uring: ", what, ": ", std::strerror(errno)));
  }

  // Moves waiting pieces to the submission ring while it has free slots.
  void push() {
    unsigned* const tail = requests_.at<unsigned>(sq_.tail);
    const unsigned mask = *requests_.at<unsigned>(sq_.ring_mask);
    unsigned at = *tail;  // only this process writes the tail
    for (; !waiting_.empty() && !free_.empty(); waiting_.pop_front(), free_.pop_back(), ++at) {
      const AsyncFile::Piece& piece = waiting_.front();
      const unsigned slot = free_.back();
      pieces_[slot] = piece;
      io_uring_sqe& entry = entries_.at<io_uring_sqe>(0)[at & mask];
      std::memset(&entry, 0, sizeof entry);
      entry.opcode = piece.writes ? IORING_OP_WRITE : IORING_OP_READ;
      entry.fd = file_;
      entry.off = static_cast<uint64_t>(piece.offset);
      entry.addr = reinterpret_cast<uint64_t>(piece.memory);
      entry.len = static_cast<uint32_t>(piece.bytes);
      entry.user_data = slot;
      ++flying_, ++unsubmitted_;
    }
    std::atomic_ref(*tail).store(at, std::memory_order_release);
    while (unsubmitted_ > 0) {
      const int taken = enter(ring_.get(), unsubmitted_, 0);
      if (taken < 0 && errno != EINTR) fail("submit");
      if (taken > 0) unsubmitted_ -= static_cast<unsigned>(taken);
    }
  }

  bool reap(AsyncFile& file, Done done) {
    unsigned* const head = completions_.at<unsigned>(cq_.head);
    const unsigned tail =
        std::atomic_ref(*completions_.at<unsigned>(cq_.tail)).load(std::memory_order_acquire);
    const unsigned mask = *completions_.at<unsigned>(cq_.ring_mask);
    bool any = false;
    for (unsigned at = *head; at != tail; ++at, any = true) {
      const io_uring_cqe entry = completions_.at<io_uring_cqe>(cq_.cqes)[at & mask];
      std::atomic_ref(*head).store(at + 1, std::memory_order_release);
      const auto slot = static_cast<unsigned>(entry.user_data);
      free_.push_back(slot);
      --flying_;
      const AsyncFile::Piece piece = pieces_[slot];
      if (entry.res == -EINTR || entry.res == -EAGAIN) {
        waiting_.push_back(piece);
      } else {
        done(file, piece, entry.res);
      }
    }
    return any;
  }

  int file_;
  FileHandle ring_;
  Mapping requests_, completions_, entries_;
  io_sqring_offsets sq_{};
  io_cqring_offsets cq_{};
  std::deque<AsyncFile::Piece> waiting_;
  std::vector<unsigned> free_;            // indices of free elements of pieces_
  std::vector<AsyncFile::Piece> pieces_;  // pieces in flight; the index is io_uring's user_data
  unsigned flying_ = 0, unsubmitted_ = 0;
};

}  // namespace

std::unique_ptr<AsyncFile::Engine> make_io_uring_engine(int file) {
  auto engine = std::make_unique<IoUringEngine>(file);
  if (!engine->works()) return nullptr;
  return engine;
}

}  // namespace shale
