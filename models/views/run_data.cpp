#include "shale/models/views/run_data.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/base/text_file.h"
#include "shale/models/training/output_folder.h"
#include "shale/models/training/output_lock.h"
#include "shale/runtime/io/json_object.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::models {
namespace {

namespace fs = std::filesystem;

constexpr JsonLimits kLineLimits = {.max_bytes = 16384, .max_depth = 1};
// Maximum number of keys, because each key adds a field to every row.
constexpr size_t kMostKeys = 1000;

// Calls visit(line, where) for each complete line. where: for example "FILE:7".
template <typename Visit>
void for_each_line(std::string_view text, const std::string& source, Visit visit) {
  for (int64_t number = 1;; ++number) {
    const size_t end = text.find('\n');
    if (end == text.npos) return;
    visit(text.substr(0, end), cat(source, ":", number));
    text.remove_prefix(end + 1);
  }
}

// Reads the newest `most` lines of a file of JSON objects. A missing file has no lines.
RunLines read_lines(const std::string& path, size_t most) {
  RunLines lines;
  if (!fs::exists(path)) return lines;
  const MappedFile file(path, {.allow_empty = true});
  for_each_line(file.text(), path, [&](std::string_view line, const std::string& where) {
    try {
      Json object = Json::parse(line, {}, where);
      if (!object.is_object()) throw DataError(cat(where, ": expected an object"));
      lines.newest.push_back(std::move(object));
    } catch (const DataError&) {
      ++lines.unreadable;  // counts the damaged line; the other lines are still shown
    }
  });
  file.check();
  if (lines.newest.size() > most) {
    lines.left_out = static_cast<int64_t>(lines.newest.size() - most);
    lines.newest.erase(lines.newest.begin(), lines.newest.begin() + lines.left_out);
  }
  return lines;
}

// Reads a file with a JSON object. Returns null if the file does not exist.
Json read_object(const std::string& path) {
  if (!fs::exists(path)) return {};
  const JsonLimits limits;
  Json json = Json::parse(read_text_file(path, limits.max_bytes), limits, path);
  if (!json.is_object()) throw DataError(cat(path, ": expected an object"));
  return json;
}

// Lists the entries of a folder that are named step_N with this ending, ascending by N. Checkpoints
// that are being written have other names.
std::vector<std::pair<int64_t, std::string>> steps_in(const std::string& folder,
                                                      std::string_view ending) {
  std::vector<std::pair<int64_t, std::string>> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step_") || !name.ends_with(ending)) continue;
    const auto step = parse_int(name.substr(5, name.size() - 5 - ending.size()));
    if (step) found.emplace_back(*step, entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Reads status.json and sets the state. Looks twice whether a process holds the folder, so that a
// run that begins or ends in between is not taken for a killed one.
void read_state(const std::string& run, RunData& data) {
  const std::optional<bool> in_use = is_in_use(run);
  data.status = read_object(file_in(run, "status.json"));
  const Json* const state = data.status.find("state");
  data.state = state != nullptr && state->is_string() ? state->text() : "unknown";
  if (data.state != "running") return;
  if (!in_use) data.state = "unknown";
  if (in_use == false && is_in_use(run) == false) data.state = "killed";
}

double seconds_since_change(const std::string& path) {
  std::error_code none;
  const auto changed = fs::last_write_time(path, none);
  const auto age = decltype(changed)::clock::now() - changed;
  return none ? 0 : std::max(0.0, std::chrono::duration<double>(age).count());
}

// Quotes a field if RFC 4180 requires it.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

const Column* RunData::column(std::string_view key) const {
  const auto it = columns.find(key);
  return it == columns.end() ? nullptr : &it->second;
}

std::optional<double> RunData::newest(std::string_view key) const {
  const Column* const found = column(key);
  if (found == nullptr || found->points().empty()) return std::nullopt;
  return found->newest_known();
}

std::string RunData::item() const {
  constexpr std::string_view kEnding = "_per_s";
  for (const auto& [key, column] : columns) {
    if (key.ends_with(kEnding)) return key.substr(0, key.size() - kEnding.size());
  }
  return "items";
}

std::optional<int64_t> RunData::steps_wanted() const {
  const Json* const steps = options.find("steps");
  return steps != nullptr ? steps->int64() : std::nullopt;
}

std::optional<double> RunData::seconds_left() const {
  const Column *const losses = column("loss"), *const times = column("step_ms");
  const std::optional<int64_t> wanted = steps_wanted();
  if (state != "running" || losses == nullptr || times == nullptr || !wanted) return std::nullopt;
  constexpr size_t kNewest = 30;  // number of points
  double ms = 0, steps = 0;
  const auto& points = times->points();
  for (size_t i = points.size(); i > 0 && i + kNewest > points.size(); --i) {
    ms += points[i - 1].sum;
    steps += static_cast<double>(points[i - 1].count);
  }
  if (steps == 0) return std::nullopt;
  const auto left = std::max<int64_t>(0, *wanted - losses->newest_step());
  return ms / steps / 1000 * static_cast<double>(left);
}

void add_metrics_row(RunData& run, std::string_view line, const std::string& where) {
  const Json row = Json::parse(line, kLineLimits, where);
  const Json* const step = row.find("step");
  if (step == nullptr || step->int64().value_or(-1) < 0) {
    throw DataError(cat(where, ": expected an object with a 'step' of at least 0"));
  }
  const int64_t at = *step->int64();
  const bool is_step = row.contains("loss");
  const Column* const losses = run.column("loss");
  if (is_step && losses != nullptr && at <= losses->newest_step()) {
    for (auto& [key, column] : run.columns) column.drop_from(at);
  }
  for (const auto& [key, value] : row.items()) {
    if (key == "step") continue;
    if (key == "loss_bits" && value.is_string()) {
      uint32_t bits = 0;
      const std::string& hex = value.text();
      std::from_chars(hex.data(), hex.data() + hex.size(), bits, 16);
      while (!run.loss_bits.empty() && run.loss_bits.back().first >= at) run.loss_bits.pop_back();
      run.loss_bits.emplace_back(at, bits);
    }
    if (!value.is_number() && !value.is_null()) continue;
    run.columns[key].add(at, value.is_number() ? std::optional(value.real()) : std::nullopt);
  }
  if (run.columns.size() > kMostKeys) {
    throw DataError(
        cat(where, ": expected at most ", kMostKeys, " different keys in all lines together"));
  }
}

RunReader::RunReader(std::string run)
    : run_(std::move(run)),
      metrics_(fs::is_regular_file(run_) ? run_ : file_in(run_, "metrics.jsonl")) {
  data_.name = run_;
}

const RunData& RunReader::read() {
  read_metrics();
  data_.silent_s = seconds_since_change(metrics_);
  if (run_ == metrics_) return data_;
  read_state(run_, data_);
  data_.options = read_object(file_in(run_, "config.json"));
  data_.samples = read_lines(file_in(run_, "samples.jsonl"), 20);
  data_.starts = read_lines(file_in(run_, "starts.jsonl"), 100);
  data_.warnings = read_lines(file_in(run_, "warnings.jsonl"), 200);
  data_.checkpoints.clear();
  for (const auto& [step, path] : steps_in(file_in(run_, "checkpoints"), "")) {
    data_.checkpoints.push_back(step);
  }
  constexpr size_t kMostPictures = 4;
  data_.pictures.clear();
  for (const auto& [step, path] : steps_in(file_in(run_, "samples"), ".png")) {
    data_.pictures.push_back(path);
    if (data_.pictures.size() > kMostPictures) data_.pictures.erase(data_.pictures.begin());
  }
  return data_;
}

void RunReader::read_metrics() {
  if (!fs::exists(metrics_)) {
    throw MissingInputError(cat(run_,
                                ": found no metrics.jsonl; expected the folder of a run, which "
                                "training programs have as --out"));
  }
  const MappedFile file(metrics_, {.pattern = AccessPattern::kSequential, .allow_empty = true});
  const std::string_view text = file.text();
  if (text.size() < read_ || !text.substr(0, read_).ends_with(newest_line_)) {
    data_.columns.clear(), data_.loss_bits.clear(), newest_line_.clear();
    read_ = 0, lines_ = 0;
  }
  for (size_t end; (end = text.find('\n', read_)) != text.npos; read_ = end + 1) {
    newest_line_ = text.substr(read_, end + 1 - read_);
    add_metrics_row(data_, text.substr(read_, end - read_), cat(metrics_, ":", ++lines_));
  }
  file.check();
}

std::string csv_of_metrics(std::string_view jsonl, const std::string& source) {
  std::vector<std::string> keys;
  std::map<std::string, size_t> column;
  std::vector<std::vector<std::string>> rows;
  for_each_line(jsonl, source, [&](std::string_view line, const std::string& where) {
    const Json object = Json::parse(line, kLineLimits, where);
    if (!object.is_object()) throw DataError(cat(where, ": expected an object"));
    std::vector<std::string>& row = rows.emplace_back(keys.size());
    for (const auto& [key, value] : object.items()) {
      const auto [place, is_new] = column.try_emplace(key, keys.size());
      if (is_new) keys.push_back(key);
      if (keys.size() > kMostKeys) {
        throw DataError(
            cat(where, ": expected at most ", kMostKeys, " different keys in all lines together"));
      }
      row.resize(std::max(row.size(), place->second + 1));
      if (value.is_null()) continue;
      row[place->second] = value.is_string() ? value.text() : value.dump();
    }
  });
  std::string text;
  const auto add_row = [&](const std::vector<std::string>& row) {
    for (size_t i = 0; i < keys.size(); ++i) {
      text += cat(i > 0 ? "," : "", i < row.size() ? csv_field(row[i]) : std::string());
    }
    text += "\r\n";
  };
  add_row(keys);
  for (const auto& row : rows) add_row(row);
  return text;
}

}  // namespace shale::models
