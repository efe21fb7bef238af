#pragma once

#include <string>
#include <vector>

#include "shale/models/diffusion/process.h"
#include "shale/models/dit/dit.h"

namespace shale::models {

// Description of the diffusion transformer in a checkpoint, required for sampling.
struct DiffusionDescription {
  DitConfig model;
  DiffusionKind process = DiffusionKind::kFlow;
  double time_shift = 1;             // for kFlow, see shifted_time()
  bool is_pictures = true;           // values from -1 to 1, which can be shown; false: latents
  std::vector<std::string> classes;  // names, by label
};

// Name of the description among the facts of a run.
inline constexpr const char* kDiffusionFact = "diffusion transformer";

// Returns canonical JSON: no blanks, keys in order.
std::string description_json(const DiffusionDescription& description);

}  // namespace shale::models
