#include "shale/comm/parallel/data/flat_layout.h"

#include <algorithm>
#include <functional>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/runtime/optim/shard.h"

namespace shale::comm {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Calls use(module, parameter) for every module that uses a parameter declared elsewhere.
void for_each_tie(const Module& module,
                  const std::function<void(const Module&, const Parameter&)>& use) {
  for (const Parameter* parameter : module.tied_parameters()) {
    use(module, *parameter);
    for (const Parameter* leaf : parameter->peers) use(module, *leaf);
  }
  for (const Module* child : module.children()) for_each_tie(*child, use);
}

int depth_of(const Module* module) {
  int depth = 0;
  while ((module = module->parent()) != nullptr) ++depth;
  return depth;
}

}  // namespace

const Module& root_of(const Module& module) {
  return module.parent() == nullptr ? module : root_of(*module.parent());
}

bool is_inside(const Module* module, const Module* ancestor) {
  while (module != nullptr && module != ancestor) module = module->parent();
  return module == ancestor;
}

Tensor FlatEntry::part_of(const Tensor& buffer) const {
  return buffer.alias(parameter->shape, contiguous_strides(parameter->shape), offset);
}

FlatLayout flat_layout(const std::vector<Parameter*>& parameters, int ranks, int64_t turn) {
  FlatLayout layout;
  for (Parameter* parameter : parameters) {
    layout.entries.push_back({.parameter = parameter, .offset = layout.numel});
    layout.numel += round_up(parameter->numel(), kFlatAlignment);
  }
  layout.shard_numel = round_up((layout.numel + ranks - 1) / ranks, kFlatAlignment);
  if (layout.numel > 0 && layout.shard_numel * ranks >= 2 * layout.numel) {
    layout.owner = static_cast<int>(turn % ranks);
    layout.shard_numel = layout.numel;
  } else {
    layout.numel = layout.shard_numel * ranks;
  }
  return layout;
}

void zero_padding(const FlatLayout& layout, const Tensor& buffer) {
  int64_t end = 0;
  const auto zero_to = [&](int64_t begin) {
    if (begin == end) return;
    const Tensor gap = vector_slice(buffer, end, begin - end);
    kernels::fill(gap.exec(), {.y = gap, .value = 0});
  };
  for (const FlatEntry& entry : layout.entries) {
    zero_to(entry.offset);
    end = entry.end();
  }
  zero_to(layout.numel);
}

UnitPlan plan_unit(Module& module, const std::set<const Parameter*>& taken) {
  if (!module.runs()) {
    throw ConfigError(
        cat("unit: ", module.full_name(),
            " has no forward of its own, so its hooks never run; use ", "a module that contains it",
            module.parent() != nullptr ? cat(": ", module.parent()->full_name()) : ""));
  }
  std::set<const Parameter*> used_outside;
  for_each_tie(root_of(module), [&](const Module& user, const Parameter& parameter) {
    if (!is_inside(&user, &module)) used_outside.insert(&parameter);
  });
  UnitPlan plan{.module = &module, .parameters = {}};
  for (Parameter* parameter : module.parameters()) {
    if (taken.contains(parameter) || used_outside.contains(parameter)) continue;
    plan.parameters.push_back(parameter);
  }
  return plan;
}

std::vector<UnitPlan> plan_units(Module& root, const std::vector<Module*>& modules) {
  std::vector<UnitPlan> plans;
  std::set<const Module*> seen = {&root};
  for (Module* module : modules) {
    if (!is_inside(module, &root)) {
      throw InternalError(cat("unit: ", module->full_name(), " is not in the model to be sharded"));
    }
    if (seen.insert(module).second) plans.push_back({.module = module, .parameters = {}});
  }
  plans.push_back({.module = &root, .parameters = {}});
  for_each_tie(root, [&](const Module& user, const Parameter& parameter) {
    if (is_inside(parameter.owner, &root)) return;
    throw InternalError(cat("unit: ", user.full_name(), " uses the parameter ",
                            parameter.full_name(),
                            ", whose owner is not in the model to be sharded"));
  });

  std::vector<UnitPlan*> inner_first;
  for (UnitPlan& plan : plans) inner_first.push_back(&plan);
  std::stable_sort(inner_first.begin(), inner_first.end(), [](const auto* a, const auto* b) {
    return depth_of(a->module) > depth_of(b->module);
  });
  std::set<const Parameter*> taken;
  for (UnitPlan* plan : inner_first) {
    *plan = plan_unit(*plan->module, taken);
    taken.insert(plan->parameters.begin(), plan->parameters.end());
  }
  return plans;
}

}  // namespace shale::comm
