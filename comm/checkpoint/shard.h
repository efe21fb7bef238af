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

// "shard_00003_of_00008.safetensors"
std::string shard_file_name(int rank, int ranks);

// One rank's file of a checkpoint before its data is there: a safetensors file of parts of tensors.
struct ShardPlan {
  // A part without elements is recorded, so that the tensor is known, and not written. Throws
  // InternalError for parts that are not ranges of their boxes, or that a file cannot hold.
  ShardPlan(const std::string& name, std::vector<TensorPart> parts,
            int64_t chunk_bytes = kCheckpointChunkBytes);

  const CheckpointFile& file() const { return record.files[0]; }

  std::vector<TensorPart> parts;
  std::vector<size_t> order;    // places in `parts` of those with elements, in the file's order
  std::vector<int64_t> begins;  // in the file, of what `order` has
  std::string front;            // the file's bytes before the data
  CheckpointManifest record;    // the file and its tensors, without checksums
};

// Writes one rank's file of a checkpoint. First all parts are declared; then their data comes in
// the order of the file, which next() tells, in pieces of any size. Checksums are taken from the
// bytes on their way.
//
//   CheckpointShardWriter writer(folder, shard_file_name(rank, ranks), parts);
//   while (!writer.is_complete()) writer.write(bytes of parts[writer.next()]);
//   const std::string record = writer.finish();  // for add_shard, on the rank that commits
//
// Everything throws DiskError where the disk fails.
class CheckpointShardWriter {
 public:
  // Makes the file `name` in the existing folder, and reserves its room on the disk. Throws what
  // ShardPlan does.
  CheckpointShardWriter(const std::string& folder, const std::string& name,
                        std::vector<TensorPart> parts, int64_t chunk_bytes = kCheckpointChunkBytes);

  bool is_complete() const { return next_ == plan_.order.size(); }
  // The place in `parts` of the part that the next write goes to. There must be one.
  size_t next() const { return plan_.order[next_]; }

  // The next bytes of that part. Throws InternalError if they are more than it has left.
  void write(std::span<const std::byte> bytes);

  // Syncs and closes the file; its name is on the disk only after CheckpointFolder::commit. Returns
  // what add_shard takes. Throws InternalError if data is missing.
  std::string finish();

 private:
  int64_t left() const;  // bytes of the current part
  void skip_complete();
  void append(std::span<const std::byte> bytes);

  ShardPlan plan_;
  StreamedFile file_;
  size_t next_ = 0;       // in plan_.order
  int64_t written_ = 0;   // of the current part
  int64_t position_ = 0;  // in the file, of what comes next
};

}  // namespace shale
