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

// Header of a safetensors file: 8 bytes N, little-endian; N bytes of JSON; then the data.
// https://github.com/huggingface/safetensors

// An element type of the safetensors format. The format has types that Shale does not support.
struct SafetensorsDType {
  std::string_view name;       // "F32", "BF16", ...
  int bits = 0;                // bits per element; some types have 4 or 6
  int order = 0;               // files store tensors of higher order first
  std::optional<DType> dtype;  // corresponding dtype; nullopt: unsupported
};

// Returns the type with this name; null if it is unknown.
const SafetensorsDType* find_safetensors_dtype(std::string_view name);
// Returns the format's type for a dtype. Throws DTypeError if the format has no such type (at
// present it has all of Shale's).
const SafetensorsDType& safetensors_dtype(DType dtype);

struct SafetensorsEntry {
  std::string name;
  const SafetensorsDType* type = nullptr;  // never null in a parsed header
  std::vector<int64_t> shape;              // may have more dimensions than Shape allows
  int64_t begin = 0;                       // offset of the data from the start of the file
  int64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // entries in the order of their data
  std::map<std::string, std::string> metadata;
  int64_t data_begin = 0;  // 8 + N
};

// Limits that no valid file reaches in practice.
inline constexpr int64_t kMaxSafetensorsHeader = 100'000'000;
inline constexpr int64_t kMaxSafetensorsTensors = 100'000;
inline constexpr int64_t kMaxSafetensorsMetadata = 10'000;
inline constexpr int64_t kMaxSafetensorsRank = 8;
inline constexpr int64_t kMaxSafetensorsName = 512;

// Parses the header of `file`, a whole file in memory. Throws DataError, which begins with
// `source`, unless the header is strictly well-formed: valid UTF-8 JSON within the limits, unique
// names, only strings as metadata, and tensors that fill the data section without gaps or overlaps,
// each of the size that its shape requires.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> file,
                                           std::string_view source);

// Parses the header of a file of `file_bytes` bytes. Only the beginning of the file, at least up to
// the data, is in memory as `front`.
SafetensorsHeader parse_safetensors_header(std::span<const std::byte> front, int64_t file_bytes,
                                           std::string_view source);

// Returns the offset of the data section. front: at least the first 8 bytes of the file. Throws
// DataError if the header would exceed its limit or the file.
int64_t safetensors_data_begin(std::span<const std::byte> front, int64_t file_bytes,
                               std::string_view source);

// Returns the number of bytes of a tensor; nullopt if it overflows or is not a whole number.
std::optional<int64_t> safetensors_bytes(const SafetensorsDType& type,
                                         std::span<const int64_t> shape);

// Returns a description such as "F32[4,768]".
std::string to_string(const SafetensorsEntry& entry);

}  // namespace shale
