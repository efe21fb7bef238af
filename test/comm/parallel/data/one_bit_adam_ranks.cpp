// Tests 1-bit Adam between replicas in hybrid sharding: before and after its freeze, with
// checkpoints, and with overflowing gradients.
#include <cmath>

#include "shale/comm/parallel/data/replica_check.h"
#include "shale/comm/traffic.h"
#include "shale/kernels/one_bit.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/optim/one_bit_adam.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/one_bit_reference.h"
#include "shale/test/support/ranks/replicas.h"
#include "shale/test/support/ranks/tiny_run.h"

namespace shale::test {
namespace {

using comm::ShardGroups;

struct Mlp : Module {
  static constexpr int64_t kIn = 12, kHidden = 96, kOut = 6, kRows = 16;
  Mlp()
      : fc(this, "fc", kIn, kHidden, Init::normal(0.3f)),
        proj(this, "proj", kHidden, kOut, Init::normal(0.1f)) {}
  Tensor forward(const Tensor& x) {
    return run(x, [&](const Tensor& in) { return proj.forward(gelu(fc.forward(in))); });
  }
  nn::Linear fc, proj;
};

using MakeOptimizer =
    std::function<std::unique_ptr<optim::Optimizer>(std::vector<OptimShard> shards)>;

// Trains a network for 300 steps to match another one of the same shape, with different rows on
// each rank. Returns the final mean squared distance divided by the initial one.
double remaining_loss(const ShardGroups& groups, comm::ProcessGroup& all,
                      const MakeOptimizer& make) {
  constexpr int kSteps = 300;
  Context context(small_context(1));
  Mlp teacher, student;
  materialize(teacher, context, DType::kF32, 1);
  comm::DataParallel parallel(student, {}, context, groups, {.stage = 1, .seed = 2});
  const auto optimizer = make(parallel.shards());
  double first = 0, last = 0;
  for (int step = 0; step < kSteps; ++step) {
    const auto rows = randn<float>(Mlp::kRows * Mlp::kIn, uint64_t(8 * all.rank() + step % 8));
    const Tensor x = from_host<float>(context, rows, {Mlp::kRows, Mlp::kIn});
    optimizer->prepare(context, step, 1e-2f * float(kSteps - step) / float(kSteps));
    parallel.set_replica_gradients(optimizer->needs_replica_sum() ? comm::ReplicaGradients::kSum
                                                                  : comm::ReplicaGradients::kShare);
    const Tensor distance = add(student.forward(x), scale(teacher.forward(x).detach(), -1));
    const Tensor loss = parallel.mean_over_ranks(mean(mul(distance, distance)));
    backward(loss);
    parallel.finish_gradients();
    parallel.clip_grad_norm(0);
    optimizer->step();
    optimizer->zero_grad();
    last = parallel.sum_over_ranks(double(to_host<float>(loss)[0]));
    if (step == 0) first = last;
  }
  return last / first;
}

constexpr int64_t kFreeze = 4;

// Reference for 1-bit Adam, in f64, for one parameter on all replicas: arXiv:2102.02888 with bias
// corrections. The bias has no weight decay.
class Reference {
 public:
  Reference(size_t parameter, size_t replicas, std::vector<double> start)
      : parameter_(parameter),
        replicas_(replicas),
        means_(replicas, start.size()),
        m_(start.size()),
        v_(m_),
        w_(std::move(start)) {}

  void step(int64_t step, double lr) {
    const bool is_frozen = step >= kFreeze;
    if (step == kFreeze) {
      for (double& v : v_) v /= 1 - std::pow(beta2(), double(kFreeze));
    }
    is_frozen ? exchange(step) : add_gradients(step);
    const double correction1 = 1 - std::pow(beta1(), double(step + 1));
    const double correction2 = is_frozen ? 1 : 1 - std::pow(beta2(), double(step + 1));
    const double decay = parameter_ == 0 ? double(options_.weight_decay) : 0;
    for (size_t i = 0; i < w_.size(); ++i) {
      const double root = std::sqrt(v_[i] / correction2) + double(options_.eps);
      w_[i] -= lr * (m_[i] / correction1 / root + decay * w_[i]);
    }
  }
  const std::vector<double>& w() const { return w_; }

 private:
  double beta1() const { return double(options_.beta1); }
  double beta2() const { return double(options_.beta2); }
  void add_gradients(int64_t step) {
    for (size_t i = 0; i < w_.size(); ++i) {
      double g = 0;
      for (size_t r = 0; r < replicas_; ++r) {
        g += wave_gradient(r, step, parameter_, i) / double(replicas_);
      }
      m_[i] = beta1() * m_[i] + (1 - beta1()) * g;
      v_[i] = beta2() * v_[i] + (1 - beta2()) * g * g;
    }
  }
  void exchange(int64_t step) {
    std::vector<std::vector<double>> own(replicas_, std::vector<double>(w_.size()));
    for (size_t r = 0; r < replicas_; ++r) {
      for (size_t i = 0; i < w_.size(); ++i) {
        own[r][i] = beta1() * m_[i] + (1 - beta1()) * wave_gradient(r, step, parameter_, i);
      }
    }
    m_ = means_.mean(own, v_);
  }

  size_t parameter_, replicas_;
  optim::OneBitAdamOptions options_;
  OneBitReference means_;
  std::vector<double> m_, v_, w_;
};

}  // namespace

TEST_CASE("1-bit Adam is the paper's") {
  const auto all = world().group();
  if (all->size() == 1) return;
  const auto make = [](std::vector<OptimShard> shards) {
    return std::make_unique<optim::OneBitAdam>(std::move(shards),
                                               optim::OneBitAdamOptions{.freeze_step = kFreeze});
  };
  GivenGradients run(*all, make, wave_gradient);
  std::vector<Reference> want;
  for (size_t p = 0; p < GivenGradients::kParameters; ++p) {
    want.emplace_back(p, run.replicas(), run.values(p));
  }
  for (int64_t step = 0; step < kFreeze + 12; ++step) {
    const float lr = 0.02f / float(1 + step);
    run.step(step, lr);
    for (size_t p = 0; p < GivenGradients::kParameters; ++p) {
      want[p].step(step, double(lr));
      const std::vector<double> got = run.values(p);
      for (size_t i = 0; i < got.size(); ++i) {
        CAPTURE(step, p, i);
        // In each step, weights of at most 4 and their updates are rounded to f32 twice.
        REQUIRE(std::abs(got[i] - want[p].w()[i]) < 2e-5);
      }
    }
  }
}

TEST_CASE("until the freeze 1-bit Adam has the bits of AdamW") {
  const auto all = world().group();
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    for (const int stage : {1, 2, 3}) {
      CAPTURE(count, stage);
      TinyRun adamw(replicas.groups, *all, {{.stage = stage}});
      TinyRun one_bit(replicas.groups, *all, {{.stage = stage}}, OptimizerKind::kOneBitAdam);
      CHECK(one_bit.train(kFreezeStep) == adamw.train(kFreezeStep));
      CHECK(same_bits(values_of(one_bit), values_of(adamw)));
      one_bit.train(1), adamw.train(1);
      CHECK_FALSE(same_bits(values_of(one_bit), values_of(adamw)));
    }
  }
}

TEST_CASE("1-bit Adam trains as far as AdamW does, within a factor of two") {
  const auto all = world().group();
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    CAPTURE(count);
    const double want = remaining_loss(replicas.groups, *all, [](std::vector<OptimShard> shards) {
      return std::make_unique<optim::AdamW>(std::move(shards),
                                            optim::AdamWOptions{.weight_decay = 0});
    });
    CHECK(want < 0.03);
    const auto frozen_at = [&](int64_t step) {
      return remaining_loss(replicas.groups, *all, [&](std::vector<OptimShard> shards) {
        return std::make_unique<optim::OneBitAdam>(
            std::move(shards), optim::OneBitAdamOptions{.weight_decay = 0, .freeze_step = step});
      });
    };
    // Step 75 is a quarter of the run; in practice v is frozen no later than that. Training ends
    // with a larger loss, because v is frozen and updates use signs.
    CHECK(frozen_at(75) < 2 * want);
  }
}

TEST_CASE("after the freeze replicas stay alike in all stages") {
  const auto all = world().group();
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    for (const int stage : {1, 2, 3}) {
      CAPTURE(count, stage);
      TinyRun run(replicas.groups, *all, {{.stage = stage}}, OptimizerKind::kOneBitAdam);
      run.train(kFreezeStep + 4);
      comm::check_replicas(run.parallel(), *all);
      const std::vector<float> values = values_of(run);
      const std::string_view bytes(reinterpret_cast<const char*>(values.data()),
                                   values.size() * sizeof(float));
      for (const std::string& other : replicas.groups.replicate->all_gather_bytes(bytes)) {
        CHECK(other == bytes);
      }
    }
  }
}

TEST_CASE("after the freeze v stays, and elements that never had a gradient are left alone") {
  const auto all = world().group();
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    TinyRun run(replicas.groups, *all, {{.stage = 1}}, OptimizerKind::kOneBitAdam);
    run.train(kFreezeStep + 1);
    const auto before = local_state(run);
    run.train(3);
    const auto after = local_state(run);
    size_t masked = 0;
    for (const auto& [name, bytes] : before) {
      CAPTURE(name);
      if (name.ends_with("/v")) {
        CHECK(after.at(name) == bytes);
        const std::string parameter = name.substr(0, name.size() - 2);
        const auto v = floats_of(bytes), m = floats_of(after.at(parameter + "/m"));
        const auto owed = floats_of(after.at(parameter + "/worker_error"));
        for (size_t i = 0; i < v.size(); ++i) {
          if (v[i] != 0) continue;
          ++masked;
          REQUIRE((m[i] == 0 && owed[i] == 0));
        }
      } else if (!name.ends_with("owner_error") && !bytes.empty()) {
        CHECK(after.at(name) != bytes);  // the steps change moments, errors and parameters
      }
    }
    double sum = double(masked);
    all->all_reduce_sum(make_view(&sum, {1}));
    CHECK(sum > 0);  // not 0, except in rows that pad the vocabulary
  }
}

TEST_CASE("a compressed step sends less than 1/28 of AdamW's bytes between replicas") {
  const auto all = world().group();
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    comm::ProcessGroup& between = *replicas.groups.replicate;
    TinyRun run(replicas.groups, *all, {{.stage = 1}}, OptimizerKind::kOneBitAdam);
    const auto sent_by = [&](int64_t steps) {
      between.reset_traffic();
      run.train(steps);
      return between.traffic().totals(comm::Traffic::kGradients).sent_bytes / double(steps);
    };
    const double full = sent_by(kFreezeStep), packed = sent_by(3);
    int64_t elements = 0, blocks = 0;
    for (const OptimShard& shard : run.optimizer().shards()) {
      elements += shard.grad.numel();
      blocks += kernels::sign_blocks(shard.grad.numel());
    }
    const double n = count, others = (n - 1) / n;
    CHECK(full == Approx(2 * others * 4 * double(elements)));
    CHECK(packed == Approx(2 * others * std::ceil(double(blocks) / n) * n * 132));
    CHECK(packed * 28 <= full);
  }
}

TEST_CASE("1-bit Adam resumes with the same bits, before and after its freeze", "[checkpoint]") {
  check_resumes({{.stage = 2}}, OptimizerKind::kOneBitAdam, {kFreezeStep, kFreezeStep + 2}, 3);
}

TEST_CASE("other numbers of replicas owe the mean of what those before owed", "[checkpoint]") {
  if (world().size() != 4) return;
  const auto all = world().group();
  for (const auto& [from, to] : {std::pair(4, 2), std::pair(2, 4)}) {
    CAPTURE(from, to);
    const SharedDir dir(*all);
    const Replicas before(*all, from), after(*all, to);
    TinyRun run(before.groups, *all, {{.stage = 1}}, OptimizerKind::kOneBitAdam);
    run.train(kFreezeStep + 3);
    run.save(dir / "checkpoints");
    TinyRun loaded(after.groups, *all, {{.stage = 1}}, OptimizerKind::kOneBitAdam);
    loaded.poison();
    loaded.load(dir / "checkpoints" + cat("/step_0000000", kFreezeStep + 3));
    // Sums a state's elements over all ranks. For worker_error this is the mean over replicas, for
    // owner_error the sum of all elements.
    const auto sums = [&](TinyRun& of, int replicas, const char* what) {
      std::map<std::string, double> sum;
      for (const auto& [name, bytes] : local_state(of)) {
        if (!name.ends_with(what)) continue;
        double local = 0;
        for (const float x : floats_of(bytes)) local += double(x);
        all->all_reduce_sum(make_view(&local, {1}));
        sum[name] = local / (name.ends_with("worker_error") ? replicas : 1);
      }
      return sum;
    };
    for (const char* const what : {"/worker_error", "/owner_error"}) {
      const auto want = sums(run, from, what), got = sums(loaded, to, what);
      REQUIRE(want.size() == got.size());
      CHECK_FALSE(want.empty());
      for (const auto& [name, sum] : want) {
        CAPTURE(name);
        CHECK(got.at(name) == Approx(sum).margin(1e-5));
      }
    }
    // After loading, all replicas have the same error feedback.
    for (const auto& [name, bytes] : local_state(loaded)) {
      if (!name.ends_with("worker_error")) continue;
      for (const std::string& other : after.groups.replicate->all_gather_bytes(bytes)) {
        CHECK(other == bytes);
      }
    }
    loaded.train(2);
    comm::check_replicas(loaded.parallel(), *all);
  }
}

TEST_CASE("an overflow on one replica moves nothing on any of them") {
  const auto all = world().group();
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    CAPTURE(count);
    TinyRun run(replicas.groups, *all, {{.stage = 1}, {}, /*loss_scale=*/1024},
                OptimizerKind::kOneBitAdam);
    run.train(kFreezeStep + 1);
    const auto before = local_state(run);
    // Makes only the last rank's gradient non-finite.
    run.train(1, all->rank() + 1 == all->size() ? INFINITY : 1);
    CHECK(run.skipped_steps() == 1);
    CHECK(local_state(run) == before);
    run.train(1);
    CHECK(run.skipped_steps() == 1);
    CHECK(local_state(run) != before);
    comm::check_replicas(run.parallel(), *all);
  }
}

TEST_CASE("1-bit Adam needs replicas, and steps before its freeze") {
  const auto all = world().group();
  const std::string message = message_of<ConfigError>(
      [&] { TinyRun({.shard = all.get()}, *all, {{.stage = 1}}, OptimizerKind::kOneBitAdam); });
  CAPTURE(message);
  CHECK(contains(message, "has no replica"));
}

}  // namespace shale::test
