#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "shale/models/views/http_client.h"

namespace shale::models {

// How a run is sent to MLflow.
struct ReplayOptions {
  std::string experiment = "0";  // its id; "0" is the one that every server has
  int tries = 5;                 // of a request that nobody answers, or that the server fails
  double first_pause_s = 1;      // before the second try; doubles
  double timeout_s = 30;         // of a try
};

// What a replay has sent.
struct ReplayResult {
  std::string run_id;
  int64_t rows = 0;     // of metrics.jsonl, this time
  int64_t metrics = 0;  // figures in them
  bool ended = false;   // the run has ended, and MLflow knows
};

// Sends a run's folder to MLflow's REST interface (version 2.0): its options as params, the numbers
// of metrics.jsonl as metrics, its state as that of the run. A request has at most 1,000 metrics
// and 100 params, as MLflow asks for. OUT/mlflow.json keeps which run it is there and how far it
// is, after each batch: a replay that stopped, or is repeated while the run trains, goes on behind
// it, and rows that a resumed run writes again are not sent again. A batch whose answer was lost is
// sent again with the same steps and times, of which MLflow keeps one.
//
// The time of a row is when the first replay began to send, plus the step_ms of the rows before:
// metrics.jsonl has no times. Values longer than 6,000 bytes, MLflow's limit, are cut.
//
// Throws UnavailableError where the server cannot be reached or fails, after options.tries;
// ConfigError, with the server's words, for what it refuses; MissingInputError for a folder without
// metrics; DataError for malformed files.
ReplayResult replay_to_mlflow(const std::string& run, const HttpClient& server,
                              const ReplayOptions& options);

}  // namespace shale::models
