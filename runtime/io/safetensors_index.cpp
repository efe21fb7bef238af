#include "shale/runtime/io/safetensors_index.h"

#include <cstdio>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/runtime/io/file.h"
#include "shale/runtime/io/safetensors_format.h"

namespace shale {

std::string safetensors_file_name(size_t index, size_t count) {
  if (count == 1) return kSafetensorsSingleFile;
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

bool is_safetensors_part_name(std::string_view name) {
  // Matches "model-" + digits + "-of-" + digits + ".safetensors", with any number of digits.
  const size_t middle = name.find("-of-");
  const size_t end = name.find('.');
  if (!name.starts_with("model-") || middle == name.npos || end == name.npos || end < middle) {
    return false;
  }
  const auto index = parse_int(name.substr(6, middle - 6));
  const auto count = parse_int(name.substr(middle + 4, end - middle - 4));
  return index && count && *index >= 1 && *count >= 2 && *index <= *count &&
         name ==
             safetensors_file_name(static_cast<size_t>(*index - 1), static_cast<size_t>(*count));
}

SafetensorsWeightMap parse_safetensors_index(std::string_view text, std::string_view source) {
  // The limit on JSON values allows two per tensor, and 1000 for the other entries of an index.
  const Json index = Json::parse(
      text, {.max_bytes = kMaxSafetensorsHeader, .max_values = 2 * kMaxSafetensorsTensors + 1000},
      source);
  if (!index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw DataError(cat(source, ": no object 'weight_map'"));
  }
  SafetensorsWeightMap result;
  // File names may be symbolic links, because Hugging Face's cache consists of them.
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string() || !is_plain_file_name(file.text())) {
      throw DataError(cat(source, ": tensor '", excerpt(name), "': ", excerpt(file.dump()),
                          ", expected a file name of letters, digits, '_', '.' and '-'"));
    }
    result[name] = file.text();
  }
  return result;
}

std::string make_safetensors_index(const SafetensorsWeightMap& weight_map, int64_t total_bytes) {
  const Json index = {{"metadata", {{"total_size", total_bytes}}},
                      {"weight_map", Json::Object(weight_map.begin(), weight_map.end())}};
  return index.dump(2) + "\n";
}

}  // namespace shale
