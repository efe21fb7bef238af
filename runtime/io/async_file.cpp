#include "shale/runtime/io/async_file.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/runtime/io/async_file_engines.h"
#include "shale/runtime/io/direct_memory.h"

namespace shale {
namespace {

// Bytes per system call: enough for the disk's full speed, and few enough to divide a request into
// many pieces.
constexpr size_t kPieceBytes = size_t{4} << 20;

}  // namespace

AsyncFile::AsyncFile(FileHandle file, std::string path, AsyncIo io)
    : file_(std::move(file)), path_(std::move(path)) {
  if (io != AsyncIo::kThreads) engine_ = make_io_uring_engine(file_.get());
  if (engine_ == nullptr && io == AsyncIo::kIoUring) {
    throw UnavailableError(cat(path_, ": this system does not allow io_uring"));
  }
  uses_io_uring_ = engine_ != nullptr;
  if (engine_ == nullptr) engine_ = make_thread_engine(file_.get());
}

AsyncFile::~AsyncFile() {
  std::vector<Ticket> left;
  for (const auto& [ticket, request] : requests_) left.push_back(ticket);
  for (const Ticket ticket : left) {
    try {
      wait(ticket);
    } catch (const std::exception& error) {
      log_warning(error.what());
    }
  }
}

AsyncFile::Ticket AsyncFile::read(int64_t offset, std::span<std::byte> to) {
  return begin(/*writes=*/false, offset, to.data(), to.size());
}

AsyncFile::Ticket AsyncFile::write(int64_t offset, std::span<const std::byte> from) {
  // Engines take a non-const pointer for reads and writes, but a write does not change the memory.
  return begin(/*writes=*/true, offset, const_cast<std::byte*>(from.data()), from.size());
}

AsyncFile::Ticket AsyncFile::begin(bool writes, int64_t offset, std::byte* memory, size_t bytes) {
  const auto is_aligned = [](uint64_t value) { return value % kDirectAlignment == 0; };
  if (!is_aligned(uint64_t(offset)) || !is_aligned(bytes) || !is_aligned(uintptr_t(memory))) {
    throw InternalError(cat(path_, ": ", bytes, " bytes at ", offset,
                            ", expected bytes, offset and address to be multiples of ",
                            kDirectAlignment));
  }
  const std::lock_guard lock(mutex_);
  const Ticket ticket = ++last_;
  Request& request = requests_[ticket];
  request.pieces = (bytes + kPieceBytes - 1) / kPieceBytes;
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    engine_->submit({.ticket = ticket,
                     .writes = writes,
                     .offset = offset + static_cast<int64_t>(at),
                     .memory = memory + at,
                     .bytes = std::min(kPieceBytes, bytes - at)});
  }
  engine_->collect(*this, piece_done, /*block=*/false);
  return ticket;
}

// Called when a piece was transferred. If only a part was, submits the remaining bytes again.
void AsyncFile::piece_done(AsyncFile& file, const Piece& piece, int64_t result) {
  Request& request = file.requests_.at(piece.ticket);
  const char* const what = piece.writes ? "write" : "read";
  if (result > 0 && static_cast<size_t>(result) < piece.bytes) {
    Piece rest = piece;
    const auto moved = static_cast<size_t>(result) / kDirectAlignment * kDirectAlignment;
    if (moved > 0) {
      rest.offset += static_cast<int64_t>(moved), rest.memory += moved, rest.bytes -= moved;
      file.engine_->submit(rest);
      return;
    }
  }
  if (result < 0) {
    request.problem = cat(file.path_, ": ", what, " of ", piece.bytes, " bytes at ", piece.offset,
                          ": ", std::strerror(static_cast<int>(-result)));
  } else if (static_cast<size_t>(result) < piece.bytes) {
    request.problem = cat(file.path_, ": ", what, " of ", piece.bytes, " bytes at ", piece.offset,
                          " transferred only ", result);
  }
  --request.pieces;
}

void AsyncFile::wait(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(ticket);
  if (found == requests_.end()) return;
  while (found->second.pieces > 0) engine_->collect(*this, piece_done, /*block=*/true);
  const std::string problem = std::move(found->second.problem);
  requests_.erase(found);
  if (!problem.empty()) throw DiskError(problem);
}

bool AsyncFile::done(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  engine_->collect(*this, piece_done, /*block=*/false);
  const auto found = requests_.find(ticket);
  return found == requests_.end() || found->second.pieces == 0;
}

}  // namespace shale
