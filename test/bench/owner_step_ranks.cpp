#include "shale/bench/support/owner_step.h"

#include "shale/comm/sums/ordered_sum.h"
#include "shale/kernels/simt/engine/options.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/data/device_batch.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/training.h"

namespace shale::test {
namespace {

// Trains with DDP, then with an owner, on the device of `context`, and compares them.
void check_owner(Context& context, int64_t rows_per_rank, int64_t steps) {
  const auto group = world().group({.timeout_s = 60}, context.backend());
  const auto self = group->split(group->rank(), 0, "alone");
  const bool owns = group->rank() == 0;
  TrainOptions options{.global_batch = rows_per_rank * group->size(),
                       .micro_batch = rows_per_rank,
                       .steps = steps,
                       .clip = 0,
                       .keep_gradients = false};
  const Trained ddp = train(context, {.shard = group.get()}, options);

  const auto model = models::make_language_model(tiny_model());
  const models::MicroBatches::Loss loss = step_model(*model).loss;
  bench::OwnerStep owner(*model, model->blocks(), context, *group, *self, /*seed=*/3, make_adamw());
  options.micro_batch = options.global_batch;
  const auto tokens = static_cast<double>(options.global_batch * options.length);
  for (int64_t step = 0; step < options.steps; ++step) {
    const Batch whole = micro_batch(options, step, 0);
    const float mine =
        owner.run(owns ? whole : bench::without_rows(whole), step, 1e-2f, tokens, loss);
    const auto sum = comm::ordered_sum(*group, std::vector<double>{mine}) / tokens;
    INFO("step " << step);
    CHECK(sum == Approx(ddp.losses[static_cast<size_t>(step)]).epsilon(1e-5));
  }
  // The last update lowers the loss by far more than the tolerance above, so a missing update would
  // be detected.
  if (owns) {
    const Batch last = micro_batch(options, options.steps - 1, 0);
    const Inference inference(context);
    const double after = to_host<float>(loss(DeviceBatch(context, last))).front() / tokens;
    CHECK(after < ddp.losses.back() - 0.01);
  }
  const int64_t states =
      context.allocator().stats().current[static_cast<size_t>(MemoryTag::kOptimizer)];
  CHECK((states > 0) == owns);
  // Star topology: the owner sends rows and parameters down, and receives gradients.
  int64_t parameters = 0;
  for (const Parameter* parameter : model->parameters()) parameters += parameter->numel();
  CHECK(owner.bytes().up >= 4. * static_cast<double>(parameters));
  CHECK(owner.bytes().down - owner.bytes().up == 2 * 4 * rows_per_rank * kLength);
}

}  // namespace

TEST_CASE("an owner's steps have the losses of DDP, and it alone has the optimizer's states") {
  Context context(small_context(1));
  check_owner(context, /*rows_per_rank=*/4, /*steps=*/6);
}

TEST_CASE("an owner's steps have the losses of DDP on emulated GPUs whose streams run late",
          "[staged]") {
  if (world().size() > 2) return;  // More ranks take longer and find no further errors.
  Context context(small_context(1),
                  make_emu_backend({.type = DeviceType::kEmu, .arch = 90},
                                   {.order = emulator::Order::kLifo, .track = false}));
  check_owner(context, /*rows_per_rank=*/1, /*steps=*/2);
}

}  // namespace shale::test
