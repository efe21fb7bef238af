#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace shale {

// The files of a Hugging Face model's folder: model.safetensors, or, of a large model,
// model-00001-of-0000N.safetensors with an index that says which tensor is in which file:
//   {"metadata": {"total_size": bytes}, "weight_map": {tensor: file, ...}}

inline constexpr const char* kSafetensorsSingleFile = "model.safetensors";
inline constexpr const char* kSafetensorsIndexFile = "model.safetensors.index.json";

// The file `index` (from 0) of `count`.
std::string safetensors_file_name(size_t index, size_t count);
// Whether it is such a name of one of several files.
bool is_safetensors_part_name(std::string_view name);

using SafetensorsWeightMap = std::map<std::string, std::string>;  // tensor: file

// Reads the text of an index. Throws DataError, starting with `source`, unless it is JSON within
// the limits of safetensors headers, and each file a name that cannot lead out of the folder:
// letters, digits, '_', '.' and '-', no dot in front.
SafetensorsWeightMap parse_safetensors_index(std::string_view text, std::string_view source);

// The text of an index; total_bytes: of all tensors.
std::string make_safetensors_index(const SafetensorsWeightMap& weight_map, int64_t total_bytes);

}  // namespace shale
