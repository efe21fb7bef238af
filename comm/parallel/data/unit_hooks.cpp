#include "shale/comm/parallel/data/unit_hooks.h"

#include <exception>

#include "shale/base/error.h"
#include "shale/runtime/autograd/recompute.h"

namespace shale::comm {
namespace {

// True if an error is unwinding the module's call. Then nobody may wait for the other mesh ranks in
// this process, which may not have that error. The end of a recomputation is not an error.
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

void UnitHooks::add(const FlatUnit& unit, HookPoint point, const std::function<void()>& act) {
  const std::string what = cat(unit.name(), " at point ", static_cast<int>(point));
  for (Module* module : copies_of(unit.module())) {
    const uint64_t id = module->add_hook(point, [this, act, what] {
      const bool is_alone = ranks() != nullptr && fails();
      if (!is_alone) once(what, act);
    });
    installed_.push_back({.module = module, .point = point, .id = id});
  }
}

void UnitHooks::remove() {
  for (const Installed& hook : installed_) hook.module->remove_hook(hook.point, hook.id);
}

void UnitHooks::once(std::string_view what, const std::function<void()>& act) const {
  ranks() != nullptr ? ranks()->once(what, act) : act();
}

std::vector<Module*> UnitHooks::copies_of(Module& module) const {
  return hosted_ != nullptr ? hosted_->copies_of(module) : std::vector<Module*>{&module};
}

}  // namespace shale::comm
