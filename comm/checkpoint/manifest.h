#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shale/comm/checkpoint/layout.h"

namespace shale {

// manifest.json of a checkpoint: everything but the tensors' data. One JSON object,
//
//   {"format":"shale-checkpoint","format_version":2,"writer":"shale 0.2.0","step":100,
//    "state":{...},"config":{...},"chunk_bytes":4194304,
//    "files":[{"name":"shard_00000_of_00002.safetensors","bytes":123,"crc32c":"89abcdef..."},...],
//    "tensors":{"wte.weight":{"dtype":"F32","shape":[50304,768],
//       "boxes":[{"begin":[0,0],"size":[50304,768],"parts":[[0,1,2,19316736]]}]},...}
//   ,"crc32c":"0123abcd"}
//
// whose last member, on a line of its own, is the CRC32C of all bytes before that line. A file's
// "crc32c" has eight hexadecimal digits for each of its chunks, all chunks but the last being
// "chunk_bytes" long. The parts fill their box one after another; [file, step, parts, elements] are
// so many in a row that have so many elements each, part i in file number file + i * step: what the
// ranks of a group have of a tensor is two or three such entries, however many the ranks are. In
// version 1, which is read too, there was an entry [file, first element, elements] for each part.

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr int64_t kManifestVersion = 2;
inline constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;
inline constexpr int64_t kMaxCheckpointFiles = 100'000;
inline constexpr int64_t kMaxCheckpointParts = int64_t{1} << 24;
inline constexpr int64_t kCheckpointChunkBytes = int64_t{4} << 20;
inline constexpr int64_t kMinChunkBytes = 4096;
inline constexpr int64_t kMaxChunkBytes = int64_t{64} << 20;

struct CheckpointFile {
  std::string name;  // letters, digits, '_', '.', '-', and no '.' first
  int64_t bytes = 0;
  std::vector<uint32_t> chunk_crcs;  // CRC32C of each chunk
};

struct CheckpointManifest {
  std::string writer;         // what wrote it; filled in by to_json if empty
  int64_t step = 0;           // optimizer steps that were done
  std::string state = "{}";   // a JSON object: the training state besides tensors
  std::string config = "{}";  // a JSON object: what the run was asked to do
  int64_t chunk_bytes = kCheckpointChunkBytes;
  std::vector<CheckpointFile> files;
  std::map<std::string, CheckpointTensor, std::less<>> tensors;
};

// Adds what CheckpointShardWriter::finish() returned: one rank's file and its parts. Throws
// InternalError if another shard disagrees about a tensor's type or shape, or the chunk size, or
// for a text that is no record.
void add_shard(CheckpointManifest& manifest, std::string_view shard);

// The text of manifest.json. Sorts boxes and parts first. Throws InternalError if the tensors'
// parts do not fill them exactly, or the text would break a limit.
std::string to_json(CheckpointManifest manifest);

// The reverse, for a text that nobody vouches for. Throws DataError, starting with `source`, unless
// it is exactly of the form above: checksum, known keys only, limits, file names, sizes and chunk
// counts, no file twice, all tensors complete (check_tensor).
CheckpointManifest parse_checkpoint_manifest(std::string_view text, std::string_view source);

}  // namespace shale
