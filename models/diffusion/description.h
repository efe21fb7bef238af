#pragma once

#include <string>
#include <vector>

#include "shale/models/diffusion/process.h"
#include "shale/models/dit/dit.h"

namespace shale::models {

// What a checkpoint says of the diffusion transformer in it: whoever makes samples needs to know.
struct DiffusionDescription {
  DitConfig model;
  DiffusionKind process = DiffusionKind::kFlow;
  double time_shift = 1;             // of a flow, see shifted_time()
  bool is_pictures = true;           // values from -1 to 1 that can be shown; else latents
  std::vector<std::string> classes;  // names, by label
};

// The name under which it is among the facts of a run.
inline constexpr const char* kDiffusionFact = "diffusion transformer";

// As a JSON object in canonical form: no blanks, keys in order.
std::string description_json(const DiffusionDescription& description);

}  // namespace shale::models
