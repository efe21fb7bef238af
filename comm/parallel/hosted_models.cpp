#include "shale/comm/parallel/hosted_models.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"

namespace shale::comm {
namespace {

void check_alike(const std::vector<std::vector<Parameter*>>& of_models) {
  for (const std::vector<Parameter*>& parameters : of_models) {
    const auto alike = [](const Parameter* a, const Parameter* b) {
      return a->full_name() == b->full_name() && a->whole == b->whole;
    };
    const std::vector<Parameter*>& first = of_models.front();
    if (std::equal(first.begin(), first.end(), parameters.begin(), parameters.end(), alike)) {
      continue;
    }
    throw ConfigError(
        "hosted models: the models of a process's ranks have different parameters; make all models "
        "with the same function");
  }
}

}  // namespace

HostedModels::HostedModels(HostedRanks& ranks, std::vector<Module*> models, int tensor)
    : ranks_(ranks), models_(std::move(models)), tensor_(tensor) {
  if (std::ssize(models_) != ranks.count() || ranks.count() % tensor != 0) {
    throw InternalError(cat("hosted models: ", models_.size(), " models for ", ranks.count(),
                            " ranks, expected one for each rank, and a multiple of the ", tensor,
                            " tensor ranks"));
  }
  std::vector<std::vector<Parameter*>> of_models;
  for (const Module* model : models_) of_models.push_back(model->parameters());
  check_alike(of_models);
  const auto count = static_cast<size_t>(tensor_);
  for (size_t i = 0; i < of_models.front().size(); ++i) {
    Parameter& first = *of_models.front()[i];
    for (size_t rank = 0; rank < of_models.size(); ++rank) {
      Parameter& parameter = *of_models[rank][i];
      if (rank >= count) {
        of_models[rank % count][i]->add_copy(parameter);
      } else if (rank > 0 && first.sharding.share != Share::kFirst) {
        first.peers.push_back(&parameter);
      }
      if (rank > 0) parameter.peers.clear();
    }
  }
}

std::vector<Module*> HostedModels::copies_of(const Module& module) const {
  std::vector<size_t> path;  // child indices from the root down to the module
  const Module* root = &module;
  for (; root->parent() != nullptr; root = root->parent()) {
    const std::vector<Module*>& siblings = root->parent()->children();
    path.push_back(
        static_cast<size_t>(std::find(siblings.begin(), siblings.end(), root) - siblings.begin()));
  }
  std::vector<Module*> copies;
  for (Module* model : models_) {
    for (auto child = path.rbegin(); child != path.rend(); ++child) {
      model = model->children()[*child];
    }
    copies.push_back(model);
  }
  return copies;
}

}  // namespace shale::comm
