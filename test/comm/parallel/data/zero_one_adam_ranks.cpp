// 0/1 Adam over the replicas of hybrid sharding: against the paper's formulas, on checkpoints, and
// when a gradient overflows.
#include <cmath>

#include "shale/base/rng.h"
#include "shale/comm/parallel/data/replica_check.h"
#include "shale/comm/traffic.h"
#include "shale/kernels/one_bit.h"
#include "shale/runtime/optim/zero_one_adam.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/one_bit_reference.h"
#include "shale/test/support/ranks/replicas.h"
#include "shale/test/support/ranks/tiny_run.h"

namespace shale::test {
namespace {

using optim::ZeroOneAdamOptions;

// Steps of kZeroOne with each kind of exchange, and two local steps that nobody has exchanged.
constexpr int64_t kApart = 12;

// Algorithm 1 of arXiv:2202.06009 in f64, of one parameter on all replicas, with bias corrections
// and with a decay that acts on the anchor.
class Reference {
 public:
  Reference(size_t parameter, size_t replicas, std::vector<double> start,
            const ZeroOneAdamOptions& options)
      : parameter_(parameter),
        options_(options),
        decay_(parameter == 0 ? double(options.weight_decay) : 0),
        means_(replicas, start.size()),
        v_(start.size()),
        w_(replicas, start),
        m_(replicas, v_),
        sum_(replicas, v_),
        anchor_(std::move(start)) {}

  void step(int64_t step, double lr) {
    ++updates_;
    if (step < options_.freeze_step) return shared_step(step, lr);
    if (step == options_.freeze_step) {
      means_.forget();
      anchor_ = w_[0];
    }
    local_step(step, lr);
    const int64_t local = step - options_.freeze_step;
    if (optim::joins_replicas(local, options_.local_doubling, options_.local_most)) join();
  }
  const std::vector<double>& w(size_t replica) const { return w_[replica]; }

 private:
  double correction() const { return 1 - std::pow(double(options_.beta1), double(updates_)); }
  // u over the root of v.
  double scaled(double u, size_t i) const {
    return v_[i] == 0 ? 0 : u / (std::sqrt(v_[i] / weight_) + double(options_.eps));
  }
  void shared_step(int64_t step, double lr) {
    const size_t n = v_.size(), replicas = w_.size();
    std::vector<std::vector<double>> own(replicas, std::vector<double>(n));
    std::vector<double> mean(n);
    for (size_t r = 0; r < replicas; ++r) {
      for (size_t i = 0; i < n; ++i) {
        own[r][i] = wave_gradient(r, step, parameter_, i);
        mean[i] += own[r][i] / double(replicas);
      }
    }
    const double beta1 = options_.beta1, beta2 = options_.beta2;
    if (optim::updates_variance(step, options_.variance_doubling)) {
      for (size_t i = 0; i < n; ++i) v_[i] = beta2 * v_[i] + (1 - beta2) * mean[i] * mean[i];
      weight_ = beta2 * weight_ + 1 - beta2;
    } else {
      mean = means_.mean(own, v_);
    }
    for (size_t r = 0; r < replicas; ++r) {
      for (size_t i = 0; i < n; ++i) {
        double& m = m_[r][i];
        m = beta1 * m + (1 - beta1) * mean[i];
        w_[r][i] -= lr * (scaled(m / correction(), i) + decay_ * w_[r][i]);
      }
    }
  }
  void local_step(int64_t step, double lr) {
    rates_ += lr;
    for (double& a : anchor_) a -= lr * decay_ * a;
    for (size_t r = 0; r < w_.size(); ++r) {
      for (size_t i = 0; i < v_.size(); ++i) {
        double& m = m_[r][i];
        const double g = wave_gradient(r, step, parameter_, i), beta1 = options_.beta1;
        m = v_[i] == 0 ? 0 : beta1 * m + (1 - beta1) * g;
        sum_[r][i] += lr * m / correction();
        w_[r][i] = anchor_[i] - scaled(sum_[r][i], i);
      }
    }
  }
  void join() {
    const std::vector<double> mean = means_.mean(sum_, v_);
    for (size_t i = 0; i < v_.size(); ++i) anchor_[i] -= scaled(mean[i], i);
    for (size_t r = 0; r < w_.size(); ++r) {
      w_[r] = anchor_;
      for (size_t i = 0; i < v_.size(); ++i) m_[r][i] = correction() * mean[i] / rates_;
      sum_[r].assign(v_.size(), 0);
    }
    rates_ = 0;
  }

  size_t parameter_;
  ZeroOneAdamOptions options_;
  double decay_;
  OneBitReference means_;
  std::vector<double> v_;
  std::vector<std::vector<double>> w_, m_, sum_;  // of each replica
  std::vector<double> anchor_;
  double weight_ = 0, rates_ = 0;
  int64_t updates_ = 0;
};

std::unique_ptr<optim::Optimizer> make_zero_one(std::vector<OptimShard> shards) {
  return std::make_unique<optim::ZeroOneAdam>(std::move(shards), kZeroOne);
}

RunLayout layout_of(int stage) {
  RunLayout layout;
  layout.parallel.stage = stage;
  return layout;
}

// What the run has at the steps at which its replicas are alike, or at others their anchors.
std::vector<float> anchors_of(TinyRun& run) {
  std::vector<float> values;
  run.step().with_anchors([&] { values = values_of(run); });
  return values;
}

bool same_on_all(comm::ProcessGroup& group, const std::vector<float>& values) {
  const std::string_view bytes(reinterpret_cast<const char*>(values.data()),
                               values.size() * sizeof(float));
  bool same = true;
  for (const std::string& other : group.all_gather_bytes(bytes)) same = same && other == bytes;
  return same;
}

}  // namespace

TEST_CASE("intervals of 0/1 Adam double") {
  std::vector<int64_t> updates, joins;
  for (int64_t step = 0; step < 24; ++step) {
    if (optim::updates_variance(step, 3)) updates.push_back(step);
    if (optim::joins_replicas(step, 6, 4)) joins.push_back(step);
  }
  CHECK(updates == std::vector<int64_t>{0, 1, 2, 3, 5, 7, 9, 13, 17, 21});
  CHECK(joins == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 7, 9, 11, 15, 17, 21, 23});
}

TEST_CASE("0/1 Adam is the paper's, on every replica") {
  const auto all = world().group();
  if (all->size() == 1) return;
  GivenGradients run(*all, make_zero_one, wave_gradient);
  std::vector<Reference> want;
  for (size_t p = 0; p < GivenGradients::kParameters; ++p) {
    want.emplace_back(p, run.replicas(), run.values(p), kZeroOne);
  }
  const auto rank = static_cast<size_t>(all->rank());
  for (int64_t step = 0; step < kApart + 6; ++step) {
    const float lr = 0.02f / float(1 + step);
    run.step(step, lr);
    for (size_t p = 0; p < GivenGradients::kParameters; ++p) {
      want[p].step(step, double(lr));
      const std::vector<double> got = run.values(p);
      for (size_t i = 0; i < got.size(); ++i) {
        CAPTURE(step, p, i);
        // Values below 4 that are rounded twice a step, and steps of at most lr / 0.1.
        REQUIRE(std::abs(got[i] - want[p].w(rank)[i]) < 2e-5);
      }
    }
  }
}

TEST_CASE("0/1 Adam sends as often as its intervals say, 132 bytes a block each way") {
  const auto all = world().group();
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    comm::ProcessGroup& between = *replicas.groups.replicate;
    TinyRun run(replicas.groups, *all, layout_of(1), OptimizerKind::kZeroOneAdam);
    int64_t elements = 0, blocks = 0;
    for (const OptimShard& shard : run.optimizer().shards()) {
      elements += shard.grad.numel();
      blocks += kernels::sign_blocks(shard.grad.numel());
    }
    const double n = count, ways = 2 * (n - 1) / n;
    const double full = ways * 4 * double(elements);
    const double packed = ways * std::ceil(double(blocks) / n) * n * 132;
    // As kZeroOne says; steps after the eighth are joined in twos, those after the tenth in twos,
    // as many as these intervals have steps.
    const std::vector<double> want = {full,   full, full,   packed, full,   packed, packed,
                                      packed, 0,    packed, 0,      packed, 0,      packed};
    for (const double bytes : want) {
      between.reset_traffic();
      run.train(1);
      CAPTURE(count);
      CHECK(between.traffic().totals(comm::Traffic::kGradients).sent_bytes == Approx(bytes));
    }
  }
}

TEST_CASE("replicas of 0/1 Adam have the same anchors, and the same parameters when they join") {
  const auto all = world().group();
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    comm::ProcessGroup& between = *replicas.groups.replicate;
    for (const int stage : {1, 2, 3}) {
      CAPTURE(count, stage);
      TinyRun run(replicas.groups, *all, layout_of(stage), OptimizerKind::kZeroOneAdam);
      run.train(8);
      CHECK(same_on_all(between, values_of(run)));
      CHECK(anchors_of(run) == values_of(run));
      run.train(1);
      CHECK_FALSE(same_on_all(between, values_of(run)));
      const std::vector<float> own = values_of(run), anchors = anchors_of(run);
      CHECK(same_on_all(between, anchors));
      CHECK_FALSE(anchors == own);
      CHECK(same_bits(values_of(run), own));
      run.step().with_anchors([&] { comm::check_replicas(run.parallel(), *all); });
      // The end of a run is an exchange.
      run.step().finish_local_steps(9);
      CHECK(same_on_all(between, values_of(run)));
      CHECK_FALSE(same_bits(values_of(run), anchors));
      CHECK(same_bits(anchors_of(run), values_of(run)));
    }
  }
}

TEST_CASE("0/1 Adam resumes with the same bits, whatever kind of step comes next", "[checkpoint]") {
  check_resumes(layout_of(2), OptimizerKind::kZeroOneAdam, {3, 5, 6, 8, 9}, 4);
}

TEST_CASE("other numbers of replicas of 0/1 Adam go on from its anchors", "[checkpoint]") {
  if (world().size() != 4) return;
  const auto all = world().group();
  for (const auto& [from, to] : {std::pair(4, 2), std::pair(2, 4)}) {
    CAPTURE(from, to);
    const SharedDir dir(*all);
    const Replicas before(*all, from), after(*all, to);
    TinyRun run(before.groups, *all, layout_of(1), OptimizerKind::kZeroOneAdam);
    run.train(9);
    run.save(dir / "checkpoints");
    TinyRun loaded(after.groups, *all, layout_of(1), OptimizerKind::kZeroOneAdam);
    loaded.poison();
    loaded.load(dir / "checkpoints/step_00000009");
    CHECK(same_bits(anchors_of(loaded), anchors_of(run)));
    CHECK(same_on_all(*after.groups.replicate, values_of(loaded)));  // all have the mean of sums
    loaded.train(3);
    CHECK(same_on_all(*after.groups.replicate, anchors_of(loaded)));
  }
}

TEST_CASE("an overflow on one replica moves nothing of 0/1 Adam on any of them") {
  const auto all = world().group();
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    for (const int64_t before : {3, 6, 8}) {  // one bit, an exchange, a local step
      CAPTURE(count, before);
      RunLayout layout = layout_of(1);
      layout.loss_scale = 1024;
      TinyRun run(replicas.groups, *all, layout, OptimizerKind::kZeroOneAdam);
      run.train(before);
      const auto state = local_state(run);
      run.train(1, all->rank() + 1 == all->size() ? INFINITY : 1);
      CHECK(run.skipped_steps() == 1);
      // At the freeze debts are dropped, whatever comes of its step.
      if (before != kZeroOne.freeze_step) CHECK(local_state(run) == state);
      run.train(3);
      CHECK(run.skipped_steps() == 1);
      CHECK(same_on_all(*replicas.groups.replicate, anchors_of(run)));
    }
  }
}

TEST_CASE("0/1 Adam wants replicas and intervals") {
  const auto all = world().group();
  const auto refused = [&](const comm::ShardGroups& groups, const ZeroOneAdamOptions& options) {
    return message_of<ConfigError>([&] {
      Context context(small_context(1));
      GivenGradients::Model model;
      materialize(model, context, DType::kF32, 1);
      comm::DataParallel parallel(model, {}, context, groups, {.stage = 1});
      optim::ZeroOneAdam(parallel.shards(), options);
    });
  };
  CHECK(contains(refused({.shard = all.get()}, kZeroOne), "has no replica"));
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    ZeroOneAdamOptions options = kZeroOne;
    options.local_most = 0;
    CHECK(contains(refused(replicas.groups, options), "local_most is 0, want 1 or more"));
    options = kZeroOne;
    options.freeze_step = 0;
    CHECK(contains(refused(replicas.groups, options), "freeze_step is 0, want 1 or more"));
  }
}

}  // namespace shale::test
