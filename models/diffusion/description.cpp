#include "shale/models/diffusion/description.h"

#include "shale/base/error.h"
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

DiffusionDescription parse_description(std::string_view text, std::string_view source) {
  const Json json = Json::parse(text, {}, source);
  const auto at = [&](const char* name) -> const Json& {
    const Json* found = json.find(name);
    if (found == nullptr) throw DataError(cat(source, ": expected '", name, "', found none"));
    return *found;
  };
  const auto size = [&](const char* name) { return at(name).integer(1, int64_t{1} << 20); };
  DiffusionDescription d;
  d.classes = at("classes").get<std::vector<std::string>>();
  d.model = {
      .pixels = size("pixels"),
      .channels = size("channels"),
      .patch = size("patch"),
      .layers = size("layers"),
      .width = size("width"),
      .heads = size("heads"),
      .classes = std::ssize(d.classes),
      .learned_variance = at("learned_variance").boolean(),
      .variant = at("variant").text() == kPaper ? DitVariant::kPaper : DitVariant::kDiffusers};
  d.process = at("process").text() == kFlow ? DiffusionKind::kFlow : DiffusionKind::kDdpm;
  d.is_pictures = at("pictures").boolean();
  if (const Json* shift = json.find("time_shift")) d.time_shift = shift->real();
  return d;
}

}  // namespace shale::models
