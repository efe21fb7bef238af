#include "shale/models/training/sample_axes.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"

namespace shale::models {

void check_data_parallel_only(const RunConfig& run, std::string_view models, std::string_view why) {
  for (const auto& [flag, value] :
       {std::pair("pipeline", run.pipeline), std::pair("tensor", run.tensor),
        std::pair("tensor-leaves", run.tensor_leaves), std::pair("context", run.context),
        std::pair("context-leaves", run.context_leaves)}) {
    if (value <= 1) continue;
    throw ConfigError(cat("--", flag, " ", value, ": ", models, " ", why,
                          "; want 1, and ranks of data parallelism (--zero) instead"));
  }
}

void check_whole_samples(const RunConfig& run, std::string_view models) {
  for (const auto& [flag, value] : {std::pair("context", run.context),
                                    std::pair("context-leaves", run.context_leaves)}) {
    if (value <= 1) continue;
    throw ConfigError(cat("--", flag, " ", value, ": ", models,
                          " attend to all of a sample, in which no token comes before another; "
                          "want 1, and --tensor or --pipeline instead"));
  }
  const int leaves = std::max(run.tensor, run.tensor_leaves);
  if (leaves > 1 && run.micro_batch % leaves != 0) {
    throw ConfigError(cat("--micro-batch is ", run.micro_batch, ": ranks and leaves of --tensor ",
                          "have whole samples between the layers of ", models,
                          ", want a multiple of ", leaves));
  }
}

}  // namespace shale::models
