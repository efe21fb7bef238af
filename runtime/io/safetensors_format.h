#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/dtype.h"

namespace shale {

// The header of a safetensors file: 8 bytes N, little-endian; N bytes of JSON; then the data.
// https://github.com/huggingface/safetensors

// An element type of the format, which has more of them than Shale.
struct SafetensorsDType {
  std::string_view name;       // "F32", "BF16", ...
  int bits = 0;                // of one element; some have 4 or 6
  int order = 0;               // files have the larger ones first
  std::optional<DType> dtype;  // what it is here
};

// Null for an unknown name.
const SafetensorsDType* find_safetensors_dtype(std::string_view name);
// Throws DTypeError if the format has no such type (it has all of ours now).
const SafetensorsDType& safetensors_dtype(DType dtype);

struct SafetensorsEntry {
  std::string name;
  const SafetensorsDType* type = nullptr;  // never null in a parsed header
  std::vector<int64_t> shape;              // may be longer than Shape allows
  int64_t begin = 0;                       // of the data, from the start of the file
  int64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their data
  std::map<std::string, std::string> metadata;
  int64_t data_begin = 0;  // 8 + N
};

// Limits that no honest file reaches.
inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;
inline constexpr int64_t kMaxSafetensorsTensors = 100'000;
inline constexpr int64_t kMaxSafetensorsMetadata = 10'000;
inline constexpr int64_t kMaxSafetensorsRank = 8;
inline constexpr int64_t kMaxSafetensorsName = 512;

// Reads the header of `file`, a whole file in memory. Throws DataError, starting with `source`,
// unless the header is strictly well-formed: valid UTF-8 JSON within the limits, no name twice,
// metadata strings only, and tensors that fill the data from its first byte to its last without
// gap or overlap, each as large as its shape says.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           std::string_view source);

// The same for a file of `file_bytes` of which `front`, its beginning up to the data or more, is in
// memory.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> front, int64_t file_bytes,
                                           std::string_view source);

// Where the data begins, from the file's first 8 bytes or more. Throws DataError if the header
// would be larger than its limit or the file.
int64_t safetensors_data_begin(std::span<const std::byte> front, int64_t file_bytes,
                               std::string_view source);

// Bytes of a tensor; nothing if that overflows or is not a whole number.
std::optional<int64_t> safetensors_bytes(const SafetensorsDType& type,
                                         std::span<const int64_t> shape);

// "F32[4,768]"
std::string to_string(const SafetensorsEntry& entry);

}  // namespace shale
