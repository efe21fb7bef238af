#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "shale/comm/parallel/data/flat_unit.h"
#include "shale/comm/parallel/hosted_models.h"

namespace shale::comm {

// Hooks of the modules of units. A process may have several mesh ranks (ShardGroups::hosted), and
// their models share units. Each hook then acts once for all of them, when the last mesh rank
// reaches it.
class UnitHooks {
 public:
  explicit UnitHooks(const HostedModels* hosted) : hosted_(hosted) {}

  HostedRanks* ranks() const { return hosted_ != nullptr ? &hosted_->ranks() : nullptr; }
  std::vector<Module*> copies_of(Module& module) const;
  void once(std::string_view what, const std::function<void()>& act) const;
  void add(const FlatUnit& unit, HookPoint point, const std::function<void()>& act);
  void remove();

 private:
  struct Installed {
    Module* module;
    HookPoint point;
    uint64_t id;
  };
  const HostedModels* hosted_;
  std::vector<Installed> installed_;
};

}  // namespace shale::comm
