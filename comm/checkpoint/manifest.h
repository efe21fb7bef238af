#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "shale/comm/checkpoint/layout.h"

namespace shale {

// manifest.json of a checkpoint has everything except tensor data. It is one JSON object:
//
//   {"format":"shale-checkpoint","format_version":2,"writer":"shale 0.2.0","step":100,
//    "state":{...},"config":{...},"chunk_bytes":4194304,
//    "files":[{"name":"shard_00000_of_00002.safetensors","bytes":123,"crc32c":"89abcdef..."},...],
//    "tensors":{"wte.weight":{"dtype":"F32","shape":[50304,768],
//       "boxes":[{"begin":[0,0],"size":[50304,768],"parts":[[0,1,2,19316736]]}]},...}
//   ,"crc32c":"0123abcd"}
//
// Its last member, on a separate line, is the CRC32C of all bytes before that line. A file's
// "crc32c" has eight hexadecimal digits for each of its chunks. All chunks but the last have
// "chunk_bytes" bytes.
//
// Parts fill their box one after another. An entry [file, step, parts, elements] describes `parts`
// consecutive parts of `elements` elements each. Part i of them is in file `file + i * step`. A
// group of ranks needs only two or three entries per tensor, whatever its size. Version 1, which
// can also be read, has an entry [file, first element, elements] for each part.

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr int64_t kManifestVersion = 2;
inline constexpr int64_t kMaxManifestBytes = int64_t{64} << 20;
inline constexpr int64_t kMaxCheckpointFiles = 100'000;
inline constexpr int64_t kMaxCheckpointParts = int64_t{1} << 24;
inline constexpr int64_t kCheckpointChunkBytes = int64_t{4} << 20;
inline constexpr int64_t kMinChunkBytes = 4096;
inline constexpr int64_t kMaxChunkBytes = int64_t{64} << 20;

struct CheckpointFile {
  std::string name;  // letters, digits, '_', '.', '-'; does not start with '.'
  int64_t bytes = 0;
  std::vector<uint32_t> chunk_crcs;  // CRC32C of each chunk
};

struct CheckpointManifest {
  std::string writer;         // program that wrote it; filled in by to_json if empty
  int64_t step = 0;           // optimizer steps done
  std::string state = "{}";   // a JSON object: training state without tensors
  std::string config = "{}";  // a JSON object: configuration of the run
  int64_t chunk_bytes = kCheckpointChunkBytes;
  std::vector<CheckpointFile> files;
  std::map<std::string, CheckpointTensor, std::less<>> tensors;
};

// Adds one rank's file and its parts, as CheckpointShardWriter::finish() returned them in `shard`.
// Throws InternalError if `shard` cannot be read, or if ranks disagree about the chunk size or a
// tensor's type or shape.
void add_shard(CheckpointManifest& manifest, std::string_view shard);

// Returns the text of manifest.json, with sorted boxes and parts. Throws InternalError if parts do
// not fill their tensors exactly, or if the text exceeds a limit.
std::string to_json(CheckpointManifest manifest);

// Parses a manifest that may be damaged or malicious. Checks the checksum, the keys, the limits,
// the file names and sizes, the numbers of chunks, and every tensor (check_tensor). Throws
// DataError, starting with `source`, if a check fails, a key is unknown or a file is listed twice.
CheckpointManifest parse_checkpoint_manifest(std::string_view text, std::string_view source);

}  // namespace shale
