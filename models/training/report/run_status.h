#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace shale::models {

// What a run has come to, for whoever supervises it: DIR/status.json, one JSON object with the keys
// state, step, checkpoint_step, checkpoint, exit_code and message. Rank 0 replaces it as a whole,
// at the start, with every checkpoint, and at the end.
enum class RunState {
  kRunning,  // and what a run leaves that was killed
  kSaved,    // stopped on request after saving: run again to go on
  kDone,
  kFailed,
};

struct RunStatus {
  RunState state = RunState::kRunning;
  int64_t step = 0;  // optimizer steps done when this was written
  // The newest committed checkpoint; null, and an empty path, when there is none.
  std::optional<int64_t> checkpoint_step = {};
  std::string checkpoint = {};        // its folder
  std::optional<int> exit_code = {};  // null while running
  std::string message = {};           // of the failure

  friend bool operator==(const RunStatus&, const RunStatus&) = default;
};

// As a whole; in place where the disk has no room for another file. Throws DiskError.
void write_run_status(const std::string& out, const RunStatus& status);
// Throws MissingInputError if there is none, DataError if it is malformed.
RunStatus read_run_status(const std::string& out);

}  // namespace shale::models
