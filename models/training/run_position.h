#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shale/comm/checkpoint/manifest.h"
#include "shale/models/training/step.h"

namespace shale::models {

// Validations of a run so far.
struct ValidationHistory {
  std::optional<float> best_loss = {};  // lowest; empty: there was no finite one
  int64_t best_step = 0;
  int64_t without_progress = 0;  // validations since, none of them lower
};

// Position of a run, besides its tensors. Position and options determine everything else that a
// step needs: random numbers are derived from counters, not from a saved state.
struct RunPosition {
  int64_t step = 0;          // optimizer steps done
  int64_t samples = 0;       // sequences used by all ranks; the data continues there
  StepHistory history = {};  // history of the completed steps
  ValidationHistory validations = {};
};

// Returns the manifest's `state`. hosts: the ranks' hosts, if each host has its own files
// (comm/checkpoint/spread.h); else empty.
std::string to_json(const RunPosition& position, const std::vector<std::string>& hosts);
// Reads the position that to_json() wrote; messages name `source`. Throws DataError.
RunPosition read_position(const CheckpointManifest& manifest, const std::string& source);

}  // namespace shale::models
