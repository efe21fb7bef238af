#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "shale/comm/checkpoint/layout.h"
#include "shale/comm/checkpoint/manifest.h"
#include "shale/runtime/io/streamed_file.h"

namespace shale {

// Returns "shard_00003_of_00008.safetensors" for rank 3 of 8.
std::string shard_file_name(int rank, int ranks);

// Plan of one rank's file of a checkpoint: a safetensors file of parts of tensors.
struct ShardPlan {
  // Parts without elements are in `record`, so that their tensors are known, but not in the file.
  // Throws InternalError for parts that are not ranges of their boxes, or that do not fit into a
  // file.
  ShardPlan(const std::string& name, std::vector<TensorPart> parts,
            int64_t chunk_bytes = kCheckpointChunkBytes);

  const CheckpointFile& file() const { return record.files[0]; }

  std::vector<TensorPart> parts;
  std::vector<size_t> order;    // indices in `parts` of non-empty parts, in file order
  std::vector<int64_t> begins;  // byte offsets in the file of the parts in `order`
  std::string front;            // header of the file
  CheckpointManifest record;    // the file and its tensors, without checksums
};

// Writes one rank's file of a checkpoint. The constructor takes all parts. Then the caller writes
// their data in file order: next() is the part to continue, in pieces of any size. Checksums are
// computed on the way.
//
//   CheckpointShardWriter writer(folder, shard_file_name(rank, ranks), parts);
//   while (!writer.is_complete()) writer.write(bytes of parts[writer.next()]);
//   const std::string record = writer.finish();  // for add_shard, on the rank that commits
//
// All functions throw DiskError if the disk fails.
class CheckpointShardWriter {
 public:
  // Creates the file `name` in the existing folder, and reserves its disk space. Throws what
  // ShardPlan throws.
  CheckpointShardWriter(const std::string& folder, const std::string& name,
                        std::vector<TensorPart> parts, int64_t chunk_bytes = kCheckpointChunkBytes);

  bool is_complete() const { return next_ == plan_.order.size(); }
  // Index in `parts` of the part that the next write continues. Call it only if !is_complete().
  size_t next() const { return plan_.order[next_]; }

  // Writes the next bytes of part next(). Throws InternalError if the part has fewer bytes left.
  void write(std::span<const std::byte> bytes);

  // Syncs and closes the file. Returns the record for add_shard. The file's name survives a crash
  // only after CheckpointFolder::commit. Throws InternalError if data is missing.
  std::string finish();

 private:
  int64_t left() const;  // bytes missing from the current part
  void skip_complete();
  void append(std::span<const std::byte> bytes);

  ShardPlan plan_;
  StreamedFile file_;
  size_t next_ = 0;       // index in plan_.order
  int64_t written_ = 0;   // bytes of the current part written so far
  int64_t position_ = 0;  // file position of the next byte
};

}  // namespace shale
