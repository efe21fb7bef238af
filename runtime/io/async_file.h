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

// How the requests of an AsyncFile are carried out.
enum class AsyncIo : uint8_t {
  kAuto,     // by io_uring where the system allows it, else by threads
  kIoUring,  // throws UnavailableError where it does not
  kThreads,
};

// Reads and writes of a file that go on beside the caller, past the system's cache where the file
// system can do that. Addresses, offsets and sizes are multiples of kDirectAlignment. Requests are
// cut into pieces, of which many are with the disk at a time; requests whose ranges meet are the
// caller's to order. Thread-safe.
class AsyncFile {
 public:
  using Ticket = uint64_t;

  // An open file, to be read and written; messages call it `path`.
  AsyncFile(FileHandle file, std::string path, AsyncIo io = AsyncIo::kAuto);
  ~AsyncFile();  // waits for what is under way
  AsyncFile(const AsyncFile&) = delete;
  AsyncFile& operator=(const AsyncFile&) = delete;

  int handle() const { return file_.get(); }
  bool uses_io_uring() const { return uses_io_uring_; }

  // The memory is the file's until the ticket was waited for.
  Ticket read(int64_t offset, std::span<std::byte> to);
  Ticket write(int64_t offset, std::span<const std::byte> from);
  // Returns when the request is done. Throws DiskError with what the system says; once per ticket.
  void wait(Ticket ticket);
  bool done(Ticket ticket);  // wait() would return at once

  // A part of a request: what one call of the system does.
  struct Piece {
    Ticket ticket = 0;
    bool writes = false;
    int64_t offset = 0;
    std::byte* memory = nullptr;
    size_t bytes = 0;
  };
  // Carries out pieces.
  class Engine {
   public:
    virtual ~Engine() = default;
    virtual void submit(const Piece& piece) = 0;
    // Tells `done` of pieces that are over: with the bytes moved, or minus an errno. Returns when
    // there was one, if `block`.
    using Done = void (*)(AsyncFile& file, const Piece& piece, int64_t result);
    virtual void collect(AsyncFile& file, Done done, bool block) = 0;
  };

 private:
  struct Request {
    size_t pieces = 0;  // that are not over
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
