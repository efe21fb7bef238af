#include "runtime/io/safetensors_index.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/json_limits.h"
#include "runtime/base/parse.h"
#include "runtime/io/file.h"
#include "runtime/io/safetensors_format.h"

namespace shale {

std::string safetensors_file_name(size_t index, size_t count) {
  if (count == 1) return kSafetensorsSingleFile;
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

SafetensorsWeightMap parse_safetensors_index(std::string_view text, std::string_view source) {
  // Two values for a tensor, and some for what else an index may say.
  check_json(text,
             {.max_bytes = kMaxSafetensorsHeader, .max_values = 2 * kMaxSafetensorsTensors + 1000},
             source);
  const nlohmann::json index = nlohmann::json::parse(text);
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    throw DataError(cat(source, ": no object 'weight_map'"));
  }
  SafetensorsWeightMap result;
  // Files may be links, because download caches are made of them.
  for (const auto& [name, file] : index["weight_map"].items()) {
    if (!file.is_string() || !is_plain_file_name(file.get_ref<const std::string&>())) {
      throw DataError(cat(source, ": tensor '", excerpt(name), "': ", excerpt(file.dump()),
                          ", want a file name of letters, digits, '_', '.' and '-'"));
    }
    result[name] = file.get<std::string>();
  }
  return result;
}

std::string make_safetensors_index(const SafetensorsWeightMap& weight_map, int64_t total_bytes) {
  const nlohmann::json index = {{"metadata", {{"total_size", total_bytes}}},
                                {"weight_map", weight_map}};
  return index.dump(2) + "\n";
}

}  // namespace shale
