#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shale::models {

// State of a run for its supervisor: DIR/status.json, one JSON object with the keys state, step,
// checkpoint_step, checkpoint, exit_code and message. Rank 0 replaces it atomically at the start,
// with every checkpoint, and at the end.
enum class RunState {
  kRunning,  // running; or killed, since a killed run does not change its status
  kSaved,    // stopped on request after saving; to continue, run it again
  kDone,
  kFailed,
};

struct RunStatus {
  RunState state = RunState::kRunning;
  int64_t step = 0;  // optimizer steps done when this was written
  // Step of the newest committed checkpoint; null, with an empty path, if there is none.
  std::optional<int64_t> checkpoint_step = {};
  std::string checkpoint = {};        // folder of that checkpoint
  std::optional<int> exit_code = {};  // null while running
  std::string message = {};           // error message of a failed run

  friend bool operator==(const RunStatus&, const RunStatus&) = default;
};

// Replaces the file atomically. If the disk has no room for another file, overwrites it in place.
// Throws DiskError.
void write_run_status(const std::string& out, const RunStatus& status);
// Reads the status of a run. Throws MissingInputError if there is none, DataError if it is
// malformed.
RunStatus read_run_status(const std::string& out);

}  // namespace shale::models
