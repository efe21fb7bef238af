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

constexpr int64_t kLength = 10;  // tokens per sequence

struct TrainOptions {
  int64_t global_batch = 12;
  int64_t micro_batch = 1;
  int64_t steps = 4;
  float dropout = 0;
  float clip = 1;
  float loss_scale = 0;        // initial loss scale; 0: none
  // True: returns the gradients of the first step, which waits for the device.
  bool keep_gradients = true;
  Recompute recompute = Recompute::kNone;
  bool f32_norms = false;            // true: the first norm of each block has f32 parameters
  std::optional<Operands> fp8 = {};  // operand format of the GEMMs in all blocks
  comm::DataParallelOptions parallel = {};
  models::StepOffload offload = {};
  std::optional<comm::LocalStepsOptions> local_steps = {};
  models::MakeOptimizer optimizer = make_adamw();
  int64_t length = kLength;
  std::optional<models::LanguageModelConfig> model = {};  // nullopt: tiny_model()
  // For train_pipeline(): numbers of mesh ranks. 0: equal to the numbers of processes in
  // PipelineRun.
  int tensor_shards = 0, context_shards = 0;
  int tensor_pieces = 0;  // sets comm::ParallelOptions::row_pieces
  // context_group() gives the sizes of groups.
  comm::ContextKind context_kind = comm::ContextKind::kGather;
};

struct Trained {
  std::vector<float> losses;
  std::vector<float> norms;
  std::vector<float> gradients;   // all gradients after the first step's reduction
  std::vector<float> parameters;  // all parameters after the last step
  int64_t skipped_steps = 0;      // steps skipped by loss scaling
  MemoryStats memory;             // device memory after the last step
  MemoryStats host_memory;        // host memory of offloaded state
};

// A GPT-2 of 3 layers and 32 channels.
models::LanguageModelConfig tiny_model();

// Returns sequences [first, first + micro_batch) of a step. Uses only the batch sizes in `options`.
Batch micro_batch(const TrainOptions& options, int64_t step, int64_t first);

// Returns the step options for `options`, with the seed that all these runs share.
models::StepOptions step_options(const TrainOptions& options, int64_t micro_batches);

// Trains a model on the ranks of `groups`, with the same calls as train_lm.
Trained train(const comm::ShardGroups& groups, const TrainOptions& options);
Trained train(comm::ProcessGroup& group, const TrainOptions& options);
// Trains on the device of `context`, without waiting between steps. `groups` are groups in that
// device's memory.
Trained train(Context& context, const comm::ShardGroups& groups, const TrainOptions& options);

// True if losses, norms and parameters have the same bits.
bool same(const Trained& a, const Trained& b);

// A group of this rank alone, for a reference run with the whole batch on one rank.
comm::ProcessGroup& alone();

// Returns the whole f32 gradient of a parameter. Collective.
std::vector<float> full_gradient(comm::DataParallel& parallel, comm::ProcessGroup& group,
                                 const Parameter& parameter);

}  // namespace shale::test
