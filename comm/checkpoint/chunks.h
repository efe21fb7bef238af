#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "shale/comm/checkpoint/manifest.h"
#include "shale/runtime/io/file.h"

namespace shale {

// Identifies chunk `chunk` of file `file` of a manifest.
struct ChunkId {
  size_t file = 0;
  int64_t chunk = 0;

  auto operator<=>(const ChunkId&) const = default;
};

int64_t chunk_begin(const CheckpointManifest& manifest, ChunkId id);
int64_t chunk_bytes(const CheckpointManifest& manifest, ChunkId id);  // the last chunk is shorter

// Throws DataError, with the file's `path`, unless the bytes match the checksum in the manifest.
void check_chunk(const CheckpointManifest& manifest, ChunkId id, const std::string& path,
                 std::span<const std::byte> bytes);

// Receives the verified bytes of chunk order[i], valid during the call.
using UseChunk = std::function<void(size_t i, std::span<const std::byte> bytes)>;

// Reads chunks of a checkpoint's files with a few threads, which keeps a disk busy. Threads take
// chunks in the given order; each reads one, verifies its checksum and calls `use`: once for every
// chunk, concurrently and in no fixed order. `shared`: other processes of this machine read the
// same data, so read through the page cache; else use direct I/O. Throws DataError for a wrong
// checksum or a truncated file; MissingInputError, DiskError.
void read_chunks(const Folder& folder, const CheckpointManifest& manifest,
                 std::span<const ChunkId> order, bool shared, const UseChunk& use);

}  // namespace shale
