#include "shale/comm/checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <span>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/base/version.h"
#include "shale/comm/checkpoint/json_internal.h"
#include "shale/runtime/io/crc32c.h"
#include "shale/runtime/io/file.h"
#include "shale/runtime/io/safetensors_format.h"

namespace shale {
namespace {

constexpr const char* kFormat = "shale-checkpoint";
constexpr JsonLimits kLimits = {.max_bytes = kMaxManifestBytes};
// length of the last line, newline included
constexpr size_t kLastLineBytes = sizeof(R"(,"crc32c":"01234567"})");

std::string last_line(std::string_view before) {
  char line[kLastLineBytes + 1];
  std::snprintf(line, sizeof line, ",\"crc32c\":\"%08x\"}\n",
                crc32c(std::as_bytes(std::span(before))));
  return line;
}

// ---- Writing ----

std::string json_string(const std::string& text) {
  return json_quote(text, BrokenUtf8::kRefused);
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

// Consecutive parts of a box: part i has `count` elements and is in file `file + i * step`.
struct PartRun {
  int64_t file = 0;
  int64_t step = 1;
  int64_t parts = 1;
  int64_t count = 0;
};

std::vector<PartRun> runs_of(const std::vector<CheckpointTensor::Part>& parts) {
  std::vector<PartRun> runs;
  for (const CheckpointTensor::Part& part : parts) {
    if (runs.empty() || runs.back().count != part.count) {
      runs.push_back({.file = part.file, .count = part.count});
      continue;
    }
    PartRun& run = runs.back();
    if (run.parts == 1) run.step = part.file - run.file;
    if (part.file == run.file + run.parts * run.step) {
      ++run.parts;
    } else {
      runs.push_back({.file = part.file, .count = part.count});
    }
  }
  return runs;
}

std::string tensor_json(const CheckpointTensor& tensor) {
  const auto run_json = [](const PartRun& run) {
    return cat("[", run.file, ",", run.step, ",", run.parts, ",", run.count, "]");
  };
  const auto box_json = [&](const CheckpointTensor::Box& box) {
    return cat("{\"begin\":", list(box.box.begin), ",\"size\":", list(box.box.size),
               ",\"parts\":", list(runs_of(box.parts), run_json), "}");
  };
  return cat("{\"dtype\":\"", safetensors_dtype(tensor.dtype).name,
             "\",\"shape\":", list(tensor.shape), ",\"boxes\":", list(tensor.boxes, box_json), "}");
}

// Prints files and tensors, one per line.
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

// ---- Records of shards ----

// Encodes a tensor of one rank's file. A box is [begin, size, parts]; its begin and size are empty
// if it is the whole tensor. A part is [first element, number of elements].
std::string record_json(const CheckpointTensor& tensor) {
  const auto part_json = [](const CheckpointTensor::Part& part) {
    return cat("[", part.first, ",", part.count, "]");
  };
  const auto box_json = [&](const CheckpointTensor::Box& box) {
    const bool whole = box.box == whole_box(tensor.shape);
    return cat("[", whole ? "[],[]" : cat(list(box.box.begin), ",", list(box.box.size)), ",",
               list(box.parts, part_json), "]");
  };
  return cat("[\"", safetensors_dtype(tensor.dtype).name, "\",", list(tensor.shape), ",",
             list(tensor.boxes, box_json), "]");
}

CheckpointTensor read_record(const Json& value, int64_t file) {
  CheckpointTensor tensor{.dtype = *find_safetensors_dtype(value[0].text())->dtype,
                          .shape = value[1].get<std::vector<int64_t>>(),
                          .boxes = {}};
  for (const Json& box_value : value[2]) {
    CheckpointTensor::Box& box = tensor.boxes.emplace_back();
    box.box = {.begin = box_value[0].get<std::vector<int64_t>>(),
               .size = box_value[1].get<std::vector<int64_t>>()};
    if (box.box.size.empty()) box.box = whole_box(tensor.shape);
    for (const Json& part : box_value[2]) {
      box.parts.push_back({.file = file, .first = part[0].integer(), .count = part[1].integer()});
    }
  }
  return tensor;
}

void add_tensor(CheckpointManifest& manifest, const std::string& name, CheckpointTensor tensor) {
  const auto [it, is_new] = manifest.tensors.try_emplace(
      name, CheckpointTensor{.dtype = tensor.dtype, .shape = tensor.shape, .boxes = {}});
  CheckpointTensor& whole = it->second;
  if (tensor.dtype != whole.dtype || tensor.shape != whole.shape) {
    throw InternalError(cat("checkpoint: ", manifest.files.back().name,
                            " and another shard disagree about the type or shape of tensor '", name,
                            "'"));
  }
  for (CheckpointTensor::Box& from : tensor.boxes) {
    auto box = std::find_if(whole.boxes.begin(), whole.boxes.end(),
                            [&](const CheckpointTensor::Box& b) { return b.box == from.box; });
    if (box == whole.boxes.end()) {
      box = whole.boxes.insert(box, CheckpointTensor::Box{.box = from.box, .parts = {}});
    }
    box->parts.insert(box->parts.end(), from.parts.begin(), from.parts.end());
  }
}

// ---- Reading ----

// Location of a value in the manifest's text, for messages.
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

// Throws unless `value` is an object with exactly these keys.
void check_keys(const Json& value, std::initializer_list<const char*> keys, const Place& place) {
  if (!value.is_object()) place.fail(shown(value), ", expected an object");
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
  const std::optional<int64_t> result = value.int64();
  if (!result || *result < low || *result > high) {
    place.fail(shown(value), ", expected an integer from ", low, " to ", high);
  }
  return *result;
}

const Json& array(const Json& value, int64_t max_size, const Place& place) {
  if (!value.is_array()) place.fail(shown(value), ", expected a list");
  if (static_cast<int64_t>(value.size()) > max_size) {
    place.fail(value.size(), " entries, expected at most ", max_size);
  }
  return value;
}

std::string string_in(const Json& value, const Place& place) {
  if (!value.is_string()) place.fail(shown(value), ", expected a string");
  return value.text();
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
    place.fail(digits.size(), " hexadecimal digits in 'crc32c', expected 8 for each of ", count,
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
               ", expected letters, digits, '_', '.' and '-', no '.' first");
  }
  file.bytes =
      integer(value["bytes"], 8, std::numeric_limits<int64_t>::max() / 2, place.at("bytes"));
  const int64_t chunks = (file.bytes - 1) / chunk_bytes + 1;
  file.chunk_crcs = read_crcs(string_in(value["crc32c"], place.at("crc32c")), chunks, place);
  return file;
}

// Reads the parts of a manifest of the given format version, and counts them.
struct PartReader {
  int64_t version = kManifestVersion;
  int64_t parts = 0;

  void read(const Json& value, const Place& place, std::vector<CheckpointTensor::Part>& to);

 private:
  void read_run(const Json& value, const Place& place, std::vector<CheckpointTensor::Part>& to);
};

void PartReader::read(const Json& value, const Place& place,
                      std::vector<CheckpointTensor::Part>& to) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const size_t want = version == 1 ? 3 : 4;
  if (!value.is_array() || value.size() != want) {
    place.fail(shown(value), ", expected ", want, " integers");
  }
  if (version != 1) return read_run(value, place, to);
  ++parts;  // no limit needed: the text has at most JsonLimits::max_values values
  to.push_back({.file = integer(value[0], 0, kMaxCheckpointFiles, place),
                .first = integer(value[1], 0, kMax, place),
                .count = integer(value[2], 1, kMax, place)});
}

void PartReader::read_run(const Json& value, const Place& place,
                          std::vector<CheckpointTensor::Part>& to) {
  const PartRun run{.file = integer(value[0], 0, kMaxCheckpointFiles, place),
                    .step = integer(value[1], -kMaxCheckpointFiles, kMaxCheckpointFiles, place),
                    .parts = integer(value[2], 1, kMaxCheckpointFiles, place),
                    .count = integer(value[3], 1, std::numeric_limits<int64_t>::max(), place)};
  parts += run.parts;
  if (parts > kMaxCheckpointParts) {
    place.fail("the manifest lists more than ", kMaxCheckpointParts, " parts, ", parts,
               " up to this entry");
  }
  int64_t first = to.empty() ? 0 : to.back().first + to.back().count;
  int64_t end = 0;
  if (__builtin_mul_overflow(run.parts, run.count, &end) ||
      __builtin_add_overflow(first, end, &end)) {
    place.fail(shown(value), " ends beyond 2^63 elements");
  }
  for (int64_t i = 0; i < run.parts; ++i, first += run.count) {
    to.push_back({.file = run.file + i * run.step, .first = first, .count = run.count});
  }
}

CheckpointTensor read_tensor(const Json& value, const Place& place, PartReader& reader) {
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
      reader.read(part, part_place, box.parts);
    }
  }
  return tensor;
}

void read_layout(const Json& object, std::string_view source, int64_t version,
                 CheckpointManifest& manifest) {
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
        cat(source, ": ", tensors.size(), " tensors, expected at most ", kMaxSafetensorsTensors));
  }
  PartReader parts{.version = version};
  for (const auto& [name, value] : tensors.items()) {
    const Place place{source, cat("tensor '", excerpt(name), "'")};
    if (name.empty() || static_cast<int64_t>(name.size()) > kMaxSafetensorsName) {
      place.fail("a name of ", name.size(), " bytes, expected 1 to ", kMaxSafetensorsName);
    }
    manifest.tensors.emplace(name, read_tensor(value, place, parts));
  }
}

// Verifies the last line, which has the checksum. Returns the text before it, with a closing brace.
std::string checked_body(std::string_view text, std::string_view source) {
  if (static_cast<int64_t>(text.size()) > kMaxManifestBytes) {
    throw DataError(cat(source, ": ", text.size(), " bytes, expected at most ", kMaxManifestBytes));
  }
  if (text.size() <= kLastLineBytes) {
    throw DataError(
        cat(source, ": ", text.size(), " bytes; it was truncated, or is not a manifest"));
  }
  const std::string_view body = text.substr(0, text.size() - kLastLineBytes);
  const std::string want = last_line(body);
  const std::string_view found = text.substr(body.size());
  if (found.substr(0, 11) != want.substr(0, 11)) {
    throw DataError(cat(source, ": does not end with a checksum; it was truncated or damaged"));
  }
  if (found != want) {
    throw DataError(cat(source, ": the checksum is ", excerpt(found.substr(11, 8)), ", expected ",
                        want.substr(11, 8), "; damaged or changed: use another checkpoint"));
  }
  return std::string(body) + "}";
}

}  // namespace

std::string encode_shard(const CheckpointManifest& shard) {
  std::string text = cat("{\"chunk_bytes\":", shard.chunk_bytes,
                         ",\"file\":", file_json(shard.files.at(0)), ",\"tensors\":{");
  const char* separator = "";
  for (const auto& [name, tensor] : shard.tensors) {
    text += cat(separator, json_string(name), ":", record_json(tensor));
    separator = ",";
  }
  return text + "}}";
}

void add_shard(CheckpointManifest& manifest, std::string_view shard) {
  try {
    const Json object = Json::parse(shard, kLimits, "shard");
    const int64_t chunk_bytes = object["chunk_bytes"].integer();
    manifest.files.push_back(read_file(object["file"], chunk_bytes, {"shard", "file"}));
    if (manifest.files.size() == 1) manifest.chunk_bytes = chunk_bytes;
    if (chunk_bytes != manifest.chunk_bytes) {
      throw InternalError(cat("checkpoint: ", manifest.files.back().name, " has chunks of ",
                              chunk_bytes, " bytes, other shards have ", manifest.chunk_bytes));
    }
    const auto file = static_cast<int64_t>(manifest.files.size()) - 1;
    for (const auto& [name, value] : object["tensors"].items()) {
      add_tensor(manifest, name, read_record(value, file));
    }
  } catch (const DataError& error) {
    throw InternalError(cat("checkpoint: the record of a shard cannot be read: ", error.what()));
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
  try {  // refuses to write a manifest that cannot be read
    parse_checkpoint_manifest(result, "checkpoint");
  } catch (const DataError& error) {
    throw InternalError(error.what());
  }
  return result;
}

CheckpointManifest parse_checkpoint_manifest(std::string_view text, std::string_view source) {
  const std::string body = checked_body(text, source);
  Json object = Json::parse(body, kLimits, source);
  const Place top{source, "the manifest"};
  check_keys(object,
             {"format", "format_version", "writer", "step", "state", "config", "chunk_bytes",
              "files", "tensors"},
             top);
  if (object["format"] != kFormat)
    top.fail("expected the format \"shale-checkpoint\", found ", shown(object["format"]));
  const int64_t version =
      integer(object["format_version"], 1, kManifestVersion, top.at("format_version"));
  CheckpointManifest manifest;
  manifest.writer = string_in(object["writer"], top.at("writer"));
  manifest.step = integer(object["step"], 0, std::numeric_limits<int64_t>::max(), top.at("step"));
  for (const char* key : {"state", "config"}) {
    if (!object[key].is_object()) top.fail("'", key, "' is not an object");
    object[key].sort_keys();  // makes the texts of equal objects equal
  }
  manifest.state = object["state"].dump();
  manifest.config = object["config"].dump();
  read_layout(object, source, version, manifest);
  for (const auto& [name, tensor] : manifest.tensors) {
    check_tensor(source, excerpt(name), tensor, static_cast<int64_t>(manifest.files.size()));
  }
  return manifest;
}

}  // namespace shale
