#include "shale/comm/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/json_limits.h"
#include "shale/base/parse.h"
#include "shale/base/version.h"
#include "shale/comm/checkpoint/json_internal.h"
#include "shale/runtime/io/crc32c.h"
#include "shale/runtime/io/file.h"
#include "shale/runtime/io/safetensors_format.h"

namespace shale {
namespace {

using Json = nlohmann::json;

constexpr const char* kFormat = "shale-checkpoint";
constexpr JsonLimits kLimits = {.max_bytes = kMaxManifestBytes};
constexpr size_t kLastLineBytes = sizeof(R"(,"crc32c":"01234567"})");  // with its newline

std::string last_line(std::string_view before) {
  char line[kLastLineBytes + 1];
  std::snprintf(line, sizeof line, ",\"crc32c\":\"%08x\"}\n",
                crc32c(std::as_bytes(std::span(before))));
  return line;
}

// ---- Writing ----

std::string json_string(const std::string& text) {
  return Json(text).dump();
}

template <typename T, typename Write>
std::string list(const std::vector<T>& items, const Write& write) {
  std::string text = "[";
  for (size_t i = 0; i < items.size(); ++i) text += (i > 0 ? "," : "") + write(items[i]);
  return text + "]";
}

std::string list(const std::vector<int64_t>& items) {
  return list(items, [](int64_t item) { return std::to_string(item); });
}

std::string file_json(const CheckpointFile& file) {
  std::string crcs;
  char digits[9];
  for (const uint32_t crc : file.chunk_crcs) {
    std::snprintf(digits, sizeof digits, "%08x", crc);
    crcs += digits;
  }
  return cat("{\"name\":", json_string(file.name), ",\"bytes\":", file.bytes, ",\"crc32c\":\"",
             crcs, "\"}");
}

std::string tensor_json(const CheckpointTensor& tensor) {
  const auto part_json = [](const CheckpointTensor::Part& part) {
    return cat("[", part.file, ",", part.first, ",", part.count, "]");
  };
  const auto box_json = [&](const CheckpointTensor::Box& box) {
    return cat("{\"begin\":", list(box.box.begin), ",\"size\":", list(box.box.size),
               ",\"parts\":", list(box.parts, part_json), "}");
  };
  return cat("{\"dtype\":\"", safetensors_dtype(tensor.dtype).name,
             "\",\"shape\":", list(tensor.shape), ",\"boxes\":", list(tensor.boxes, box_json), "}");
}

// The members that a shard's record has too, one of each a line.
std::string layout_json(const CheckpointManifest& manifest) {
  std::string text = cat("\"chunk_bytes\":", manifest.chunk_bytes, ",\n\"files\":[");
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    text += cat(i > 0 ? ",\n" : "\n", file_json(manifest.files[i]));
  }
  text += "],\n\"tensors\":{";
  const char* separator = "\n";
  for (const auto& [name, tensor] : manifest.tensors) {
    text += cat(separator, json_string(name), ":", tensor_json(tensor));
    separator = ",\n";
  }
  return text + "}";
}

// ---- Reading ----

// Where in a text a value is, for messages.
struct Place {
  std::string_view source;
  std::string what;

  template <typename... Args>
  [[noreturn]] void fail(const Args&... args) const {
    throw DataError(cat(source, ": ", what, ": ", args...));
  }
  Place at(std::string_view inside) const { return {source, cat(what, " ", inside)}; }
};

std::string shown(const Json& value) {
  return excerpt(value.dump(), 80);
}

// Throws unless `value` is an object of these keys, all of them and no other.
void check_keys(const Json& value, std::initializer_list<const char*> keys, const Place& place) {
  if (!value.is_object()) place.fail(shown(value), ", want an object");
  for (const char* key : keys) {
    if (!value.contains(key)) place.fail("no '", key, "'");
  }
  if (value.size() == keys.size()) return;
  for (const auto& [key, member] : value.items()) {
    const bool is_known = std::any_of(keys.begin(), keys.end(),
                                      [&key = key](const char* known) { return key == known; });
    if (!is_known) place.fail("unknown key '", excerpt(key), "'");
  }
}

int64_t integer(const Json& value, int64_t low, int64_t high, const Place& place) {
  const bool fits =
      value.is_number_integer() &&
      !(value.is_number_unsigned() &&
        value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  const int64_t result = fits ? value.get<int64_t>() : 0;
  if (!fits || result < low || result > high) {
    place.fail(shown(value), ", want an integer from ", low, " to ", high);
  }
  return result;
}

const Json& array(const Json& value, int64_t max_size, const Place& place) {
  if (!value.is_array()) place.fail(shown(value), ", want a list");
  if (static_cast<int64_t>(value.size()) > max_size) {
    place.fail(value.size(), " entries, want at most ", max_size);
  }
  return value;
}

std::string string_in(const Json& value, const Place& place) {
  if (!value.is_string()) place.fail(shown(value), ", want a string");
  return value.get<std::string>();
}

std::vector<int64_t> sizes(const Json& value, const Place& place) {
  std::vector<int64_t> result;
  for (const Json& size : array(value, kMaxSafetensorsRank, place)) {
    result.push_back(integer(size, 0, std::numeric_limits<int64_t>::max(), place));
  }
  return result;
}

std::vector<uint32_t> read_crcs(const std::string& digits, int64_t count, const Place& place) {
  if (static_cast<int64_t>(digits.size()) != 8 * count) {
    place.fail(digits.size(), " hexadecimal digits in 'crc32c', want 8 for each of ", count,
               " chunks");
  }
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (!std::all_of(digits.begin(), digits.end(), is_digit)) {
    place.fail("'crc32c' has characters other than 0-9 and a-f");
  }
  std::vector<uint32_t> crcs(static_cast<size_t>(count));
  for (size_t i = 0; i < crcs.size(); ++i) {
    const char* begin = digits.data() + 8 * i;
    std::from_chars(begin, begin + 8, crcs[i], 16);
  }
  return crcs;
}

CheckpointFile read_file(const Json& value, int64_t chunk_bytes, const Place& place) {
  check_keys(value, {"name", "bytes", "crc32c"}, place);
  CheckpointFile file{.name = string_in(value["name"], place.at("name"))};
  if (!is_plain_file_name(file.name) || file.name == kManifestName) {
    place.fail("the name ", shown(value["name"]),
               ", want letters, digits, '_', '.' and '-', no '.' first");
  }
  file.bytes =
      integer(value["bytes"], 8, std::numeric_limits<int64_t>::max() / 2, place.at("bytes"));
  const int64_t chunks = (file.bytes - 1) / chunk_bytes + 1;
  file.chunk_crcs = read_crcs(string_in(value["crc32c"], place.at("crc32c")), chunks, place);
  return file;
}

CheckpointTensor read_tensor(const Json& value, const Place& place) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  check_keys(value, {"dtype", "shape", "boxes"}, place);
  CheckpointTensor tensor;
  const SafetensorsDType* type =
      find_safetensors_dtype(string_in(value["dtype"], place.at("dtype")));
  if (type == nullptr || !type->dtype) place.fail("unknown dtype ", shown(value["dtype"]));
  tensor.dtype = *type->dtype;
  tensor.shape = sizes(value["shape"], place.at("shape"));
  for (const Json& box_value : array(value["boxes"], kLimits.max_values, place.at("boxes"))) {
    check_keys(box_value, {"begin", "size", "parts"}, place.at("box"));
    CheckpointTensor::Box& box = tensor.boxes.emplace_back();
    box.box.begin = sizes(box_value["begin"], place.at("box begin"));
    box.box.size = sizes(box_value["size"], place.at("box size"));
    const Place part_place = place.at("part");
    for (const Json& part : array(box_value["parts"], kLimits.max_values, part_place)) {
      if (!part.is_array() || part.size() != 3) part_place.fail(shown(part), ", want 3 integers");
      box.parts.push_back({.file = integer(part[0], 0, kMaxCheckpointFiles, part_place),
                           .first = integer(part[1], 0, kMax, part_place),
                           .count = integer(part[2], 1, kMax, part_place)});
    }
  }
  return tensor;
}

void read_layout(const Json& object, std::string_view source, CheckpointManifest& manifest) {
  manifest.chunk_bytes =
      integer(object["chunk_bytes"], kMinChunkBytes, kMaxChunkBytes, {source, "'chunk_bytes'"});
  std::set<std::string> names;
  for (const Json& value : array(object["files"], kMaxCheckpointFiles, {source, "'files'"})) {
    const Place place{source, cat("file ", manifest.files.size())};
    manifest.files.push_back(read_file(value, manifest.chunk_bytes, place));
    const std::string& name = manifest.files.back().name;
    if (!names.insert(name).second) place.fail("the name '", name, "' appears twice");
  }
  const Json& tensors = object["tensors"];
  if (!tensors.is_object()) throw DataError(cat(source, ": 'tensors' is not an object"));
  if (static_cast<int64_t>(tensors.size()) > kMaxSafetensorsTensors) {
    throw DataError(
        cat(source, ": ", tensors.size(), " tensors, want at most ", kMaxSafetensorsTensors));
  }
  for (const auto& [name, value] : tensors.items()) {
    const Place place{source, cat("tensor '", excerpt(name), "'")};
    if (name.empty() || static_cast<int64_t>(name.size()) > kMaxSafetensorsName) {
      place.fail("a name of ", name.size(), " bytes, want 1 to ", kMaxSafetensorsName);
    }
    manifest.tensors.emplace(name, read_tensor(value, place));
  }
}

// The text without its last line, closed again.
std::string checked_body(std::string_view text, std::string_view source) {
  if (static_cast<int64_t>(text.size()) > kMaxManifestBytes) {
    throw DataError(cat(source, ": ", text.size(), " bytes, want at most ", kMaxManifestBytes));
  }
  if (text.size() <= kLastLineBytes) {
    throw DataError(cat(source, ": ", text.size(), " bytes; it was cut short, or is no manifest"));
  }
  const std::string_view body = text.substr(0, text.size() - kLastLineBytes);
  const std::string want = last_line(body);
  const std::string_view found = text.substr(body.size());
  if (found.substr(0, 11) != want.substr(0, 11)) {
    throw DataError(cat(source, ": does not end with a checksum; it was cut short, or damaged"));
  }
  if (found != want) {
    throw DataError(cat(source, ": the checksum is ", excerpt(found.substr(11, 8)), ", want ",
                        want.substr(11, 8), "; it is damaged, or was changed"));
  }
  return std::string(body) + "}";
}

}  // namespace

std::string encode_shard(const CheckpointManifest& shard) {
  return "{" + layout_json(shard) + "}";
}

void add_shard(CheckpointManifest& manifest, std::string_view shard) {
  const Json object = Json::parse(shard);
  CheckpointManifest added;
  read_layout(object, "shard", added);
  const auto fail = [&](const std::string& problem) {
    throw InternalError(cat("checkpoint: ", added.files[0].name, " ", problem));
  };
  const auto first_file = static_cast<int64_t>(manifest.files.size());
  if (first_file == 0) manifest.chunk_bytes = added.chunk_bytes;
  if (added.chunk_bytes != manifest.chunk_bytes) {
    fail(cat("has chunks of ", added.chunk_bytes, " bytes, another shard of ",
             manifest.chunk_bytes));
  }
  for (CheckpointFile& file : added.files) manifest.files.push_back(std::move(file));
  for (auto& [name, tensor] : added.tensors) {
    const auto [it, is_new] = manifest.tensors.try_emplace(
        name, CheckpointTensor{.dtype = tensor.dtype, .shape = tensor.shape, .boxes = {}});
    CheckpointTensor& whole = it->second;
    if (tensor.dtype != whole.dtype || tensor.shape != whole.shape) {
      fail(cat("and another shard disagree about the type or shape of tensor '", name, "'"));
    }
    for (const CheckpointTensor::Box& from : tensor.boxes) {
      auto box = std::find_if(whole.boxes.begin(), whole.boxes.end(),
                              [&](const CheckpointTensor::Box& b) { return b.box == from.box; });
      if (box == whole.boxes.end()) {
        box = whole.boxes.insert(box, CheckpointTensor::Box{.box = from.box, .parts = {}});
      }
      for (CheckpointTensor::Part part : from.parts) {
        part.file += first_file;
        box->parts.push_back(part);
      }
    }
  }
}

std::string to_json(CheckpointManifest manifest) {
  for (auto& [name, tensor] : manifest.tensors) {
    std::sort(tensor.boxes.begin(), tensor.boxes.end(),
              [](const auto& a, const auto& b) { return a.box.begin < b.box.begin; });
    for (CheckpointTensor::Box& box : tensor.boxes) {
      std::sort(box.parts.begin(), box.parts.end(),
                [](const auto& a, const auto& b) { return a.first < b.first; });
    }
  }
  if (manifest.writer.empty()) manifest.writer = cat("shale ", shale_version());
  const std::string body =
      cat("{\"format\":\"", kFormat, "\",\"format_version\":", kManifestVersion,
          ",\"writer\":", json_string(manifest.writer), ",\n\"step\":", manifest.step,
          ",\n\"state\":", manifest.state, ",\n\"config\":", manifest.config, ",\n",
          layout_json(manifest), "\n");
  std::string result = body + last_line(body);
  try {  // what is not readable must not be written
    parse_checkpoint_manifest(result, "checkpoint");
  } catch (const DataError& error) {
    throw InternalError(error.what());
  }
  return result;
}

CheckpointManifest parse_checkpoint_manifest(std::string_view text, std::string_view source) {
  const std::string body = checked_body(text, source);
  check_json(body, kLimits, source);
  const Json object = Json::parse(body);
  const Place top{source, "the manifest"};
  check_keys(object,
             {"format", "format_version", "writer", "step", "state", "config", "chunk_bytes",
              "files", "tensors"},
             top);
  if (object["format"] != kFormat) top.fail("the format is ", shown(object["format"]));
  integer(object["format_version"], kManifestVersion, kManifestVersion, top.at("format_version"));
  CheckpointManifest manifest;
  manifest.writer = string_in(object["writer"], top.at("writer"));
  manifest.step = integer(object["step"], 0, std::numeric_limits<int64_t>::max(), top.at("step"));
  for (const char* key : {"state", "config"}) {
    if (!object[key].is_object()) top.fail("'", key, "' is not an object");
  }
  manifest.state = object["state"].dump();
  manifest.config = object["config"].dump();
  read_layout(object, source, manifest);
  for (const auto& [name, tensor] : manifest.tensors) {
    check_tensor(source, excerpt(name), tensor, static_cast<int64_t>(manifest.files.size()));
  }
  return manifest;
}

}  // namespace shale
