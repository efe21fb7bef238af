// Data parallelism of several mesh ranks in one process (comm/parallel/hosted_models.h).
#include <exception>
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/parallel/hosted_models.h"
#include "shale/runtime/autograd/recompute.h"

namespace shale::comm {
namespace {

// Whether a module is left because of an error, which others of the process's ranks may not have:
// nobody waits for them. What ends a recomputation is none.
bool fails() {
  if (std::current_exception() == nullptr) return false;
  try {
    throw;
  } catch (const RecomputationDone&) {
    return false;
  } catch (...) {
    return true;
  }
}

}  // namespace

void DataParallel::add_hook(FlatUnit& unit, HookPoint point,
                            void (DataParallel::*hook)(FlatUnit&)) {
  const std::string what = cat(unit.name(), " at point ", static_cast<int>(point));
  for (Module* module : copies_of(unit.module())) {
    const uint64_t id = module->add_hook(point, [this, &unit, hook, what] {
      const bool is_alone = hosted_ranks() != nullptr && fails();
      if (!is_alone) once(what, [this, &unit, hook] { (this->*hook)(unit); });
    });
    hooks_.push_back({.module = module, .point = point, .id = id});
  }
}

void DataParallel::run(const std::function<void(int rank)>& body) const {
  hosted_ranks() != nullptr ? hosted_ranks()->run(body) : body(0);
}

HostedRanks* DataParallel::hosted_ranks() const {
  const HostedModels* const hosted = shared_.groups.hosted;
  return hosted != nullptr ? &hosted->ranks() : nullptr;
}

// What happens once for all of them, when the last one comes: they have units in common.
void DataParallel::once(std::string_view what, const std::function<void()>& act) const {
  hosted_ranks() != nullptr ? hosted_ranks()->once(what, act) : act();
}

std::vector<Module*> DataParallel::copies_of(Module& module) const {
  const HostedModels* const hosted = shared_.groups.hosted;
  return hosted != nullptr ? hosted->copies_of(module) : std::vector<Module*>{&module};
}

// After each parameter those that other tensor ranks of this process have.
void DataParallel::add_hosted(UnitPlan& plan) const {
  if (shared_.groups.hosted == nullptr) return;
  for (std::vector<Parameter*>* const list : {&plan.parameters, &plan.apart}) {
    std::vector<Parameter*> all;
    for (Parameter* parameter : *list) {
      all.push_back(parameter);
      for (size_t i = 1; i < parameter->peers.size(); ++i) all.push_back(parameter->peers[i]);
    }
    *list = std::move(all);
  }
  const std::set<const Parameter*> tied = plan.tied;
  for (const Parameter* parameter : tied) {
    plan.tied.insert(parameter->peers.begin(), parameter->peers.end());
  }
}

}  // namespace shale::comm
