#include "shale/models/views/run_data.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <variant>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/base/text_file.h"
#include "shale/models/training/output_folder.h"
#include "shale/runtime/io/json_object.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::models {
namespace {

namespace fs = std::filesystem;

// Calls visit(line, where) for each complete line; `where` is "FILE:7".
template <typename Visit>
void for_each_line(std::string_view text, const std::string& source, Visit visit) {
  for (int64_t number = 1;; ++number) {
    const size_t end = text.find('\n');
    if (end == text.npos) return;
    visit(text.substr(0, end), cat(source, ":", number));
    text.remove_prefix(end + 1);
  }
}

void read_warnings(const std::string& path, RunData& run) {
  if (!fs::exists(path)) return;
  const MappedFile file(path, {.allow_empty = true});
  for_each_line(file.text(), path, [&](std::string_view line, const std::string& where) {
    try {
      const JsonObject object(line, where);
      run.warnings.push_back({.time = object.text("time"),
                              .rank = static_cast<int>(object.integer("rank")),
                              .level = object.text("level"),
                              .text = object.text("text")});
    } catch (const DataError&) {
      ++run.warnings_unreadable;  // counts the damaged line; the other warnings are still shown
    }
  });
  file.check();
  if (run.warnings.size() <= RunData::kMostWarnings) return;
  const auto left_out = static_cast<int64_t>(run.warnings.size() - RunData::kMostWarnings);
  run.warnings.erase(run.warnings.begin(), run.warnings.begin() + left_out);
  run.warnings_left_out = left_out;
}

// Returns the steps of the complete checkpoints, which have names such as "step_00000100".
std::vector<int64_t> checkpoints_in(const std::string& folder) {
  std::vector<int64_t> steps;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step_")) continue;
    if (const auto step = parse_int(name.substr(5))) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

void add(RunData& run, const StepMetrics& row) {
  run.steps.push_back(row);
}
void add(RunData& run, const EvalMetrics& row) {
  run.evals.push_back(row);
}
void add(RunData& run, const RanksMetrics& row) {
  run.ranks.push_back(row);
}

template <typename Row>
void sort_by_step(std::vector<Row>& rows) {
  const auto is_before = [](const Row& a, const Row& b) { return a.step < b.step; };
  const auto is_not_before = [](const Row& a, const Row& b) { return a.step >= b.step; };
  if (std::adjacent_find(rows.begin(), rows.end(), is_not_before) == rows.end()) return;
  std::stable_sort(rows.begin(), rows.end(), is_before);
  // In reverse, because unique() keeps the first of equal rows, and the last row of a step counts.
  const auto end = std::unique(rows.rbegin(), rows.rend(),
                               [](const Row& a, const Row& b) { return a.step == b.step; });
  rows.erase(rows.begin(), end.base());
}

// Quotes a field if RFC 4180 requires it.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

RunData run_of(const std::vector<MetricsRow>& rows) {
  RunData data;
  for (const MetricsRow& row : rows) {
    std::visit([&data](const auto& metrics) { add(data, metrics); }, row);
  }
  sort_by_step(data.steps);
  sort_by_step(data.evals);
  sort_by_step(data.ranks);
  return data;
}

RunData read_run(const std::string& run) {
  const bool is_file = fs::is_regular_file(run);
  RunData data = run_of(read_metrics(is_file ? run : file_in(run, "metrics.jsonl")));
  data.name = run;
  if (is_file) return data;
  if (fs::exists(file_in(run, "status.json"))) data.status = read_run_status(run);
  read_warnings(file_in(run, "warnings.jsonl"), data);
  data.options = read_run_options(run);
  data.samples = read_samples(file_in(run, "samples.jsonl"));
  data.starts = read_starts(file_in(run, "starts.jsonl"));
  data.checkpoints = checkpoints_in(file_in(run, "checkpoints"));
  return data;
}

RunOptions read_run_options(const std::string& run) {
  const std::string path = file_in(run, "config.json");
  if (!fs::exists(path)) return {};
  const JsonLimits limits;
  const std::string text = read_text_file(path, limits.max_bytes);
  Json json = Json::parse(text, limits, path);
  if (!json.is_object()) throw DataError(cat(path, ": expected an object"));
  json.sort_keys();
  RunOptions options;
  for (const auto& [name, value] : json.items()) {
    options.emplace_back(name, value.is_string() ? value.text() : value.dump());
  }
  return options;
}

std::string csv_of_metrics(std::string_view jsonl, const std::string& source) {
  constexpr JsonLimits kLineLimits = {.max_bytes = 16384, .max_depth = 1};
  constexpr size_t kMostKeys = 1000;  // limit of keys, because each adds a field to every row
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
        throw DataError(cat(where, ": expected at most ", kMostKeys, " keys in all rows"));
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
