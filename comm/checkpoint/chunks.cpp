#include "shale/comm/checkpoint/chunks.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <mutex>

#include "shale/base/error.h"
#include "shale/runtime/io/crc32c.h"
#include "shale/runtime/io/direct_memory.h"
#include "shale/runtime/io/in_parallel.h"

namespace shale {
namespace {

std::string hex(uint32_t value) {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", value);
  return digits;
}

// Number of reading threads: enough to keep the disk busy while some of them compute checksums.
constexpr size_t kReaders = 4;

// Opens a chunk's file. Keeps the last file open, because chunks are read roughly in file order.
class FileInTurn {
 public:
  FileInTurn(const Folder& folder, const CheckpointManifest& manifest, bool shared)
      : folder_(folder), manifest_(manifest), shared_(shared) {}

  std::shared_ptr<File> get(size_t file) {
    const std::lock_guard lock(mutex_);
    if (open_ != nullptr && number_ == file) return open_;
    open_ = std::make_shared<File>(File::open(folder_, manifest_.files[file].name));
    number_ = file;
    if (shared_) {
      open_->expect_sequential_reads();
    } else {
      open_->bypass_cache(true);
    }
    return open_;
  }

 private:
  const Folder& folder_;
  const CheckpointManifest& manifest_;
  const bool shared_;
  std::mutex mutex_;
  std::shared_ptr<File> open_;
  size_t number_ = 0;
};

// Reads and verifies a chunk. `memory` begins with the aligned offset before the chunk; returns the
// bytes of the chunk in `memory`.
std::span<const std::byte> read_chunk(const CheckpointManifest& manifest, ChunkId id, File& file,
                                      std::byte* memory) {
  const auto begin = static_cast<size_t>(chunk_begin(manifest, id));
  const size_t end = begin + static_cast<size_t>(chunk_bytes(manifest, id));
  const size_t from = align_down(begin);
  file.read_at(static_cast<int64_t>(from), {memory, align_up(end) - from}, end - from);
  const std::span<const std::byte> bytes(memory + (begin - from), end - begin);
  check_chunk(manifest, id, file.path(), bytes);
  return bytes;
}

}  // namespace

int64_t chunk_begin(const CheckpointManifest& manifest, ChunkId id) {
  return id.chunk * manifest.chunk_bytes;
}

int64_t chunk_bytes(const CheckpointManifest& manifest, ChunkId id) {
  return std::min(manifest.chunk_bytes, manifest.files[id.file].bytes - chunk_begin(manifest, id));
}

void check_chunk(const CheckpointManifest& manifest, ChunkId id, const std::string& path,
                 std::span<const std::byte> bytes) {
  const uint32_t found = crc32c(bytes);
  const uint32_t want = manifest.files[id.file].chunk_crcs[static_cast<size_t>(id.chunk)];
  if (found == want) return;
  const int64_t begin = chunk_begin(manifest, id);
  throw DataError(cat(path, ": chunk ", id.chunk, " (bytes ", begin, " to ",
                      begin + static_cast<int64_t>(bytes.size()) - 1, ") has CRC32C ", hex(found),
                      ", expected ", hex(want), "; damaged or changed: use another checkpoint"));
}

void read_chunks(const Folder& folder, const CheckpointManifest& manifest,
                 std::span<const ChunkId> order, bool shared, const UseChunk& use) {
  FileInTurn files(folder, manifest, shared);
  std::array<DirectMemory, kReaders> memory;
  in_parallel(order.size(), kReaders, [&](size_t i, size_t reader) {
    const ChunkId id = order[i];
    const std::shared_ptr<File> file = files.get(id.file);
    if (memory[reader] == nullptr) {
      // A chunk may begin and end between aligned offsets. The buffer has room for the bytes before
      // and after it, up to the next aligned offsets.
      memory[reader] =
          allocate_direct_memory(align_up(size_t(manifest.chunk_bytes)) + 2 * kDirectAlignment);
    }
    use(i, read_chunk(manifest, id, *file, memory[reader].get()));
  });
}

}  // namespace shale
