#include "runtime/io/checkpoint_chunks.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/io/crc32c.h"

namespace shale {
namespace {

std::string hex(uint32_t value) {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", value);
  return digits;
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
                      ", want ", hex(want), "; it is damaged, or was changed"));
}

CheckpointChunks::CheckpointChunks(const Folder& folder, const CheckpointManifest& manifest,
                                   std::vector<ChunkId> order, bool shared)
    : folder_(folder), manifest_(manifest), order_(std::move(order)), shared_(shared) {}

CheckpointChunks::~CheckpointChunks() {
  for (Slot& slot : slots_) {
    if (slot.chunk.valid()) slot.chunk.wait();
  }
}

std::span<const std::byte> CheckpointChunks::next() {
  // The slot of the chunk before is free now.
  for (; started_ < std::min(order_.size(), taken_ + kSlots); ++started_) start(started_);
  return slots_[taken_++ % kSlots].chunk.get();
}

void CheckpointChunks::start(size_t index) {
  const ChunkId id = order_[index];
  if (index == 0 || order_[index - 1].file != id.file) {
    file_ = std::make_shared<File>(File::open(folder_, manifest_.files[id.file].name));
    if (shared_) {
      file_->expect_sequential_reads();
    } else {
      file_->bypass_cache(true);
    }
  }
  Slot& slot = slots_[index % kSlots];
  if (slot.memory == nullptr) {
    // Where chunks begin and end between multiples, from the one before to the one behind.
    slot.memory = allocate_direct_memory(align_up(static_cast<size_t>(manifest_.chunk_bytes)) +
                                         2 * kDirectAlignment);
  }
  // A thread costs more than a checkpoint that is so small.
  const auto policy = order_.size() > 1 ? std::launch::async : std::launch::deferred;
  slot.chunk = std::async(policy, [this, file = file_, id, memory = slot.memory.get()] {
    return read(*file, id, memory);
  });
}

std::span<const std::byte> CheckpointChunks::read(File& file, ChunkId id, std::byte* memory) const {
  const auto begin = static_cast<size_t>(chunk_begin(manifest_, id));
  const size_t end = begin + static_cast<size_t>(chunk_bytes(manifest_, id));
  const size_t from = align_down(begin);
  file.read_at(static_cast<int64_t>(from), {memory, align_up(end) - from}, end - from);
  const std::span<const std::byte> bytes(memory + (begin - from), end - begin);
  check_chunk(manifest_, id, file.path(), bytes);
  return bytes;
}

}  // namespace shale
