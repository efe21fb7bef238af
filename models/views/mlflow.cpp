#include "shale/models/views/mlflow.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>
#include <thread>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/log.h"
#include "shale/base/parse.h"
#include "shale/models/training/output_folder.h"
#include "shale/models/training/report/run_status.h"
#include "shale/models/views/run_data.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/json_object.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::models {
namespace {

namespace fs = std::filesystem;

// Of a request (MLflow's REST API, runs/log-batch).
constexpr size_t kMostMetrics = 1000, kMostParams = 100;
constexpr size_t kLongestParam = 6000;
constexpr int64_t kMostMs = int64_t{1} << 50;  // 35,000 years: the sum of two does not overflow

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// How far a replay is: behind `of_step` rows of step `step`, or before any row where it is -1.
struct Progress {
  std::string experiment, run_id;
  int64_t start_ms = 0;
  int64_t step = -1, of_step = 0;
  bool has_params = false;
};

std::optional<Progress> read_progress(const std::string& path) {
  if (!fs::exists(path)) return std::nullopt;
  const JsonObject file = JsonObject::load(path);
  const int64_t start_ms = file.integer("start_ms");
  if (start_ms < 0 || start_ms > kMostMs) file.fail("start_ms", "milliseconds since 1970");
  return Progress{.experiment = file.text("experiment"),
                  .run_id = file.text("run_id"),
                  .start_ms = start_ms,
                  .step = file.integer("step"),
                  .of_step = file.integer("of_step"),
                  .has_params = file.flag("has_params")};
}

void write_progress(const std::string& path, const Progress& progress) {
  const Json file = {{"experiment", progress.experiment}, {"run_id", progress.run_id},
                     {"start_ms", progress.start_ms},     {"step", progress.step},
                     {"of_step", progress.of_step},       {"has_params", progress.has_params}};
  write_file_atomically(path, file.dump(2) + "\n");
}

class Sender {
 public:
  Sender(const HttpClient& server, const ReplayOptions& options)
      : server_(server), options_(options) {}

  // The answer's JSON. Tries again what another try may mend.
  Json post(const std::string& path, const Json& body) const {
    const std::string text = body.dump();
    double pause_s = options_.first_pause_s;
    for (int i = 1;; ++i, pause_s *= 2) {
      const bool is_last = i >= options_.tries;
      try {
        const HttpAnswer answer = server_.post(path, text, options_.timeout_s);
        if (answer.status == 200) return json_of(answer, path);
        const std::string said = cat("mlflow: ", path, " was answered with ", answer.status, ": ",
                                     excerpt(answer.body, 300));
        const bool may_pass = answer.status >= 500 || answer.status == 429;
        if (!may_pass) throw ConfigError(said);
        if (is_last) throw UnavailableError(said);
      } catch (const UnavailableError& error) {
        if (is_last) throw;
        log_info(printable(error.what()), "; tries again");
      }
      std::this_thread::sleep_for(std::chrono::duration<double>(pause_s));
    }
  }

 private:
  static Json json_of(const HttpAnswer& answer, const std::string& path) {
    const std::string source = cat("mlflow: the answer to ", path);
    Json json = Json::parse(answer.body, {}, source);
    if (!json.is_object()) throw DataError(cat(source, " is no object"));
    return json;
  }

  const HttpClient& server_;
  const ReplayOptions& options_;
};

std::string create_run(const Sender& sender, const std::string& run, const Progress& progress) {
  const fs::path name = fs::absolute(run).lexically_normal();
  const Json answer = sender.post(
      "/api/2.0/mlflow/runs/create",
      {{"experiment_id", progress.experiment},
       {"start_time", progress.start_ms},
       {"run_name", (name.has_filename() ? name : name.parent_path()).filename().string()},
       {"tags", Json::array({{{"key", "mlflow.source.name"}, {"value", "shale"}},
                             {{"key", "shale.out"}, {"value", name.string()}}})}});
  try {
    return answer["run"]["info"]["run_id"].text();
  } catch (const DataError&) {
    throw DataError(cat("mlflow: expected run.info.run_id, found ", excerpt(answer.dump(), 300)));
  }
}

void send_params(const Sender& sender, const std::string& run_id, const RunOptions& options) {
  for (size_t at = 0; at < options.size(); at += kMostParams) {
    Json params = Json::array();
    for (size_t i = at; i < std::min(at + kMostParams, options.size()); ++i) {
      const auto& [key, value] = options[i];
      params.push_back({{"key", key}, {"value", value.substr(0, kLongestParam)}});
    }
    sender.post("/api/2.0/mlflow/runs/log-batch", {{"run_id", run_id}, {"params", params}});
  }
}

// A row of metrics.jsonl: its numbers, but for the step.
struct Row {
  int64_t step = 0;
  double step_ms = 0;
  std::vector<std::pair<std::string, double>> figures;
};

Row row_of(std::string_view line, const std::string& where) {
  const Json json = Json::parse(line, {.max_bytes = 16384, .max_depth = 1}, where);
  if (!json.contains("step") || json["step"].int64().value_or(-1) < 0) {
    throw DataError(cat(where, ": expected an object with the integer 'step', at least 0"));
  }
  Row row{.step = json["step"].integer()};
  for (const auto& [key, value] : json.items()) {
    if (key == "step" || !value.is_number()) continue;
    const double number = value.real();
    row.figures.emplace_back(key, number);
    if (key == "step_ms") row.step_ms = number;
  }
  return row;
}

// Rows that are sent together.
class Batch {
 public:
  bool takes(const Row& row) const {
    return metrics_.empty() || metrics_.size() + row.figures.size() <= kMostMetrics;
  }
  void add(const Row& row, int64_t time_ms) {
    for (const auto& [key, value] : row.figures) {
      metrics_.push_back(
          {{"key", key}, {"value", value}, {"timestamp", time_ms}, {"step", row.step}});
    }
    ++rows_;
  }
  // Sends what there is, if anything.
  void send(const Sender& sender, const std::string& run_id, ReplayResult& result) {
    if (!metrics_.empty()) {
      sender.post("/api/2.0/mlflow/runs/log-batch", {{"run_id", run_id}, {"metrics", metrics_}});
    }
    result.rows += rows_;
    result.metrics += static_cast<int64_t>(metrics_.size());
    metrics_ = Json::array();
    rows_ = 0;
  }

 private:
  Json metrics_ = Json::array();
  int64_t rows_ = 0;
};

// The rows behind what was sent, in batches; keeps in `path` how far that is.
void send_rows(const Sender& sender, const std::string& run, const std::string& path,
               Progress& progress, ReplayResult& result) {
  const std::string source = file_in(run, "metrics.jsonl");
  const MappedFile file(source, {.pattern = AccessPattern::kSequential, .allow_empty = true});
  std::string_view text = file.text();
  Batch batch;
  Progress reached = progress;
  double passed_ms = 0;
  int64_t of_step = 0, step = -1;
  for (int64_t number = 1; text.find('\n') != text.npos; ++number) {
    const size_t end = text.find('\n');
    const Row row = row_of(text.substr(0, end), cat(source, ":", number));
    text.remove_prefix(end + 1);
    of_step = row.step == step ? of_step + 1 : 1;
    step = row.step;
    passed_ms = std::clamp(passed_ms + row.step_ms, 0.0, double{kMostMs});
    if (step < progress.step || (step == progress.step && of_step <= progress.of_step)) continue;
    if (row.figures.size() > kMostMetrics) {
      throw DataError(cat(source, ":", number, ": ", row.figures.size(),
                          " figures, expected at most ", kMostMetrics));
    }
    if (!batch.takes(row)) {
      batch.send(sender, progress.run_id, result);
      write_progress(path, reached);
    }
    batch.add(row, progress.start_ms + std::llround(passed_ms));
    reached.step = step;
    reached.of_step = of_step;
  }
  file.check();
  batch.send(sender, progress.run_id, result);
  if (reached.step != progress.step || reached.of_step != progress.of_step) {
    write_progress(path, reached);
  }
}

// What MLflow calls a state; empty: it goes on as RUNNING.
std::string_view status_of(RunState state) {
  switch (state) {
    case RunState::kRunning: return "";
    case RunState::kSaved: return "KILLED";
    case RunState::kDone: return "FINISHED";
    case RunState::kFailed: return "FAILED";
  }
  return "";
}

}  // namespace

ReplayResult replay_to_mlflow(const std::string& run, const HttpClient& server,
                              const ReplayOptions& options) {
  if (!fs::is_directory(run)) {
    throw MissingInputError(cat(run, ": expected the folder of a run"));
  }
  const Sender sender(server, options);
  const std::string path = file_in(run, "mlflow.json");
  std::optional<Progress> known = read_progress(path);
  if (known && known->experiment != options.experiment) {
    throw ConfigError(cat(path, ": the run was sent to experiment ", known->experiment,
                          ", expected the same; removing the file makes another run of it"));
  }
  Progress progress = known.value_or(
      Progress{.experiment = options.experiment, .run_id = {}, .start_ms = now_ms()});
  if (!known) {
    progress.run_id = create_run(sender, run, progress);
    write_progress(path, progress);
  }
  ReplayResult result{.run_id = progress.run_id};
  if (!progress.has_params) {
    send_params(sender, progress.run_id, read_run_options(run));
    progress.has_params = true;
    write_progress(path, progress);
  }
  send_rows(sender, run, path, progress, result);
  if (!fs::exists(file_in(run, "status.json"))) return result;
  const std::string_view status = status_of(read_run_status(run).state);
  if (status.empty() && !known) return result;
  Json update = {{"run_id", progress.run_id}, {"status", status.empty() ? "RUNNING" : status}};
  if (!status.empty()) update["end_time"] = now_ms();
  sender.post("/api/2.0/mlflow/runs/update", update);
  result.ended = !status.empty();
  return result;
}

}  // namespace shale::models
