#include "shale/comm/parallel/tensor/tensor_plan.h"

#include <algorithm>
#include <set>

#include "shale/base/error.h"
#include "shale/base/name_pattern.h"

namespace shale::comm {

TensorPlan& TensorPlan::add(std::string_view module, std::string_view parameter,
                            const Partition& partition, int64_t unit) {
  lines_.push_back({.pattern = cat(module, ".", parameter), .partition = partition, .unit = unit});
  return *this;
}

TensorPlan& TensorPlan::columns(std::string_view module, Columns how) {
  return add(module, "*", {.share = LeafShare::kCut, .dim = 0, .groups = how.groups}, how.unit);
}

TensorPlan& TensorPlan::rows(std::string_view module) {
  add(module, "weight", {.share = LeafShare::kCut, .dim = 1});
  return add(module, "bias", {.share = LeafShare::kFirst});
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
  return add(module, "*", {.share = LeafShare::kRepeated});
}

TensorPlan& TensorPlan::repeated(std::string_view parameter) {
  lines_.push_back(
      {.pattern = std::string(parameter), .partition = {.share = LeafShare::kRepeated}});
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
  // A bias is what a layer may lack.
  for (const Line& line : lines_) {
    if (!used.contains(&line) && !line.pattern.ends_with(".bias")) {
      problem += cat("; no parameter fits \"", line.pattern, "\"");
    }
  }
  if (problem.empty()) return found;
  throw ConfigError(cat("tensor plan: want one line for each parameter", problem));
}

}  // namespace shale::comm
