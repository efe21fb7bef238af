#include "shale/comm/parallel/tensor/tensor_parallel.h"

#include "shale/base/error.h"
#include "shale/base/rng.h"
#include "shale/comm/same_on_all.h"

namespace shale::comm {

void tensor_parallel(Module& model, ProcessGroup& group, const Exchange& exchange) {
  std::string text = exchange.has_whole_samples() ? "whole samples" : "rows";
  for (const Parameter* parameter : model.parameters()) {
    const Split& split = parameter->split;
    text += cat(" ", parameter->full_name(), parameter->whole, static_cast<int>(split.share),
                split.dim, "/", split.groups);
    if (split.share != Share::kWhole) continue;
    throw ConfigError(cat("tensor: no layer declares how ranks share ", parameter->full_name(),
                          parameter->whole,
                          "; set its Parameter::split (nn/sharding.h), or use one tensor rank"));
  }
  require_same_on_all(group, "tensor parallelism",
                      cat(exchange.ranks(), " ranks, ", exchange.row_pieces(),
                          " pieces, parameters and splits ", hash_name(text)));
  for (Parameter* parameter : model.parameters()) {
    if (parameter->sharding.is_of_experts) continue;  // experts are distributed over ranks instead
    const Split& split = parameter->split;
    parameter->shard({.share = split.share,
                      .dim = split.dim,
                      .groups = split.groups,
                      .ranks = exchange.ranks(),
                      .rank = exchange.rank()});
  }
}

}  // namespace shale::comm
