#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shale/comm/parallel/pipeline/schedule.h"
#include "shale/models/language/model.h"
#include "shale/test/support/ranks/training.h"

namespace shale::test {

// How a model is trained: with `ranks` pipeline stages, `tensor` ranks that share each layer, and
// `context` ranks that share each sequence. All other ranks are data parallel, in `replicas`
// replicas. `expert` ranks of a stage have different experts.
struct PipelineRun {
  int ranks = 1;  // number of pipeline stages; 1: no pipeline
  // Numbers of processes. If TrainOptions::tensor_shards or context_shards is larger, each process
  // hosts several mesh ranks.
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
  models::LanguageModelPolicy policy = {};  // dropout is ignored here, because TrainOptions sets it
  // Replaces the initial values of parameters.
  std::function<void(comm::DataParallel&)> load = {};
  // Returns the micro-batch of a step that begins with sequence `first`. If not set, micro_batch()
  // is used.
  std::function<Batch(int64_t step, int64_t first)> batch = {};
  // Called on each rank before the second micro-batch of every step.
  std::function<void(int64_t step)> during_step = {};
};

// Number of context ranks that exchange heads with each other in tests of `kind`.
inline int context_group(comm::ContextKind kind, int ranks) {
  return kind == comm::ContextKind::kUlyssesRing && ranks % 2 == 0 ? 2 : 1;
}

// Llama, or GPT-2 with a tied table. It has six layers and can be split into at most eight stages.
models::LanguageModelConfig six_layers(const std::string& family);

// Trains a model on all ranks of `all`, with data parallelism and pipelines. Ignores
// options.global_batch; a micro-batch has options.micro_batch sequences.
Trained train_pipeline(comm::ProcessGroup& all, const models::LanguageModelConfig& model,
                       const PipelineRun& run, const TrainOptions& options);
Trained train_pipeline(Context& context, comm::ProcessGroup& all,
                       const models::LanguageModelConfig& model, const PipelineRun& run,
                       const TrainOptions& options);

}  // namespace shale::test
