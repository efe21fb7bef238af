// Rank 1 fails in the middle of sharded training, while gathers and reductions are pending, or as
// the middle stage of a pipeline.
#include <csignal>

#include "shale/base/error.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/pipeline_training.h"
#include "shale/test/support/ranks/training.h"

namespace shale::test {
namespace {

// On pipeline links, the other ranks wait for rank 1.
void fail_in_pipeline(bool stops, comm::World& world) {
  if (stops) world.watch({.timeout_s = 2});
  const auto fail_here = [&](int64_t step) {
    world.at_step(step + 1);
    if (step != 2 || world.rank() != 1) return;
    if (!stops) throw DataError("tokens.bin: magic is 7, expected 20240520");
    std::raise(SIGSTOP);  // stopped until the launcher ends the job
  };
  const auto all = world.group({.timeout_s = 60});
  train_pipeline(*all, six_layers("llama"), {.ranks = all->size(), .during_step = fail_here},
                 {.steps = 50});
}

}  // namespace

int fail_while_training(std::string_view where, comm::World& world) {
  if (where.starts_with("pipeline")) {
    fail_in_pipeline(where == "pipeline-stopped", world);
    return 0;
  }
  const auto group = world.group();
  ContextOptions context_options = small_context(1);
  // This limit is too small for the first step, which runs out of memory in one of the blocks.
  if (where == "memory") context_options.device_memory = 9 << 20;
  Context context(context_options);
  models::LanguageModelConfig config = tiny_model();
  if (where == "memory") config.width = 128;
  const auto model = models::make_language_model(config);
  comm::DataParallel parallel(*model, model->blocks(), context, *group, {.stage = 3});
  optim::AdamW optimizer(parallel.shards(), {});
  bool armed = false;
  const auto fail_here = [&] {
    if (armed && world.rank() == 1) throw DataError("tokens.bin: magic is 7, expected 20240520");
  };
  if (where == "forward") model->blocks()[1]->add_hook(HookPoint::kBeforeForward, fail_here);
  if (where == "backward") model->blocks()[1]->add_hook(HookPoint::kBeforeBackward, fail_here);
  for (int step = 0; step < 50; ++step) {
    armed = step == 2;
    optimizer.prepare(context, step, 1e-2f);
    const std::vector<int32_t> tokens(kLength, 5);
    const Tensor batch = from_host<int32_t>(context, tokens, {1, kLength});
    backward(model->loss(batch, batch));
    parallel.clip_grad_norm(1);
    if (where == "step") fail_here();
    optimizer.step();
    optimizer.zero_grad();
  }
  return 0;
}

}  // namespace shale::test
