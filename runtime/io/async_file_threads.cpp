// AsyncFile engine for systems without io_uring: a few threads, each of which executes one piece
// (one system call) at a time.

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "shale/runtime/io/async_file_engines.h"

namespace shale {
namespace {

constexpr int kThreads = 4;  // threads mostly wait for the disk

class ThreadEngine final : public AsyncFile::Engine {
 public:
  explicit ThreadEngine(int file) : file_(file) {
    for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~ThreadEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    given_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void submit(const AsyncFile::Piece& piece) override {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(piece);
    }
    given_.notify_one();
  }

  void collect(AsyncFile& file, Done done, bool block) override {
    std::vector<std::pair<AsyncFile::Piece, int64_t>> over;
    {
      std::unique_lock lock(mutex_);
      if (block) moved_.wait(lock, [this] { return !over_.empty(); });
      over.swap(over_);
    }
    for (const auto& [piece, result] : over) done(file, piece, result);
  }

 private:
  int64_t move(const AsyncFile::Piece& piece) const {
    while (true) {
      const ssize_t moved = piece.writes ? pwrite(file_, piece.memory, piece.bytes, piece.offset)
                                         : pread(file_, piece.memory, piece.bytes, piece.offset);
      if (moved >= 0) return moved;
      if (errno != EINTR) return -errno;
    }
  }
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      given_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const AsyncFile::Piece piece = waiting_.front();
      waiting_.pop_front();
      lock.unlock();
      const int64_t moved = move(piece);
      lock.lock();
      over_.emplace_back(piece, moved);
      moved_.notify_all();
    }
  }

  int file_;
  std::mutex mutex_;
  std::condition_variable given_, moved_;
  std::deque<AsyncFile::Piece> waiting_;
  std::vector<std::pair<AsyncFile::Piece, int64_t>> over_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<AsyncFile::Engine> make_thread_engine(int file) {
  return std::make_unique<ThreadEngine>(file);
}

}  // namespace shale
