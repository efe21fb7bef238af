#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shale/comm/checkpoint/manifest.h"
#include "shale/models/training/step.h"

namespace shale::models {

// Results of a run's validations.
struct ValidationHistory {
  std::optional<float> best_loss = {};  // lowest loss; empty: none was finite
  int64_t best_step = 0;
  int64_t without_progress = 0;  // number of validations after the one with the lowest loss
};

// Position of a run, without its tensors. A step needs nothing else but the options, because random
// numbers are derived from counters, not from a saved state.
struct RunPosition {
  int64_t step = 0;          // optimizer steps done
  int64_t samples = 0;       // samples that all ranks have used; the data continues after them
  StepHistory history = {};  // history of the completed steps
  ValidationHistory validations = {};
};

// Returns the manifest's `state`. hosts: host of each rank if each host has its own files
// (comm/checkpoint/spread.h); otherwise empty.
std::string to_json(const RunPosition& position, const std::vector<std::string>& hosts);
// Reads the position that to_json() wrote; messages name `source`. Throws DataError.
RunPosition read_position(const CheckpointManifest& manifest, const std::string& source);

}  // namespace shale::models
