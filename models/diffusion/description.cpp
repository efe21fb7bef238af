#include "shale/models/diffusion/description.h"

#include <nlohmann/json.hpp>

#include "shale/base/error.h"
#include "shale/runtime/io/json_object.h"

namespace shale::models {
namespace {

constexpr const char *kFlow = "flow", *kDdpm = "ddpm", *kPaper = "paper", *kDiffusers = "diffusers";
constexpr int64_t kMaxSize = int64_t{1} << 20;

int64_t size_of(const JsonObject& from, std::string_view key) {
  const int64_t value = from.integer(key);
  if (value < 1 || value > kMaxSize) from.fail(key, cat("1 to ", kMaxSize));
  return value;
}

// Whether a text is the first of two, which it must be one of.
bool is_first(const JsonObject& from, std::string_view key, std::string_view first,
              std::string_view second) {
  const std::string value = from.text(key);
  if (value != first && value != second) from.fail(key, cat(first, " or ", second));
  return value == first;
}

}  // namespace

std::string description_json(const DiffusionDescription& d) {
  nlohmann::json json = {
      {"pixels", d.model.pixels},
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
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

DiffusionDescription parse_description(std::string_view json, const std::string& source) {
  const JsonObject from(json, source);
  DiffusionDescription d;
  d.model = {.pixels = size_of(from, "pixels"),
             .channels = size_of(from, "channels"),
             .patch = size_of(from, "patch"),
             .layers = size_of(from, "layers"),
             .width = size_of(from, "width"),
             .heads = size_of(from, "heads"),
             .learned_variance = from.flag("learned_variance")};
  if (!is_first(from, "variant", kPaper, kDiffusers)) d.model.variant = DitVariant::kDiffusers;
  if (!is_first(from, "process", kFlow, kDdpm)) d.process = DiffusionKind::kDdpm;
  d.time_shift = from.real("time_shift", 1);
  if (!(d.time_shift > 0)) from.fail("time_shift", "above 0");
  d.is_pictures = from.flag("pictures");
  d.classes = from.texts("classes");
  if (d.classes.empty()) from.fail("classes", "a list of names");
  d.model.classes = std::ssize(d.classes);
  return d;
}

}  // namespace shale::models
