#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shale/comm/parallel/pipeline/schedule.h"
#include "shale/models/language/model.h"
#include "shale/test/support/ranks/training.h"

namespace shale::test {

// A way to train a model: `ranks` pipeline stages, `tensor` ranks that share each layer, and
// `context` ranks that share each sequence; all other ranks are data parallel, in `replicas`
// replicas. `expert` ranks of a stage have different experts.
struct PipelineRun {
  int ranks = 1;  // number of pipeline stages; 1: no pipeline
  // Processes; TrainOptions::tensor_shards and context_shards may set more mesh ranks per process.
  int tensor = 1;
  int context = 1;
  int expert = 1;
  int replicas = 1;
  comm::ScheduleKind kind = comm::ScheduleKind::k1F1B;
  int chunks = 1;
  std::vector<int> split = {};
  int64_t micro_batches = 4;
  int slots = 2;
  float lr = 1e-2f;
  models::LanguageModelPolicy policy = {};  // policy except dropout, which TrainOptions has
  // Sets parameters to other values than their initial ones.
  std::function<void(comm::DataParallel&)> load = {};
  // Returns the micro-batch that starts with sequence `first` of a step; empty: uses micro_batch().
  std::function<Batch(int64_t step, int64_t first)> batch = {};
  // Called on each rank before the second micro-batch of every step.
  std::function<void(int64_t step)> during_step = {};
};

// Size of the groups of context ranks that exchange heads in tests.
inline int context_group(comm::ContextKind kind, int ranks) {
  return kind == comm::ContextKind::kUlyssesRing && ranks % 2 == 0 ? 2 : 1;
}

// Llama, or GPT-2 with a tied table: six layers, hence eight pieces.
models::LanguageModelConfig six_layers(const std::string& family);

// Trains a model on all ranks of `all`, with data parallelism and pipelines. Ignores
// options.global_batch; a micro-batch has options.micro_batch sequences.
Trained train_pipeline(comm::ProcessGroup& all, const models::LanguageModelConfig& model,
                       const PipelineRun& run, const TrainOptions& options);
Trained train_pipeline(Context& context, comm::ProcessGroup& all,
                       const models::LanguageModelConfig& model, const PipelineRun& run,
                       const TrainOptions& options);

}  // namespace shale::test
