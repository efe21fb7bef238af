#include "shale/test/support/ranks/tiny_run.h"

#include <bit>
#include <utility>

#include "shale/comm/sums/ordered_sum.h"
#include "shale/runtime/nn/fp8.h"
#include "shale/runtime/optim/adafactor.h"
#include "shale/runtime/optim/lamb.h"
#include "shale/runtime/optim/muon.h"
#include "shale/runtime/optim/one_bit_adam.h"
#include "shale/test/support/op_check.h"

namespace shale::test {

std::string bytes_of(const StatePart& part) {
  std::string bytes(static_cast<size_t>(part.values.bytes()), '\0');
  part.values.context().copy(bytes.data(), part.values.data(), part.values.bytes());
  part.values.context().synchronize();
  return bytes;
}

namespace {

models::MakeOptimizer make_optimizer(OptimizerKind kind) {
  return [kind](std::vector<OptimShard> shards) -> std::unique_ptr<optim::Optimizer> {
    const auto adamw = [&](optim::Moments moments) {
      return std::make_unique<optim::AdamW>(std::move(shards),
                                            optim::AdamWOptions{.moments = moments});
    };
    switch (kind) {
      case OptimizerKind::kAdamW: break;
      case OptimizerKind::kAdamWBF16: return adamw(optim::Moments::kBF16);
      case OptimizerKind::kAdamW8bit: return adamw(optim::Moments::kInt8);
      case OptimizerKind::kLion:
        return std::make_unique<optim::Lion>(std::move(shards), optim::LionOptions{});
      case OptimizerKind::kAdafactor:
        return std::make_unique<optim::Adafactor>(std::move(shards), optim::AdafactorOptions{});
      case OptimizerKind::kMuon:
        return std::make_unique<optim::Muon>(std::move(shards), optim::MuonOptions{});
      case OptimizerKind::kOneBitAdam:
        return std::make_unique<optim::OneBitAdam>(
            std::move(shards), optim::OneBitAdamOptions{.freeze_step = kFreezeStep});
      case OptimizerKind::kLamb:
        return std::make_unique<optim::Lamb>(std::move(shards), optim::LambOptions{});
      case OptimizerKind::kSgd:
        return std::make_unique<optim::Sgd>(std::move(shards), optim::SgdOptions{});
    }
    return adamw(optim::Moments::kF32);
  };
}

TrainOptions batch_of(const RunLayout& layout) {
  return {.global_batch = layout.parallel.reproducible ? 8 : 12, .micro_batch = 1};
}

models::StepModel model_of(models::LanguageModel& model, const RunLayout& layout) {
  if (layout.fp8) nn::compute_in_fp8(model.blocks(), 0, *layout.fp8);
  return step_model(model);
}

models::StepOptions step_options(const RunLayout& layout, int64_t micro_batches) {
  models::StepOptions options{.parallel = layout.parallel,
                              .offload = layout.offload,
                              .micro_batches = micro_batches,
                              .clip = layout.clip,
                              .skip_outliers = layout.skip_outliers,
                              .local_steps = layout.local_steps};
  if (layout.loss_scale > 0) options.loss_scale = {.initial_scale = layout.loss_scale};
  options.parallel.seed = 3;
  return options;
}

}  // namespace

TinyRun::TinyRun(const comm::ShardGroups& groups, comm::ProcessGroup& all, const RunLayout& layout,
                 OptimizerKind kind)
    : batch_(batch_of(layout)),
      groups_(groups),
      all_(all),
      context_(small_context(1)),
      model_(models::make_language_model(tiny_model())),
      step_(context_, groups, model_of(*model_, layout),
            step_options(layout, batch_.global_batch / all.size()), make_optimizer(kind),
            &losses_) {
  if (layout.ema > 0) step_.keep_average(layout.ema);
}

std::vector<float> TinyRun::train(int64_t count, double gradient_factor) {
  std::vector<float> losses;
  double factor = gradient_factor;
  for (const int64_t end = steps_ + count; steps_ < end; ++steps_) {
    Batch batch;
    int64_t first = all_.rank();
    step_.run({.step = steps_,
               .lr = 1e-2f,
               .weight = double(batch_.global_batch * kLength) / std::exchange(factor, 1),
               .first_position = steps_ * batch_.global_batch,
               .next_batch = [&]() -> const Batch& {
                 batch = micro_batch(batch_, steps_, first);
                 first += all_.size();
                 return batch;
               }});
    step_.finish();
    losses.push_back(float(comm::ordered_sum(all_, losses_.last)));
  }
  return losses;
}

std::vector<StatePart> TinyRun::parts() {
  step_.finish_update();
  return comm::training_state(step_.parallel(), step_.optimizer());
}

void TinyRun::save(const std::string& folder) {
  comm::CheckpointSaver saver(all_, context_, folder, {});
  start_save(saver);
  REQUIRE(saver.finish() == steps_);
}

void TinyRun::load(const std::string& checkpoint) {
  CheckpointReader reader(checkpoint);
  comm::load_training_state(reader, step_.parallel(), step_.optimizer());
  steps_ = reader.manifest().step;
}

std::map<std::string, std::string> TinyRun::state() {
  std::map<std::string, std::string> whole;
  for (const StatePart& part : parts()) {
    const int64_t size = dtype_size(part.values.dtype());
    const std::string mine = bytes_of(part);
    std::string& bytes = whole[part.name];
    bytes.assign(static_cast<size_t>(part.shape.numel() * size), '\xee');
    const std::string first = std::to_string(part.first * size);
    const std::vector<std::string> places = groups_.shard->all_gather_bytes(first);
    const std::vector<std::string> pieces = groups_.shard->all_gather_bytes(mine);
    for (size_t rank = 0; rank < pieces.size(); ++rank) {
      bytes.replace(std::stoul(places[rank]), pieces[rank].size(), pieces[rank]);
    }
  }
  return whole;
}

void TinyRun::poison() {
  for (const StatePart& part : parts()) {
    const std::string junk(static_cast<size_t>(part.values.bytes()), '\x5a');
    part.values.context().copy(part.values.data(), junk.data(), part.values.bytes());
  }
}

SharedDir::SharedDir(comm::ProcessGroup& all) : all_(all) {
  if (all.rank() == 0) dir_.emplace();
  path_ = all.all_gather_bytes(dir_ ? dir_->path().string() : "", "folder").front();
}

SharedDir::~SharedDir() {
  if (std::uncaught_exceptions() == 0) all_.barrier("folder is done with");
}

std::vector<std::unique_ptr<comm::ProcessGroup>> groups_of_first_ranks(comm::ProcessGroup& all) {
  std::vector<std::unique_ptr<comm::ProcessGroup>> groups(1);
  for (int n = 1; n <= all.size(); ++n) {
    const bool inside = all.rank() < n;
    auto group = all.split(inside ? 0 : 1 + all.rank(), all.rank(), "first ranks");
    groups.push_back(inside ? std::move(group) : nullptr);
  }
  return groups;
}

void check_resumes(OptimizerKind kind, const std::vector<RunLayout>& layouts) {
  const auto all = world().group();
  if (!std::has_single_bit(unsigned(all->size()))) return;
  const SharedDir dir(*all);
  const auto groups = groups_of_first_ranks(*all);
  TinyRun whole({.shard = all.get()}, *all, {{.stage = 2, .reproducible = true}}, kind);
  whole.train(3);
  whole.save(dir.path());
  const std::vector<float> want = whole.train(3);
  const auto resumed = [&](comm::ProcessGroup& group, RunLayout layout) {
    layout.parallel.reproducible = true;
    TinyRun run({.shard = &group}, group, layout, kind);
    run.load(dir / "step_00000003");
    CHECK(run.train(3) == want);
  };
  for (const RunLayout& layout : layouts) resumed(*all, layout);
  if (all->rank() == 0) resumed(*groups[1], {{.stage = 1}});
}

}  // namespace shale::test
