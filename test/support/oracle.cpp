#include "shale/test/support/oracle.h"

#include <algorithm>
#include <cmath>

#include "shale/comm/world.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/formula.h"
#include "shale/test/support/json.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

// Records the losses that the steps report.
struct Losses : models::StepObserver {
  void done(const models::StepOutcome& outcome) override {
    losses.push_back(outcome.losses.front());
  }
  std::vector<double> losses;
};

}  // namespace

Oracle::Oracle(const std::string& name) {
  data = json_file(fixture_path("images/" + name + ".json"));
  images = data["config"]["batch"].integer();
  seed = data["config"]["seed"].get<uint32_t>();
}

double Oracle::allowed(const char* key) const {
  return std::max(1e-6, 8 * data["f32_deviation"][key].get<double>());
}

void check_summary(const Oracle& oracle, const char* key, const std::string& name,
                   const Tensor& tensor) {
  CAPTURE(key, name);
  REQUIRE(oracle.data[key].contains(name));
  const Json& want = oracle.data[key][name];
  const std::vector<float> values = to_host<float>(tensor);
  const Formula probe("probe/" + name, oracle.seed);
  double squares = 0, product = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    squares += double{values[i]} * double{values[i]};
    product += double{values[i]} * double{probe.value(int64_t(i), 0, 1)};
  }
  const double norm = want[0].real();
  CHECK(std::abs(std::sqrt(squares) - norm) <= oracle.allowed(key) * norm);
  CHECK(std::abs(product - want[1].get<double>()) <= oracle.allowed(key) * norm);
}

void check_steps(const Oracle& oracle, Module& model, const std::vector<Module*>& units,
                 const models::MicroBatches::Loss& loss, double momentum,
                 const std::function<void(const Parameter&, const View& to)>& fill,
                 const Batch& batch) {
  comm::World world(0, nullptr);
  const auto group = world.group();
  Context context(small_context());
  const optim::SgdOptions sgd{.momentum = float(momentum)};
  Losses losses;
  models::TrainStep step(
      context, {.shard = group.get()}, {model, units, loss}, {},
      [sgd](std::vector<OptimShard> shards) {
        return std::make_unique<optim::Sgd>(std::move(shards), sgd);
      },
      &losses);
  step.parallel().load(
      [&](const Parameter& parameter, int64_t, const View& to) { fill(parameter, to); });
  const auto images = double(oracle.images);
  const Json& train = oracle.data["train"];
  for (size_t i = 0; i < train.size(); ++i) {
    step.run({.step = int64_t(i),
              .lr = oracle.data["config"]["lr"].get<float>(),
              .weight = images,
              .next_batch = [&]() -> const Batch& { return batch; }});
  }
  step.finish();
  REQUIRE(losses.losses.size() == train.size());
  for (size_t i = 0; i < train.size(); ++i) {
    CAPTURE(i);
    CHECK(std::abs(losses.losses[i] / images / train[i].get<double>() - 1) <=
          oracle.allowed("train"));
  }
}

}  // namespace shale::test
