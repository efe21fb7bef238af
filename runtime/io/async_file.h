#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "shale/runtime/io/file.h"

namespace shale {

// Mechanism that reads and writes an AsyncFile.
enum class AsyncIo : uint8_t {
  kAuto,     // io_uring if the system allows it, else threads
  kIoUring,  // throws UnavailableError if the system does not allow it
  kThreads,
};

// Asynchronous reads and writes of a file, with direct I/O if the file system supports it.
// Addresses, offsets and sizes must be multiples of kDirectAlignment. A request is split into
// pieces, one per system call, many of which are in flight at a time. The caller must order
// requests with overlapping ranges. Thread-safe.
class AsyncFile {
 public:
  using Ticket = uint64_t;

  // file: must be open for reading and writing; `path` names it in messages.
  AsyncFile(FileHandle file, std::string path, AsyncIo io = AsyncIo::kAuto);
  ~AsyncFile();  // waits for pending requests
  AsyncFile(const AsyncFile&) = delete;
  AsyncFile& operator=(const AsyncFile&) = delete;

  int handle() const { return file_.get(); }
  bool uses_io_uring() const { return uses_io_uring_; }

  // Start a request and return its ticket. Until wait(ticket) returns, the memory must stay valid,
  // and no other code may use it.
  Ticket read(int64_t offset, std::span<std::byte> to);
  Ticket write(int64_t offset, std::span<const std::byte> from);
  // Waits until the request is done. Throws DiskError with the system's reason. Call it once per
  // ticket.
  void wait(Ticket ticket);
  bool done(Ticket ticket);  // true if wait() would return immediately

  // Part of a request: what one system call transfers.
  struct Piece {
    Ticket ticket = 0;
    bool writes = false;
    int64_t offset = 0;
    std::byte* memory = nullptr;
    size_t bytes = 0;
  };
  // Mechanism that executes pieces.
  class Engine {
   public:
    virtual ~Engine() = default;
    virtual void submit(const Piece& piece) = 0;
    // Calls `done` for every finished piece. result: the number of bytes transferred, or a negative
    // errno. block: waits until at least one piece has finished.
    using Done = void (*)(AsyncFile& file, const Piece& piece, int64_t result);
    virtual void collect(AsyncFile& file, Done done, bool block) = 0;
  };

 private:
  struct Request {
    size_t pieces = 0;  // number of unfinished pieces
    std::string problem = {};
  };
  Ticket begin(bool writes, int64_t offset, std::byte* memory, size_t bytes);
  static void piece_done(AsyncFile& file, const Piece& piece, int64_t result);

  FileHandle file_;
  std::string path_;
  std::mutex mutex_;
  std::map<Ticket, Request> requests_;
  Ticket last_ = 0;
  std::unique_ptr<Engine> engine_;
  bool uses_io_uring_ = false;
};

}  // namespace shale
