#include "shale/models/training/sample_axes.h"

#include <utility>

#include "shale/base/error.h"

namespace shale::models {

void check_data_parallel_only(const RunConfig& run, std::string_view models, std::string_view why) {
  for (const auto& [flag, value] :
       {std::pair("pipeline", run.pipeline), std::pair("tensor", run.tensor),
        std::pair("context", run.context)}) {
    if (value <= 1) continue;
    throw ConfigError(cat("--", flag, " ", value, ": ", models, " ", why, "; use --", flag,
                          " 1, and data parallelism (--zero)"));
  }
}

void check_whole_samples(const RunConfig& run, std::string_view models) {
  if (run.context > 1) {
    throw ConfigError(cat("--context ", run.context, ": ", models,
                          " have bidirectional attention, which context parallelism does not "
                          "support; use --context 1, and --tensor or --pipeline"));
  }
  if (run.micro_batch % run.tensor != 0) {
    throw ConfigError(cat("--micro-batch is ", run.micro_batch, ", expected a multiple of ",
                          run.tensor, ": between the layers of ", models,
                          " each rank of --tensor has whole samples"));
  }
}

}  // namespace shale::models
