#include "shale/test/support/ranks/training.h"

#include <cstring>
#include <optional>

#include "shale/comm/ordered_sum.h"
#include "shale/runtime/amp/grad_scaler.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/offload/activations.h"
#include "shale/runtime/offload/optimizer_offload.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::test {

Tensor micro_batch_loss(models::LanguageModel& model, Context& context, const TrainOptions& options,
                        int64_t step, int64_t first) {
  context.update_step([&](StepState& state) {
    state.grad_scale = 1.0f / float(options.global_batch * kLength);
    state.sample = uint64_t(first);
  });
  const std::vector<int32_t> all =
      rand_int<int32_t>(options.global_batch * (kLength + 1), uint64_t(step), 0, 60);
  std::vector<int32_t> ids, targets;
  for (int64_t b = first; b < first + options.micro_batch; ++b) {
    const auto row = all.begin() + b * (kLength + 1);
    ids.insert(ids.end(), row, row + kLength);
    targets.insert(targets.end(), row + 1, row + kLength + 1);
  }
  const Shape shape = {options.micro_batch, kLength};
  return model.loss(from_host<int32_t>(context, ids, shape),
                    from_host<int32_t>(context, targets, shape));
}

models::LanguageModelConfig tiny_model() {
  models::LanguageModelConfig config;
  config.layers = 3;
  config.width = 32;
  config.heads = 2;
  config.vocab = 61;
  config.padded_vocab = 64;
  config.context = kLength;
  return config;
}

std::vector<float> full_gradient(const comm::DataParallel& parallel, comm::ProcessGroup& group,
                                 const Parameter& parameter) {
  const OptimSpan part = parallel.local_part(parameter);
  std::vector<float> mine;
  for (const OptimShard& shard : parallel.shards()) {
    for (const OptimSpan& span : shard.spans) {
      if (span.parameter != &parameter || span.count == 0) continue;
      const Tensor grad = vector_slice(shard.grad, span.offset, span.count);
      if (grad.dtype() == DType::kF32) {
        mine = to_host<float>(grad);
      } else {
        for (const bf16 x : to_host<bf16>(grad)) mine.push_back(to_f32(x));
      }
    }
  }
  if (part.count == parameter.numel() && group.size() == 1) return mine;
  std::vector<float> whole;
  const std::string_view bytes(reinterpret_cast<const char*>(mine.data()), mine.size() * 4);
  for (const std::string& piece : group.all_gather_bytes(bytes, "test gradient")) {
    if (int64_t(whole.size()) == parameter.numel()) break;  // all ranks have all of it
    const size_t at = whole.size();
    whole.resize(at + piece.size() / 4);
    std::memcpy(whole.data() + at, piece.data(), piece.size());
  }
  return whole;
}

namespace {

// The ranks of a run: all of them, in the order of micro-batches.
struct Ranks {
  explicit Ranks(const comm::ShardGroups& groups)
      : count(groups.shard->size() * (groups.replicate != nullptr ? groups.replicate->size() : 1)),
        mine(groups.shard->rank() +
             (groups.replicate != nullptr ? groups.replicate->rank() * groups.shard->size() : 0)),
        everyone(groups.replicate != nullptr ? world().group() : nullptr),
        all(everyone != nullptr ? *everyone : groups.shard->host()) {}
  int count, mine;
  std::unique_ptr<comm::ProcessGroup> everyone;
  comm::ProcessGroup& all;
};

// What a step leaves on the device.
struct StepResult {
  std::vector<Tensor> losses;
  Tensor norm;
};

comm::DataParallelOptions parallel_options(const TrainOptions& options, offload::HostTier& tier) {
  comm::DataParallelOptions parallel = options.parallel;
  parallel.seed = 3;
  if (options.offload.optimizer) {
    parallel.offload = {.tier = &tier,
                        .gradients = options.offload.gradients,
                        .parameters = options.offload.parameters};
    parallel.offload_share = options.offload.share;
  }
  return parallel;
}

std::vector<float> all_gradients(const Module& model, const comm::DataParallel& parallel,
                                 comm::ProcessGroup& group) {
  std::vector<float> all;
  for (const Parameter* parameter : model.parameters()) {
    const std::vector<float> gradient = full_gradient(parallel, group, *parameter);
    all.insert(all.end(), gradient.begin(), gradient.end());
  }
  return all;
}

}  // namespace

Trained train(Context& context, const comm::ShardGroups& groups, const TrainOptions& options) {
  const Ranks ranks(groups);
  models::LanguageModelConfig config = tiny_model();
  config.dropout = options.dropout;
  config.recompute = options.recompute;
  const auto model = models::make_language_model(config);
  if (options.f32_norms) {
    for (Module* block : model->blocks()) {
      block->children().front()->set_precision(
          {.compute = DType::kF32, .output = options.parallel.compute});
    }
  }
  offload::HostTier tier(context, {});
  offload::ActivationOffload activations(tier, {.min_bytes = 0});
  comm::DataParallel parallel(*model, model->blocks(), context, groups,
                              parallel_options(options, tier));
  offload::OptimizerOffload offload(tier, parallel.shards(), options.offload.background);
  optim::AdamW optimizer(offload.shards(), {});
  std::optional<amp::GradScaler> scaler;
  if (options.loss_scale > 0) {
    scaler.emplace(context, amp::GradScalerOptions{.initial_scale = options.loss_scale});
  }
  const int64_t micros = options.global_batch / (options.micro_batch * ranks.count);
  Trained result;
  std::vector<StepResult> steps;
  for (int64_t step = 0; step < options.steps; ++step) {
    optimizer.prepare(context, step, 1e-2f);
    StepResult& now = steps.emplace_back();
    for (int64_t j = 0; j < micros; ++j) {
      const int64_t first = (j * ranks.count + ranks.mine) * options.micro_batch;
      std::optional<SavedTensorHooksScope> scope;
      if (options.offload.activations) scope.emplace(context, activations.hooks());
      const Tensor loss = micro_batch_loss(*model, context, options, step, first);
      scope.reset();
      const bool last = j + 1 == micros;
      if (last && options.offload.early) offload.step_during_backward(optimizer);
      parallel.begin_backward(last);
      backward(loss);
      now.losses.push_back(loss.detach());
    }
    parallel.finish_gradients();
    if (step == 0 && options.keep_gradients) {
      result.gradients = all_gradients(*model, parallel, groups.shard->host());
    }
    parallel.clip_grad_norm(options.clip);
    now.norm = empty(context, {1}, DType::kF32);
    context.copy(now.norm.data(), &context.exec().step->grad_norm, sizeof(float));
    if (scaler) optimizer.set_updates(context, step - scaler->state().skipped_steps);
    if (options.offload.any()) {
      offload.step(optimizer);
    } else {
      optimizer.step();
    }
    optimizer.zero_grad();
    if (scaler) scaler->update();
  }
  for (const StepResult& step : steps) {
    std::vector<double> sums;
    for (const Tensor& loss : step.losses) sums.push_back(to_host<float>(loss)[0]);
    result.losses.push_back(
        float(comm::ordered_sum(ranks.all, sums) / double(options.global_batch * kLength)));
    result.norms.push_back(to_host<float>(step.norm)[0]);
  }
  parallel.full_state([&](const Parameter&, const View& values) {
    const auto* begin = values.as<float>();
    result.parameters.insert(result.parameters.end(), begin, begin + values.numel());
  });
  if (scaler) result.skipped_steps = int64_t(scaler->state().skipped_steps);
  result.memory = context.allocator().stats();
  result.host_memory = tier.context().allocator().stats();
  return result;
}

Trained train(const comm::ShardGroups& groups, const TrainOptions& options) {
  Context context(small_context(1));
  return train(context, groups, options);
}

Trained train(comm::ProcessGroup& group, const TrainOptions& options) {
  return train(comm::ShardGroups{.shard = &group}, options);
}

bool same(const Trained& a, const Trained& b) {
  return same_bits(a.losses, b.losses) && same_bits(a.norms, b.norms) &&
         same_bits(a.parameters, b.parameters);
}

comm::ProcessGroup& alone() {
  static const auto everyone = world().group();
  static const auto mine = everyone->split(everyone->rank(), 0, "alone");
  return *mine;
}

}  // namespace shale::test
