#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace shale {

// File names of a Hugging Face model folder: model.safetensors, or, for a large model,
// model-00001-of-0000N.safetensors with an index that maps each tensor to its file:
//   {"metadata": {"total_size": bytes}, "weight_map": {tensor: file, ...}}

inline constexpr const char* kSafetensorsSingleFile = "model.safetensors";
inline constexpr const char* kSafetensorsIndexFile = "model.safetensors.index.json";

// Returns the name of file number `index`, counted from 0, of `count` files.
std::string safetensors_file_name(size_t index, size_t count);
// Returns true for a name such as model-00001-of-00002.safetensors.
bool is_safetensors_part_name(std::string_view name);

using SafetensorsWeightMap = std::map<std::string, std::string>;  // tensor name -> file name

// Parses an index. Throws DataError, which begins with `source`, unless it is JSON within the
// limits of safetensors headers, and each file name is safe: letters, digits, '_', '.' and '-', no
// leading dot.
SafetensorsWeightMap parse_safetensors_index(std::string_view text, std::string_view source);

// Returns the text of an index. total_bytes: total size of all tensors.
std::string make_safetensors_index(const SafetensorsWeightMap& weight_map, int64_t total_bytes);

}  // namespace shale
