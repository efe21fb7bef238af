#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "shale/comm/parallel/context/cut_sequence.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/models/language/family.h"
#include "shale/models/training/step.h"
#include "shale/runtime/ops/linear.h"
#include "shale/test/support/training.h"

namespace shale::test {

constexpr int64_t kLength = 10;  // tokens of a sequence

struct TrainOptions {
  int64_t global_batch = 12;
  int64_t micro_batch = 1;
  int64_t steps = 4;
  float dropout = 0;
  float clip = 1;
  float loss_scale = 0;        // 0: none
  bool keep_gradients = true;  // of the first step; waits for the device
  Recompute recompute = Recompute::kNone;
  bool f32_norms = false;  // the first norm of each block has f32 parameters, whatever the rest has
  std::optional<Operands> fp8 = {};  // of the products of all blocks
  comm::DataParallelOptions parallel = {};
  models::StepOffload offload = {};
  std::optional<comm::LocalStepsOptions> local_steps = {};
  models::MakeOptimizer optimizer = make_adamw();
  int64_t length = kLength;
  std::optional<models::LanguageModelConfig> model = {};  // without: tiny_model()
  // Of train_pipeline(): mesh ranks, 0: as many as PipelineRun says.
  int tensor_shards = 0, context_shards = 0;
  int tensor_pieces = 0;                                        // comm::ParallelOptions::row_pieces
  comm::ContextKind context_kind = comm::ContextKind::kGather;  // groups: context_group()
};

struct Trained {
  std::vector<float> losses;
  std::vector<float> norms;
  std::vector<float> gradients;   // of all parameters, after the first step's reduction
  std::vector<float> parameters;  // all, after the last step
  int64_t skipped_steps = 0;      // by loss scaling
  MemoryStats memory;             // after the last step
  MemoryStats host_memory;        // of what is offloaded
};

// A GPT-2 of 3 layers and 32 channels.
models::LanguageModelConfig tiny_model();

// The sequences [first, first + micro_batch) of a step. Of `options` the batch's sizes count.
Batch micro_batch(const TrainOptions& options, int64_t step, int64_t first);

// As `options` say, with the seed of all these runs.
models::StepOptions step_options(const TrainOptions& options, int64_t micro_batches);

// Steps of a model on the ranks of `groups`, as train_lm makes them.
Trained train(const comm::ShardGroups& groups, const TrainOptions& options);
Trained train(comm::ProcessGroup& group, const TrainOptions& options);
// On this device, whose groups these are; between steps nothing waits for it.
Trained train(Context& context, const comm::ShardGroups& groups, const TrainOptions& options);

// Whether losses, norms and parameters have the same bits.
bool same(const Trained& a, const Trained& b);

// A group of this rank alone: what one rank would do with the whole batch.
comm::ProcessGroup& alone();

// The f32 gradient of a parameter, whole. Collective.
std::vector<float> full_gradient(comm::DataParallel& parallel, comm::ProcessGroup& group,
                                 const Parameter& parameter);

}  // namespace shale::test
