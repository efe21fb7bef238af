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
// bytes; the last chunk of a file may be shorter
int64_t chunk_bytes(const CheckpointManifest& manifest, ChunkId id);

// Throws DataError, with the file's `path`, unless the bytes match the checksum in the manifest.
void check_chunk(const CheckpointManifest& manifest, ChunkId id, const std::string& path,
                 std::span<const std::byte> bytes);

// Receives the verified bytes of chunk order[i]. They are valid only during the call.
using UseChunk = std::function<void(size_t i, std::span<const std::byte> bytes)>;

// Reads the chunks in `order` with several threads, which keeps a disk busy. Each thread takes the
// next chunk, verifies its checksum and calls `use`. Calls of `use` may run at the same time and
// come in any order; there is one for each chunk. `shared`: other processes of this machine read
// the same data. If true, reads go through the page cache, otherwise they use direct I/O. Throws
// DataError for a wrong checksum or a truncated file, MissingInputError, and DiskError.
void read_chunks(const Folder& folder, const CheckpointManifest& manifest,
                 std::span<const ChunkId> order, bool shared, const UseChunk& use);

}  // namespace shale
