#include "shale/test/support/ranks/tiny_run.h"

#include <utility>

#include "shale/comm/ordered_sum.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/optim/adafactor.h"
#include "shale/test/support/op_check.h"

namespace shale::test {

std::string bytes_of(const comm::StatePart& part) {
  std::string bytes(static_cast<size_t>(part.values.bytes()), '\0');
  part.values.context().copy(bytes.data(), part.values.data(), part.values.bytes());
  part.values.context().synchronize();
  return bytes;
}

TinyRun::TinyRun(const comm::ShardGroups& groups, comm::ProcessGroup& all, const RunLayout& layout,
                 OptimizerKind kind)
    : groups_(groups),
      all_(all),
      context_(small_context(1)),
      model_(models::make_language_model(tiny_model())),
      tier_(context_, {}) {
  comm::DataParallelOptions options = layout.parallel;
  options.seed = 3;
  if (options.reproducible) batch_.global_batch = 8;
  if (layout.offload.optimizer) {
    options.offload = {.tier = &tier_,
                       .gradients = layout.offload.gradients,
                       .parameters = layout.offload.parameters};
  }
  parallel_.emplace(*model_, model_->blocks(), context_, groups, options);
  std::vector<OptimShard> shards = parallel_->shards();
  if (layout.offload.optimizer) {
    offload_.emplace(tier_, shards, layout.offload.background);
    shards = offload_->shards();
  }
  make_optimizer(kind, std::move(shards), options.stage);
}

std::vector<float> TinyRun::train(int64_t count) {
  std::vector<float> losses;
  for (const int64_t end = step_ + count; step_ < end; ++step_) {
    optimizer_->prepare(context_, step_, 1e-2f);
    std::vector<double> sums;
    const int64_t micros = batch_.global_batch / all_.size();
    for (int64_t j = 0; j < micros; ++j) {
      const int64_t first = j * all_.size() + all_.rank();
      const Tensor loss = micro_batch_loss(*model_, context_, batch_, step_, first);
      parallel_->begin_backward(/*last=*/j + 1 == micros);
      backward(loss);
      sums.push_back(to_host<float>(loss)[0]);
    }
    parallel_->finish_gradients();
    parallel_->clip_grad_norm(1);
    if (offload_) {
      offload_->step(*optimizer_);
    } else {
      optimizer_->step();
    }
    optimizer_->zero_grad();
    losses.push_back(float(comm::ordered_sum(all_, sums)));
  }
  return losses;
}

std::vector<comm::StatePart> TinyRun::parts() {
  if (offload_) offload_->finish();
  return comm::training_state(*parallel_, *optimizer_);
}

void TinyRun::save(const std::string& folder) {
  comm::CheckpointSaver saver(all_, context_, folder, {});
  start_save(saver);
  REQUIRE(saver.finish() == step_);
}

void TinyRun::load(const std::string& checkpoint) {
  CheckpointReader reader(checkpoint);
  comm::load_training_state(reader, *parallel_, *optimizer_);
  step_ = reader.manifest().step;
}

std::map<std::string, std::string> TinyRun::state() {
  std::map<std::string, std::string> whole;
  for (const comm::StatePart& part : parts()) {
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
  for (const comm::StatePart& part : parts()) {
    const std::string junk(static_cast<size_t>(part.values.bytes()), '\x5a');
    part.values.context().copy(part.values.data(), junk.data(), part.values.bytes());
  }
}

void TinyRun::make_optimizer(OptimizerKind kind, std::vector<OptimShard> shards, int stage) {
  const auto adamw = [&](optim::Moments moments) {
    optimizer_ =
        std::make_unique<optim::AdamW>(std::move(shards), optim::AdamWOptions{.moments = moments});
  };
  optim::Adafactor::SumOverRanks sum;
  if (stage > 0) {
    sum = [this](const Tensor& x) {
      parallel_->shared().wait(groups_.shard->all_reduce_sum(x, {.tag = "adafactor"}));
    };
  }
  switch (kind) {
    case OptimizerKind::kAdamW: return adamw(optim::Moments::kF32);
    case OptimizerKind::kAdamWBF16: return adamw(optim::Moments::kBF16);
    case OptimizerKind::kAdamW8bit: return adamw(optim::Moments::kInt8);
    case OptimizerKind::kLion:
      optimizer_ = std::make_unique<optim::Lion>(std::move(shards), optim::LionOptions{});
      return;
    case OptimizerKind::kAdafactor:
      optimizer_ = std::make_unique<optim::Adafactor>(std::move(shards), optim::AdafactorOptions{},
                                                      std::move(sum));
      return;
    case OptimizerKind::kSgd:
      optimizer_ = std::make_unique<optim::Sgd>(std::move(shards), optim::SgdOptions{});
      return;
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

}  // namespace shale::test
