#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/io/checkpoint_manifest.h"
#include "runtime/io/direct_memory.h"
#include "runtime/io/file.h"

namespace shale {

// Chunk `chunk` of file `file` of a manifest.
struct ChunkId {
  size_t file = 0;
  int64_t chunk = 0;

  auto operator<=>(const ChunkId&) const = default;
};

int64_t chunk_begin(const CheckpointManifest& manifest, ChunkId id);
int64_t chunk_bytes(const CheckpointManifest& manifest, ChunkId id);  // the last one is shorter

// Throws DataError, with the file's `path`, unless these bytes have the checksum of the manifest.
void check_chunk(const CheckpointManifest& manifest, ChunkId id, const std::string& path,
                 std::span<const std::byte> bytes);

// Reads chunks of a checkpoint's files, in an order that is known from the start, at the disk's
// speed: while the caller uses one, the next two are read, and their checksums taken, on other
// threads.
class CheckpointChunks {
 public:
  // Folder and manifest outlive this. `shared`: other processes of this machine read the same, so
  // it goes through the system's cache, and the disk is asked once; else past it.
  CheckpointChunks(const Folder& folder, const CheckpointManifest& manifest,
                   std::vector<ChunkId> order, bool shared);
  ~CheckpointChunks();  // waits for what is being read
  CheckpointChunks(const CheckpointChunks&) = delete;
  CheckpointChunks& operator=(const CheckpointChunks&) = delete;

  // The next one, whose checksum was right. Valid until the following call. Throws DataError if it
  // was not, or the file has ended; MissingInputError, DiskError.
  std::span<const std::byte> next();

 private:
  static constexpr size_t kSlots = 3;  // one is used, the others are on their way
  struct Slot {
    DirectMemory memory;
    std::future<std::span<const std::byte>> chunk;
  };

  void start(size_t index);
  std::span<const std::byte> read(File& file, ChunkId id, std::byte* memory) const;

  const Folder& folder_;
  const CheckpointManifest& manifest_;
  const std::vector<ChunkId> order_;
  const bool shared_;
  std::shared_ptr<File> file_;  // of the chunk that was started last
  std::array<Slot, kSlots> slots_;
  size_t started_ = 0;
  size_t taken_ = 0;
};

}  // namespace shale
