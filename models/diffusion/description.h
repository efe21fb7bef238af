#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shale/models/diffusion/process.h"
#include "shale/models/dit/dit.h"

namespace shale::models {

// Description of the diffusion transformer in a checkpoint, required for sampling.
struct DiffusionDescription {
  DitConfig model;
  DiffusionKind process = DiffusionKind::kFlow;
  double time_shift = 1;             // used with kFlow, see shifted_time()
  bool is_pictures = true;           // true: pictures with values from -1 to 1; false: latents
  std::vector<std::string> classes;  // class names by label
};

// Key of the description among the values that a run stores (RunDescription::values).
inline constexpr const char* kDiffusionFact = "diffusion transformer";

// Returns canonical JSON: no blanks, keys in order.
std::string description_json(const DiffusionDescription& description);
// Reads what description_json() returned. Throws DataError, whose message begins with `source`.
DiffusionDescription parse_description(std::string_view text, std::string_view source);

}  // namespace shale::models
