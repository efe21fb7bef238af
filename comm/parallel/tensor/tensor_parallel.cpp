#include "shale/comm/parallel/tensor/tensor_parallel.h"

#include "shale/base/error.h"
#include "shale/base/rng.h"
#include "shale/comm/same_on_all.h"

namespace shale::comm {
namespace {

// Whether the parameter's owner, or a module around it, can do its part alone.
bool is_accepted(const Parameter& parameter, const Partition& partition) {
  for (const Module* module = parameter.owner; module != nullptr; module = module->parent()) {
    if (module->accepts(parameter, partition)) return true;
  }
  return false;
}

std::string_view share_name(LeafShare share) {
  switch (share) {
    case LeafShare::kWhole: return "whole";
    case LeafShare::kCut: return "cut";
    case LeafShare::kRepeated: return "repeated";
    case LeafShare::kFirst: return "with the first leaf alone";
  }
  return "?";
}

void cut(Parameter& parameter, const TensorPlan::Line& line, const nn::Exchange& exchange) {
  Partition partition = line.partition;
  partition.leaves = exchange.ranks();
  partition.leaf = exchange.rank();
  check_partition(parameter.full_name(), parameter.whole, partition, line.unit);
  if (!is_accepted(parameter, partition)) {
    throw ConfigError(
        cat("tensor: no layer around ", parameter.full_name(), parameter.whole, " works with it ",
            share_name(partition.share),
            partition.share == LeafShare::kCut
                ? cat(" along dimension ", partition.dim, " into ", partition.leaves, " parts")
                : std::string(),
            "; want a plan, or a number of parts, that its accepts() takes"));
  }
  parameter.owner->cut(parameter, partition);
}

}  // namespace

void tensor_parallel(Module& model, const TensorPlan& plan, ProcessGroup& group,
                     nn::Exchange& exchange) {
  if (plan.has_whole_samples()) exchange.set_whole_samples();
  const std::vector<Parameter*> parameters = model.parameters();
  const std::vector<const TensorPlan::Line*> lines = plan.lines_of(parameters);
  std::string text = plan.has_whole_samples() ? "whole samples" : "rows";
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [pattern, partition, unit] = *lines[i];
    text += cat(" ", parameters[i]->full_name(), parameters[i]->whole, share_name(partition.share),
                partition.dim, "/", partition.groups);
  }
  require_same_on_all(group, "tensor parallelism",
                      cat(exchange.ranks(), " ranks, ", exchange.row_pieces(),
                          " pieces, parameters and plan ", hash_name(text)));
  for (size_t i = 0; i < parameters.size(); ++i) {
    // Experts that are dealt out are whole.
    if (!parameters[i]->partition.is_of_experts) cut(*parameters[i], *lines[i], exchange);
  }
  model.set_exchange(&exchange);
}

}  // namespace shale::comm
