#include "shale/comm/parallel/tensor/tensor_plan.h"

#include <algorithm>
#include <set>

#include "shale/base/error.h"
#include "shale/base/name_pattern.h"

namespace shale::comm {
namespace {

constexpr Partition kEvery{.share = LeafShare::kRepeated};
constexpr const char *kBias = "bias", *kLoraA = "lora_A.weight", *kLoraB = "lora_B.weight";

// Whether it is of what a layer may lack.
bool is_optional(const TensorPlan::Line& line) {
  return line.pattern.ends_with(kBias) || line.pattern.ends_with(kLoraA) ||
         line.pattern.ends_with(kLoraB);
}

}  // namespace

TensorPlan& TensorPlan::add(std::string_view module, std::string_view parameter,
                            const Partition& partition, int64_t unit) {
  lines_.push_back({.pattern = cat(module, ".", parameter), .partition = partition, .unit = unit});
  return *this;
}

TensorPlan& TensorPlan::columns(std::string_view module, Columns how) {
  const Partition outputs{.share = LeafShare::kCut, .dim = 0, .groups = how.groups};
  add(module, "weight", outputs, how.unit).add(module, kBias, outputs, how.unit);
  return add(module, kLoraA, kEvery).add(module, kLoraB, outputs, how.unit);
}

TensorPlan& TensorPlan::rows(std::string_view module) {
  const Partition inputs{.share = LeafShare::kCut, .dim = 1};
  add(module, "weight", inputs).add(module, kBias, {.share = LeafShare::kFirst});
  return add(module, kLoraA, inputs).add(module, kLoraB, kEvery);
}

TensorPlan& TensorPlan::mixture(std::string_view module) {
  slices(cat(module, ".gate"));
  add(module, "experts.gate_proj", {.share = LeafShare::kCut, .dim = 1});
  add(module, "experts.up_proj", {.share = LeafShare::kCut, .dim = 1});
  return add(module, "experts.down_proj", {.share = LeafShare::kCut, .dim = 2});
}

TensorPlan& TensorPlan::vocabulary(std::string_view module) {
  return add(module, "weight", {.share = LeafShare::kCut, .dim = 0});
}

TensorPlan& TensorPlan::first(std::string_view module) {
  return add(module, "*", {.share = LeafShare::kFirst});
}

TensorPlan& TensorPlan::slices(std::string_view module) {
  return add(module, "*", kEvery);
}

TensorPlan& TensorPlan::repeated(std::string_view parameter) {
  lines_.push_back({.pattern = std::string(parameter), .partition = kEvery});
  return *this;
}

TensorPlan& TensorPlan::whole_samples() {
  has_whole_samples_ = true;
  return *this;
}

std::vector<const TensorPlan::Line*> TensorPlan::lines_of(
    const std::vector<Parameter*>& parameters) const {
  std::vector<const Line*> found;
  std::set<const Line*> used;
  std::string problem;
  for (const Parameter* parameter : parameters) {
    const std::string name = parameter->full_name();
    const Line* fits = nullptr;
    for (const Line& line : lines_) {
      if (!name_fits(line.pattern, name)) continue;
      if (fits != nullptr) {
        problem += cat("; ", name, " fits \"", fits->pattern, "\" and \"", line.pattern, "\"");
      }
      fits = &line;
    }
    if (fits == nullptr) problem += cat("; no line fits ", name);
    found.push_back(fits);
    used.insert(fits);
  }
  for (const Line& line : lines_) {
    if (!used.contains(&line) && !is_optional(line)) {
      problem += cat("; no parameter fits \"", line.pattern, "\"");
    }
  }
  if (problem.empty()) return found;
  throw ConfigError(cat("tensor plan: want one line for each parameter", problem));
}

}  // namespace shale::comm
