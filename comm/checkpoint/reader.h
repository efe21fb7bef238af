#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shale/comm/checkpoint/chunks.h"
#include "shale/comm/checkpoint/layout.h"
#include "shale/comm/checkpoint/manifest.h"
#include "shale/runtime/io/file.h"
#include "shale/runtime/io/safetensors_format.h"

namespace shale {

// Elements [first, ...) of a tensor in row-major order, as many as fit into `into`, which must be a
// whole number of the tensor's elements; in the tensor's own type.
struct CheckpointRead {
  std::string_view tensor;
  int64_t first = 0;
  std::span<std::byte> into;
};

// A committed checkpoint, read by ranges of its tensors, whatever the number of ranks that wrote
// it. What a call that returns has read is what the checksums of its chunks say. Memory: the
// manifest, the headers of the files that were used, and a few chunks.
//
// Throws DataError for what is damaged or malformed, naming the file and the chunk;
// MissingInputError for what is not there; DiskError where the disk fails. Not for several threads.
class CheckpointReader {
 public:
  // Reads the manifest of the folder (".../step_00000100"), and checks that all its files are there
  // in their sizes, and that it is of the step that the folder is named after, if it is.
  explicit CheckpointReader(const std::string& folder);
  // The same of a manifest that has been read from there, and of files that nobody looks at before
  // something is read: of many ranks, one checks them for all (comm::open_checkpoint).
  CheckpointReader(const std::string& folder, CheckpointManifest manifest);
  void check_files() const;  // that all are there in their sizes

  const std::string& path() const { return folder_.path(); }
  const CheckpointManifest& manifest() const { return manifest_; }
  const CheckpointTensor* find(std::string_view tensor) const;  // null if there is none

  // Throws DataError if there is no such tensor, InternalError if it has not so many elements.
  void read(std::string_view tensor, int64_t first, std::span<std::byte> into);
  // All of these, in the order in which they lie in the files, each chunk once, at the disk's speed
  // (read_chunks). `shared`: other processes of this machine read the same. Throws
  // InternalError for an element that is wanted twice.
  void read_all(std::span<const CheckpointRead> wanted, bool shared = false);

  // Where an element lies: the file's index in the manifest, and the byte. Reads that come in this
  // order follow the disk.
  struct Place {
    size_t file = 0;
    int64_t offset = 0;
    auto operator<=>(const Place&) const = default;
  };
  Place place_of(std::string_view tensor, int64_t element);

  // Reads all of one file of the manifest: every checksum, and that the file holds exactly the
  // parts that it should. Ranks can share the files of a checkpoint among them.
  void verify_file(size_t file);
  void verify();  // all files

 private:
  struct OpenFile {
    File file;
    std::map<std::string, SafetensorsEntry, std::less<>> entries;  // by name; read once
    int64_t last_use = 0;
  };
  // Bytes of a file, and where they go.
  struct Run {
    Place place;
    std::span<std::byte> into;
  };
  struct CachedChunk {
    ChunkId id{.file = 0, .chunk = -1};
    int64_t last_use = 0;
    std::vector<std::byte> bytes;
  };

  // A part, where the manifest has it.
  struct StoredPart {
    const std::string* tensor;
    const CheckpointTensor* whole;
    const CheckpointTensor::Box* box;
    const CheckpointTensor::Part* part;
  };

  OpenFile& open(size_t file);
  void read_chunk(ChunkId id, std::span<std::byte> into);
  std::span<const std::byte> cached_chunk(ChunkId id);
  void read_bytes(size_t file, int64_t offset, std::span<std::byte> into);
  void for_each_run_of(const CheckpointRead& wanted, const std::function<void(const Run&)>& visit);
  SafetensorsHeader read_header(size_t file);
  const SafetensorsEntry& entry_of(size_t file, const TensorPart& part);
  const std::vector<StoredPart>& parts_of(size_t file);

  Folder folder_;
  CheckpointManifest manifest_;
  std::vector<OpenFile> files_;
  std::vector<CachedChunk> cache_;
  std::vector<std::vector<StoredPart>> parts_;  // by file, once they were asked for
  int64_t uses_ = 0;
};

// The text of the manifest of a checkpoint's folder, as it is there. Throws MissingInputError, and
// DataError if it is longer than a manifest may be.
std::string read_manifest_text(const Folder& folder);
// Reads and parses it; without looking at the other files.
CheckpointManifest read_checkpoint_manifest(const Folder& folder);

}  // namespace shale
