#include "comm/flat_layout.h"

#include <algorithm>
#include <map>

#include "runtime/base/error.h"

namespace shale::comm {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

using UnitIndex = std::map<const Module*, size_t>;

// The unit whose subtree holds `module`: the nearest ancestor that is one, itself included.
const Module* enclosing_unit(const Module* module, const UnitIndex& units) {
  while (units.find(module) == units.end()) module = module->parent();
  return module;
}

bool is_inside(const Module* module, const Module* ancestor) {
  while (module != nullptr && module != ancestor) module = module->parent();
  return module == ancestor;
}

// Moves owner[p] up until its unit encloses every module that is tied to p.
void raise_tied(const Module& module, const UnitIndex& units,
                std::map<const Parameter*, const Module*>& owner) {
  for (const Parameter* parameter : module.tied_parameters()) {
    const auto found = owner.find(parameter);
    if (found == owner.end()) {
      throw InternalError(cat("unit: ", module.full_name(), " uses the parameter ",
                              parameter->full_name(), ", which lies outside the tree"));
    }
    while (!is_inside(&module, found->second)) {
      found->second = enclosing_unit(found->second->parent(), units);
    }
  }
  for (const Module* child : module.children()) raise_tied(*child, units, owner);
}

}  // namespace

FlatLayout flat_layout(const std::vector<Parameter*>& parameters, int ranks) {
  FlatLayout layout;
  for (Parameter* parameter : parameters) {
    layout.entries.push_back({.parameter = parameter, .offset = layout.numel});
    layout.numel += round_up(parameter->numel(), kFlatAlignment);
  }
  layout.shard_numel = round_up((layout.numel + ranks - 1) / ranks, kFlatAlignment);
  layout.numel = layout.shard_numel * ranks;
  return layout;
}

std::vector<UnitPlan> plan_units(Module& root, const std::vector<Module*>& modules) {
  std::vector<UnitPlan> plans;
  UnitIndex units;
  for (Module* module : modules) {
    if (!is_inside(module, &root)) {
      throw InternalError(cat("unit: ", module->full_name(), " lies outside the tree"));
    }
    if (module == &root || !units.emplace(module, plans.size()).second) continue;
    plans.push_back({.module = module, .parameters = {}, .frozen = {}});
  }
  units.emplace(&root, plans.size());
  plans.push_back({.module = &root, .parameters = {}, .frozen = {}});

  const std::vector<Parameter*> all = root.parameters();
  std::map<const Parameter*, const Module*> owner;
  for (const Parameter* parameter : all) owner[parameter] = enclosing_unit(parameter->owner, units);
  raise_tied(root, units, owner);
  for (Parameter* parameter : all) {
    UnitPlan& plan = plans[units.at(owner.at(parameter))];
    (parameter->trainable ? plan.parameters : plan.frozen).push_back(parameter);
  }
  return plans;
}

}  // namespace shale::comm
