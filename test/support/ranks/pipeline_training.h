#pragma once

#include <functional>
#include <string>
#include <vector>

#include "shale/comm/parallel/pipeline/schedule.h"
#include "shale/models/language/model.h"
#include "shale/test/support/ranks/training.h"

namespace shale::test {

// A way to train a model on ranks of which `ranks` are a pipeline, `tensor` share each layer and
// `context` each sequence; the others are data parallel, in so many replicas. `expert` of a stage's
// ranks have different experts.
struct PipelineRun {
  int ranks = 1;  // 1: no pipeline
  // Processes; with TrainOptions::tensor_shards and context_shards each has several mesh ranks.
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
  models::LanguageModelPolicy policy = {};  // but for its dropout, which TrainOptions has
  // Gives parameters other values than their initial ones.
  std::function<void(comm::DataParallel&)> load = {};
  // Sequence `first` of a step and those after it, one micro-batch; without: micro_batch().
  std::function<Batch(int64_t step, int64_t first)> batch = {};
  // Called on each rank in the middle of its steps.
  std::function<void(int64_t step)> during_step = {};
};

// Of how many context ranks those are that trade heads, in tests.
inline int context_group(comm::ContextKind kind, int ranks) {
  return kind == comm::ContextKind::kUlyssesRing && ranks % 2 == 0 ? 2 : 1;
}

// A Llama, or a GPT-2 whose table is tied, of eight pieces.
models::LanguageModelConfig six_layers(const std::string& family);

// Steps of a model on all ranks of `all`, in mixed rows of data parallelism and pipelines. Of
// `options` global_batch does not count; a micro-batch has micro_batch sequences.
Trained train_pipeline(comm::ProcessGroup& all, const models::LanguageModelConfig& model,
                       const PipelineRun& run, const TrainOptions& options);
Trained train_pipeline(Context& context, comm::ProcessGroup& all,
                       const models::LanguageModelConfig& model, const PipelineRun& run,
                       const TrainOptions& options);

}  // namespace shale::test
