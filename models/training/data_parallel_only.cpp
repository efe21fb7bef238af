#include "shale/models/training/data_parallel_only.h"

#include "shale/base/error.h"

namespace shale::models {
namespace {

struct RefusedFlag {
  const char* flag;
  int value;
  const char* why;
};

}  // namespace

void check_data_parallel_only(const RunConfig& run, std::string_view models) {
  for (const auto& [flag, value, why] :
       {RefusedFlag{"pipeline", run.pipeline, "are not cut into stages"},
        RefusedFlag{"tensor", run.tensor, "have no plan of how to cut their layers"},
        RefusedFlag{"tensor-leaves", run.tensor_leaves, "have no plan of how to cut their layers"},
        RefusedFlag{"context", run.context, "have no sequences to cut"},
        RefusedFlag{"context-leaves", run.context_leaves, "have no sequences to cut"}}) {
    if (value <= 1) continue;
    throw ConfigError(cat("--", flag, " ", value, ": ", models, " ", why,
                          "; want 1, and ranks of data parallelism (--zero) instead"));
  }
}

}  // namespace shale::models
