// LAMB, whose norms are of whole parameters, on ranks that have parts of them; and 1-bit LAMB over
// the replicas of hybrid sharding.
#include "shale/runtime/optim/lamb.h"

#include <algorithm>
#include <cmath>

#include "shale/comm/parallel/data/replica_check.h"
#include "shale/comm/traffic.h"
#include "shale/runtime/optim/one_bit_lamb.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/one_bit_reference.h"
#include "shale/test/support/ranks/replicas.h"

namespace shale::test {
namespace {

bool is_power_of_two(int n) {
  return (n & (n - 1)) == 0;
}

// What a run comes to in five steps.
struct End {
  std::vector<float> losses;
  std::map<std::string, std::string> state;
  friend bool operator==(const End&, const End&) = default;
};

End trained(comm::ProcessGroup& group, const comm::DataParallelOptions& options, DType compute) {
  RunLayout layout{.parallel = options};
  layout.parallel.compute = compute;
  layout.parallel.reproducible = true;
  TinyRun run({.shard = &group}, group, layout, OptimizerKind::kLamb);
  const std::vector<float> losses = run.train(5);
  return {losses, run.state()};
}

constexpr int64_t kFreeze = 4;

std::unique_ptr<optim::Optimizer> make_one_bit_lamb(std::vector<OptimShard> shards) {
  return std::make_unique<optim::OneBitLamb>(std::move(shards),
                                             optim::OneBitLambOptions{.freeze_step = kFreeze});
}

double norm_of(const std::vector<double>& x) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  return std::sqrt(squares);
}

// 1-bit LAMB in f64, of one parameter on all replicas, as arXiv:2104.06069 has it and with bias
// corrections; the bias, which has no decay, has a trust ratio of 1.
class Reference {
 public:
  Reference(size_t parameter, size_t replicas, std::vector<double> start)
      : parameter_(parameter),
        replicas_(replicas),
        means_(replicas, start.size()),
        m_(start.size()),
        v_(m_),
        fresh_(m_),
        w_(std::move(start)) {
    options_.freeze_step = kFreeze;
  }

  void step(int64_t step, double lr) {
    const double correction1 = 1 - std::pow(beta1(), double(step + 1));
    const bool is_frozen = step >= kFreeze;
    if (step == kFreeze) freeze();
    is_frozen ? exchange(step) : add_gradients(step);
    const double correction2 = is_frozen ? 1 : 1 - std::pow(beta2(), double(step + 1));
    std::vector<double> adam(w_.size()), u(w_.size());
    for (size_t i = 0; i < w_.size(); ++i) {
      adam[i] = m_[i] / correction1 / (std::sqrt(v_[i] / correction2) + eps());
      u[i] = adam[i] + (parameter_ == 0 ? double(options_.lamb.weight_decay) * w_[i] : 0);
    }
    const double ratio = is_frozen ? frozen_ratio(norm_of(adam), norm_of(u)) : trust_ratio(u);
    for (size_t i = 0; i < w_.size(); ++i) w_[i] -= lr * ratio * u[i];
  }
  const std::vector<double>& w() const { return w_; }

 private:
  double beta1() const { return double(options_.lamb.beta1); }
  double beta2() const { return double(options_.lamb.beta2); }
  double eps() const { return double(options_.lamb.eps); }
  void freeze() {
    for (double& v : v_) v /= 1 - std::pow(beta2(), double(kFreeze));
    fresh_ = v_;
    mean_ /= 1 - std::pow(double(options_.ratio_beta), double(kFreeze));
  }
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
  double trust_ratio(const std::vector<double>& u) {
    const double ratio =
        parameter_ == 0 ? std::min(norm_of(w_) / norm_of(u), double(options_.lamb.trust_max)) : 1;
    mean_ += (1 - double(options_.ratio_beta)) * (ratio - mean_);
    return ratio;
  }
  void exchange(int64_t step) {
    std::vector<std::vector<double>> own(replicas_, std::vector<double>(w_.size()));
    for (size_t r = 0; r < replicas_; ++r) {
      for (size_t i = 0; i < w_.size(); ++i) {
        own[r][i] = beta1() * m_[i] + (1 - beta1()) * wave_gradient(r, step, parameter_, i);
      }
    }
    const std::vector<double> before = m_;
    m_ = means_.mean(own, v_);
    largest_ = 0;
    for (size_t i = 0; i < w_.size(); ++i) {
      const double g = (m_[i] - beta1() * before[i]) / (1 - beta1());
      fresh_[i] = beta2() * fresh_[i] + (1 - beta2()) * g * g;
      largest_ = std::max(largest_, (std::sqrt(v_[i]) + eps()) / (std::sqrt(fresh_[i]) + eps()));
    }
  }
  double frozen_ratio(double adam, double all) {
    const double share = std::min(1.0, adam / all), change = double(options_.factor_change);
    const double wanted = std::clamp(largest_ * share + 1 - share, double(options_.factor_min),
                                     double(options_.factor_max));
    factor_ = std::clamp(wanted, factor_ * (1 - change), factor_ * (1 + change));
    return mean_ * factor_;
  }

  size_t parameter_, replicas_;
  optim::OneBitLambOptions options_;
  OneBitReference means_;
  std::vector<double> m_, v_, fresh_, w_;
  double mean_ = 0, factor_ = 1, largest_ = 0;
};

}  // namespace

TEST_CASE("LAMB has the same bits in every stage and on any number of ranks", "[gate]") {
  const auto all = world().group();
  if (!is_power_of_two(all->size())) return;
  const auto groups = groups_of_first_ranks(*all);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    const End want = trained(*all, {}, compute);
    for (const int stage : {1, 2, 3}) {
      CAPTURE(dtype_name(compute), stage);
      CHECK(trained(*all, {.stage = stage}, compute) == want);
    }
    CHECK(trained(*all, {.persist_below = 1000, .stage = 3}, compute) == want);
    if (all->rank() == 0) CHECK(trained(*groups[1], {}, compute).losses == want.losses);
  }
}

TEST_CASE("LAMB goes on from a checkpoint of other ranks and stages with the same bits", "[gate]") {
  const auto all = world().group();
  if (!is_power_of_two(all->size())) return;
  const SharedDir dir(*all);
  const auto groups = groups_of_first_ranks(*all);
  TinyRun whole({.shard = all.get()}, *all, {{.stage = 2, .reproducible = true}},
                OptimizerKind::kLamb);
  whole.train(3);
  whole.save(dir.path());
  const std::vector<float> want = whole.train(3);
  const auto resumed = [&](comm::ProcessGroup& group, int stage) {
    TinyRun run({.shard = &group}, group, {{.stage = stage, .reproducible = true}},
                OptimizerKind::kLamb);
    run.load(dir / "step_00000003");
    CHECK(run.train(3) == want);
  };
  resumed(*all, 3);
  resumed(*all, 0);
  if (all->rank() == 0) resumed(*groups[1], 1);
}

TEST_CASE("until the freeze 1-bit LAMB has the bits of LAMB, and replicas stay alike after it") {
  const auto all = world().group();
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    for (const int stage : {1, 2, 3}) {
      CAPTURE(count, stage);
      TinyRun lamb(replicas.groups, *all, {{.stage = stage}}, OptimizerKind::kLamb);
      TinyRun one_bit(replicas.groups, *all, {{.stage = stage}}, OptimizerKind::kOneBitLamb);
      CHECK(one_bit.train(kFreezeStep) == lamb.train(kFreezeStep));
      CHECK(same_bits(values_of(one_bit), values_of(lamb)));
      one_bit.train(3), lamb.train(3);
      const std::vector<float> values = values_of(one_bit);
      CHECK_FALSE(same_bits(values, values_of(lamb)));
      comm::check_replicas(one_bit.parallel(), *all);
      CHECK(std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); }));
    }
  }
}

TEST_CASE("1-bit LAMB is the paper's") {
  const auto all = world().group();
  if (all->size() == 1) return;
  GivenGradients run(*all, make_one_bit_lamb, wave_gradient);
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
        REQUIRE(std::abs(got[i] - want[p].w()[i]) < 2e-5);
      }
    }
  }
}

TEST_CASE("1-bit LAMB resumes with the same bits, before and after its freeze", "[checkpoint]") {
  check_resumes({{.stage = 2}}, OptimizerKind::kOneBitLamb, {1, kFreezeStep, kFreezeStep + 2}, 3);
}

TEST_CASE("1-bit LAMB goes on from other numbers of replicas", "[checkpoint]") {
  if (world().size() != 4) return;
  const auto all = world().group();
  for (const auto& [from, to] : {std::pair(4, 2), std::pair(2, 4)}) {
    CAPTURE(from, to);
    const SharedDir dir(*all);
    const Replicas before(*all, from), after(*all, to);
    TinyRun run(before.groups, *all, {{.stage = 1}}, OptimizerKind::kOneBitLamb);
    run.train(kFreezeStep + 3);
    run.save(dir / "checkpoints");
    TinyRun loaded(after.groups, *all, {{.stage = 3}}, OptimizerKind::kOneBitLamb);
    loaded.poison();
    loaded.load(dir / "checkpoints" + cat("/step_0000000", kFreezeStep + 3));
    for (const char* const what : {"/ratio", "/factor"}) {
      for (const auto& [name, bytes] : local_state(run)) {
        if (name.ends_with(what)) CHECK(local_state(loaded).at(name) == bytes);
      }
    }
    CHECK(same_bits(values_of(loaded), values_of(run)));
    loaded.train(2);
    comm::check_replicas(loaded.parallel(), *all);
  }
}

TEST_CASE("an overflow on one replica moves nothing of 1-bit LAMB") {
  const auto all = world().group();
  for (const int count : replica_counts()) {
    const Replicas replicas(*all, count);
    for (const int64_t step : {int64_t{1}, kFreezeStep + 1}) {
      CAPTURE(count, step);
      TinyRun run(replicas.groups, *all, {{.stage = 1}, {}, /*loss_scale=*/1024},
                  OptimizerKind::kOneBitLamb);
      run.train(step);
      const auto before = local_state(run);
      run.train(1, all->rank() + 1 == all->size() ? INFINITY : 1);
      CHECK(run.skipped_steps() == 1);
      CHECK(local_state(run) == before);
      run.train(1);
      CHECK(local_state(run) != before);
    }
  }
}

TEST_CASE("1-bit LAMB wants replicas") {
  const auto all = world().group();
  CHECK(contains(message_of<ConfigError>([&] {
                   TinyRun({.shard = all.get()}, *all, {{.stage = 1}}, OptimizerKind::kOneBitLamb);
                 }),
                 "has no replica"));
}

}  // namespace shale::test
