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

// Takes the bytes of chunk order[i], whose checksum was right; valid during the call.
using UseChunk = std::function<void(size_t i, std::span<const std::byte> bytes)>;

// Reads chunks of a checkpoint's files, handed out in this order to a few threads, which is what
// keeps a disk busy: each reads one, takes its checksum and uses it. So `use` is called once for
// every chunk, by several threads at once and in no fixed order. `shared`: other processes of this
// machine read the same, so it goes through the system's cache, and the disk is asked once; else
// past it. Throws DataError if a checksum was wrong, or a file has ended; MissingInputError,
// DiskError.
void read_chunks(const Folder& folder, const CheckpointManifest& manifest,
                 std::span<const ChunkId> order, bool shared, const UseChunk& use);

}  // namespace shale
