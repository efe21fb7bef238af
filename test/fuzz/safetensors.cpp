#include <algorithm>
#include <map>
#include <utility>

#include "shale/base/json.h"
#include "shale/runtime/io/safetensors_format.h"
#include "shale/test/fuzz/fuzz.h"

namespace shale {
namespace {

// Checks that all tensors are inside the file, in order, without gap or overlap.
void check_places(const SafetensorsHeader& header, size_t file_bytes) {
  int64_t end = header.data_begin;
  for (const SafetensorsEntry& entry : header.entries) {
    fuzz::require(entry.begin == end, "tensors follow each other");
    fuzz::require(safetensors_bytes(*entry.type, entry.shape) == entry.bytes,
                  "a tensor has the bytes of its shape");
    end += entry.bytes;
  }
  fuzz::require(end == static_cast<int64_t>(file_bytes), "tensors fill the file");
}

// Checks that a general JSON parser finds the same tensors in the header.
void check_tree(const SafetensorsHeader& header, std::string_view text) {
  Json tree = Json::parse(text, {.max_bytes = INT64_MAX}, "header");
  std::map<std::string, std::string> metadata;
  if (tree.contains("__metadata__")) {
    for (const auto& [key, value] : tree["__metadata__"].items()) metadata[key] = value.text();
  }
  fuzz::require(metadata == header.metadata, "metadata is as in the tree");
  tree.erase("__metadata__");
  fuzz::require(tree.size() == header.entries.size(), "there are as many tensors as in the tree");
  for (const SafetensorsEntry& entry : header.entries) {
    const Json& node = std::as_const(tree)[entry.name];
    fuzz::require(node["dtype"] == std::string(entry.type->name), "a dtype is the tree's");
    fuzz::require(node["shape"] == entry.shape, "a shape is the tree's");
    fuzz::require(node["data_offsets"][0] == entry.begin - header.data_begin,
                  "an offset is the tree's");
  }
}

}  // namespace
}  // namespace shale

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shale;
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  const auto file_bytes = static_cast<int64_t>(size);
  SafetensorsHeader header;
  int64_t data_begin = 0;
  const bool is_read =
      fuzz::accepts<DataError>([&] { header = parse_safetensors_header(file, "x.safetensors"); });
  // Parses the header like a reader that does not have the whole file in memory.
  const bool has_front = fuzz::accepts<DataError>([&] {
    data_begin = safetensors_data_begin(file.first(std::min<size_t>(size, 8)), file_bytes, "x");
  });
  if (has_front) {
    const auto front = file.first(static_cast<size_t>(data_begin));
    const bool is_same = fuzz::accepts<DataError>(
        [&] { parse_safetensors_header(front, file_bytes, "x.safetensors"); });
    fuzz::require(is_same == is_read, "the header alone says as much as the file");
  } else {
    fuzz::require(!is_read, "a header that is read has a place");
  }
  if (!is_read) return 0;
  check_places(header, size);
  check_tree(header,
             fuzz::text_of(data, size).substr(8, static_cast<size_t>(header.data_begin - 8)));
  return 0;
}
