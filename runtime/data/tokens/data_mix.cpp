#include "shale/runtime/data/tokens/data_mix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/base/text_file.h"
#include "shale/runtime/data/fetch_advice.h"
#include "shale/runtime/data/split.h"
#include "shale/runtime/data/tokens/dataset_internal.h"
#include "shale/runtime/io/file.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFileEnding = ".mix.json";

bool exists(const std::string& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() != fs::file_type::not_found ||
         data_internal::megatron_index(path + ".bin").has_value();
}

double parse_number(std::string_view text, const std::string& what) {
  const std::optional<double> number = parse_real(text);
  if (number && *number > 0 && std::isfinite(*number)) return *number;
  throw ConfigError(cat(what, " is '", excerpt(text), "', expected a number above 0"));
}

// Parses "path" or "path:0.3".
DataPart parse_part(const std::string& text, bool is_one_of_many) {
  if (exists(text) || text.find_first_of("*?[") != text.npos) return {.path = text};
  const size_t colon = text.rfind(':');
  const bool is_address = colon != text.npos && text.compare(colon, 3, "://") == 0;
  if (colon == text.npos || is_address) {
    // A path that does not exist is returned, because opening it reports the problem.
    if (!is_one_of_many && !is_address) return {.path = text};
    throw MissingInputError(cat(excerpt(text, 300), ": no such file or folder (in --data)",
                                data_internal::fetch_advice(text)));
  }
  const std::string path = text.substr(0, colon);
  if (!exists(path)) {
    throw MissingInputError(cat("no such file or folder: neither ", excerpt(text, 300), " nor ",
                                excerpt(path, 300), " exists (in --data)",
                                data_internal::fetch_advice(text)));
  }
  return {.path = path,
          .weight = parse_number(std::string_view(text).substr(colon + 1),
                                 cat("--data: the weight of ", path))};
}

// Reads the entry of one source in a mixture file.
class PartReader {
 public:
  PartReader(const Json& part, const std::string& file, size_t index)
      : part_(part), place_(cat(file, ": source ", index)) {
    if (!part.is_object()) fail("is not a JSON object");
    for (const auto& [key, value] : part.items()) {
      static constexpr std::array kKeys = {"path", "weight", "epochs", "format", "dtype"};
      if (std::find(kKeys.begin(), kKeys.end(), key) == kKeys.end()) {
        fail(cat("has '", excerpt(key), "', expected path, weight, epochs, format, dtype"));
      }
    }
  }
  DataPart read(const fs::path& folder) const {
    DataPart part{.path = (folder / text("path")).lexically_normal().string()};
    if (part_.contains("weight") && part_.contains("epochs")) {
      fail("has a weight and epochs, expected one of them");
    }
    if (part_.contains("weight")) part.weight = number("weight");
    if (part_.contains("epochs")) part.epochs = number("epochs");
    if (part_.contains("format")) part.format = choice<DataFormat>("format", formats());
    if (part_.contains("dtype")) {
      part.width = choice<TokenWidth>(
          "dtype", {{"u8", TokenWidth::k8}, {"u16", TokenWidth::k16}, {"u32", TokenWidth::k32}});
    }
    return part;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw DataError(cat(place_, " ", what)); }
  std::string text(const char* key) const {
    if (!part_.contains(key) || !part_[key].is_string()) fail(cat("has no string '", key, "'"));
    return part_[key].text();
  }
  double number(const char* key) const {
    const double value = part_[key].is_number() ? part_[key].real() : -1;
    if (!(value > 0 && std::isfinite(value))) {
      fail(cat("has '", key, "': ", excerpt(part_[key].dump()), ", expected a number above 0"));
    }
    return value;
  }
  template <typename T>
  T choice(const char* key, const std::vector<std::pair<std::string, T>>& choices) const {
    const std::string value = text(key);
    std::string names;
    for (const auto& [name, meaning] : choices) {
      if (name == value) return meaning;
      names += cat(names.empty() ? "" : ", ", name);
    }
    fail(cat("has '", key, "': '", excerpt(value), "', expected ", names));
  }
  static std::vector<std::pair<std::string, DataFormat>> formats() {
    std::vector<std::pair<std::string, DataFormat>> all;
    for (int i = 0; i <= static_cast<int>(DataFormat::kCorpus); ++i) {
      all.emplace_back(to_string(DataFormat{i}), DataFormat{i});
    }
    return all;
  }

  const Json& part_;
  std::string place_;
};

std::vector<DataPart> read_mix_file(const std::string& path) {
  constexpr JsonLimits kLimits{};
  const std::string text = read_text_file(path, kLimits.max_bytes);
  const Json all = Json::parse(text, kLimits, path);
  if (!all.is_object() || all.size() != 1 || !all.contains("sources") ||
      !all["sources"].is_array() || all["sources"].empty()) {
    throw DataError(cat(path, ": expected {\"sources\": [{\"path\": ...}, ...]}"));
  }
  std::vector<DataPart> parts;
  for (const Json& part : all["sources"]) {
    parts.push_back(PartReader(part, path, parts.size()).read(fs::path(path).parent_path()));
    if (!exists(parts.back().path)) {
      throw MissingInputError(cat(path, ": ", excerpt(parts.back().path, 300),
                                  " does not exist; expected a file or folder"));
    }
  }
  return parts;
}

std::ptrdiff_t count_weights(const std::vector<DataPart>& parts) {
  return std::count_if(parts.begin(), parts.end(),
                       [](const DataPart& part) { return part.weight > 0; });
}

}  // namespace

std::vector<DataPart> parse_data(const std::string& data) {
  if (data.ends_with(kFileEnding)) {
    std::vector<DataPart> parts = read_mix_file(data);
    if (const auto weighted = count_weights(parts); weighted % std::ssize(parts) != 0) {
      throw DataError(cat(data, ": ", weighted, " of ", parts.size(),
                          " sources have weights, expected all or none"));
    }
    return parts;
  }
  if (exists(data)) return {{.path = data}};
  std::vector<DataPart> parts;
  const bool many = data.find(',') != data.npos;
  for (size_t begin = 0; begin <= data.size();) {
    const size_t end = std::min(data.find(',', begin), data.size());
    parts.push_back(parse_part(data.substr(begin, end - begin), many));
    begin = end + 1;
  }
  if (const auto weighted = count_weights(parts); weighted % std::ssize(parts) != 0) {
    throw ConfigError(cat("--data: ", weighted, " of ", parts.size(),
                          " sources have weights, expected all or none"));
  }
  return parts;
}

int64_t MixedData::train_tokens() const {
  int64_t tokens = 0;
  for (const DatasetSplits& source : sources) tokens += source.train->size();
  return tokens;
}

int64_t MixedData::vocab_bound() const {
  int64_t bound = 0;
  for (const DatasetSplits& source : sources) bound = std::max(bound, source.train->vocab_bound());
  return bound;
}

bool MixedData::is_text() const {
  return std::all_of(sources.begin(), sources.end(),
                     [](const DatasetSplits& source) { return source.is_text(); });
}

std::string MixedData::format() const {
  return sources.size() == 1 ? to_string(sources.front().format) : "mixture";
}

Mixture MixedData::mixture(const std::vector<int64_t>& samples) const {
  std::vector<double> weights;
  for (size_t i = 0; i < parts.size(); ++i) {
    const double by_size = static_cast<double>(samples.at(i)) * parts[i].epochs;
    weights.push_back(parts[i].weight > 0 ? parts[i].weight : by_size);
  }
  return Mixture(weights);
}

namespace {

// Throws if the name of a source marks it for validation or test, because training uses all of a
// source.
void check_names(const std::vector<DataPart>& parts) {
  std::vector<std::string> paths;
  for (const DataPart& part : parts) paths.push_back(part.path);
  const std::vector<std::string> names = data_internal::names_below_common_folder(paths);
  for (size_t i = 0; i < parts.size(); ++i) {
    const data_internal::FileUse use = data_internal::use_of_name(names[i]);
    if (use == data_internal::FileUse::kTrain) continue;
    throw ConfigError(cat("--data: ", parts[i].path, ": its name says that it is for ",
                          use == data_internal::FileUse::kNone ? "test" : "validation",
                          ", but --data with several sources uses them all for training only; put "
                          "this source into one folder with its training files, or rename it"));
  }
}

}  // namespace

MixedData open_parts(std::vector<DataPart> parts, const DataOptions& options) {
  check_names(parts);
  MixedData data{.parts = std::move(parts), .sources = {}};
  for (const DataPart& part : data.parts) {
    DataOptions own = options;
    own.path = part.path;
    if (part.format != DataFormat::kAuto) own.format = part.format;
    if (part.width) own.width = part.width;
    own.sources = std::ssize(data.parts);
    data.sources.push_back(open_dataset(own));
    const DatasetSplits& source = data.sources.back();
    if (data.parts.size() == 1) {
      data.fingerprint = source.fingerprint;
      data.checksum = source.checksum;
      break;
    }
    const auto mixed = [](uint64_t sum, uint64_t one) {
      return data_internal::mix_fingerprint(sum, "source", static_cast<int64_t>(one));
    };
    data.fingerprint = mixed(data.fingerprint, source.fingerprint);
    data.checksum = mixed(data.checksum, source.checksum);
  }
  return data;
}

}  // namespace shale
