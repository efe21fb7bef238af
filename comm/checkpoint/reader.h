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

// Request for the elements of a tensor from `first` on, in row-major order and in the tensor's own
// type. The size of `into` says how many; it must be a whole number of elements.
struct CheckpointRead {
  std::string_view tensor;
  int64_t first = 0;
  std::span<std::byte> into;
};

// Reads ranges of a checkpoint's tensors, whatever the number of ranks that wrote it. Verifies the
// checksums of all data that it returns. Keeps in memory the manifest, the headers of the files
// used so far, and a few chunks.
//
// Throws DataError for damaged or malformed data, naming the file and the chunk; MissingInputError
// for missing files; DiskError if the disk fails. Not thread-safe.
class CheckpointReader {
 public:
  // Reads the manifest of the folder (".../step_00000100"). Checks that all files exist with the
  // right sizes, and that the step matches the folder's name, if the name has a step.
  explicit CheckpointReader(const std::string& folder);
  // Takes a manifest that was read from the folder. Does not check the files: when many ranks open
  // a checkpoint, one of them does it for all (comm::open_checkpoint).
  CheckpointReader(const std::string& folder, CheckpointManifest manifest);
  void check_files() const;  // checks that all files exist with the right sizes

  const std::string& path() const { return folder_.path(); }
  const CheckpointManifest& manifest() const { return manifest_; }
  const CheckpointTensor* find(std::string_view tensor) const;  // null if there is none

  // Reads elements of a tensor from `first` on; the size of `into` says how many. Throws DataError
  // if there is no such tensor, InternalError for a range beyond its elements.
  void read(std::string_view tensor, int64_t first, std::span<std::byte> into);
  // Reads all requests in file order, each chunk once, at the disk's speed (read_chunks). `shared`:
  // other processes of this machine read the same data. Throws InternalError if an element is
  // requested twice.
  void read_all(std::span<const CheckpointRead> wanted, bool shared = false);

  // Location of an element: index of its file in the manifest, and byte offset in that file. Reads
  // in the order of locations are sequential.
  struct Place {
    size_t file = 0;
    int64_t offset = 0;
    auto operator<=>(const Place&) const = default;
  };
  Place place_of(std::string_view tensor, int64_t element);

  // Reads a whole file of the manifest. Checks every checksum, and that the file holds exactly the
  // parts in the manifest. Ranks can divide the files of a checkpoint among themselves.
  void verify_file(size_t file);
  void verify();  // verifies all files

 private:
  struct OpenFile {
    File file;
    std::map<std::string, SafetensorsEntry, std::less<>> entries;  // tensors by name, read once
    int64_t last_use = 0;
  };
  // Bytes of a file, and the memory to read them to.
  struct Run {
    Place place;
    std::span<std::byte> into;
  };
  struct CachedChunk {
    ChunkId id{.file = 0, .chunk = -1};
    int64_t last_use = 0;
    std::vector<std::byte> bytes;
  };

  // A part in the manifest, with the name of its tensor, the tensor and the box.
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
  std::vector<std::vector<StoredPart>> parts_;  // parts of each file; empty before parts_of()
  int64_t uses_ = 0;
};

// Reads the text of the manifest in a checkpoint's folder. Throws MissingInputError, and DataError
// if it is longer than a manifest may be.
std::string read_manifest_text(const Folder& folder);
// Reads and parses the manifest; ignores the other files.
CheckpointManifest read_checkpoint_manifest(const Folder& folder);

}  // namespace shale
