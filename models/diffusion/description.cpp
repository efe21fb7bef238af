#include "shale/models/diffusion/description.h"

#include "shale/base/json.h"

namespace shale::models {
namespace {

constexpr const char *kFlow = "flow", *kDdpm = "ddpm", *kPaper = "paper", *kDiffusers = "diffusers";

}  // namespace

std::string description_json(const DiffusionDescription& d) {
  Json json = {{"pixels", d.model.pixels},
               {"channels", d.model.channels},
               {"patch", d.model.patch},
               {"layers", d.model.layers},
               {"width", d.model.width},
               {"heads", d.model.heads},
               {"classes", d.classes},
               {"learned_variance", d.model.learned_variance},
               {"variant", d.model.variant == DitVariant::kPaper ? kPaper : kDiffusers},
               {"process", d.process == DiffusionKind::kFlow ? kFlow : kDdpm},
               {"pictures", d.is_pictures}};
  if (d.time_shift != 1) json["time_shift"] = d.time_shift;
  json.sort_keys();
  return json.dump();
}

}  // namespace shale::models
