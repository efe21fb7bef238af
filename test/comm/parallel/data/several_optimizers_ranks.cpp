// Tests several optimizers with separate rates, decays, clipping and statistics, on shards of all
// stages.
#include <functional>
#include <optional>

#include "shale/comm/checkpoint/saver.h"
#include "shale/comm/checkpoint/training_state.h"
#include "shale/comm/parallel/data/fully_shard.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/offload/optimizer_offload.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/optim/adafactor.h"
#include "shale/runtime/optim/clip.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/tiny_run.h"
#include "shale/test/support/ranks/training.h"

namespace shale::test {
namespace {

using comm::DataParallel;
using comm::DataParallelOptions;

constexpr int64_t kWidth = 40;  // a rank's shard begins inside a weight

struct Layer : Module {
  Layer(Module* parent, std::string child_name)
      : Module(parent, std::move(child_name)),
        linear(this, "linear", kWidth, kWidth, Init::normal(0.15f)) {}
  Tensor forward(const Tensor& x) {
    return run(x, [&](const Tensor& in) { return gelu(linear.forward(in)); });
  }
  nn::Linear linear;
};

struct Net : Module {
  Net() : first(this, "first"), second(this, "second") {}
  Tensor loss(const Tensor& x) {
    return run(x, [&](const Tensor& in) { return sum(second.forward(first.forward(in))); });
  }
  Layer first, second;
};

// A sharded model whose gradient is the same in every stage.
struct Run {
  Run(comm::ProcessGroup& ranks, const DataParallelOptions& options)
      : group(ranks),
        context(small_context(1)),
        parallel(net, {&net.first, &net.second}, context, group, options) {}

  void pass(int seed) {
    const auto values = randn<float>(kWidth, uint64_t(10 * seed + group.rank()));
    backward(net.loss(from_host<float>(context, values, {1, kWidth})));
  }
  std::vector<float> values() {
    std::vector<float> all;
    parallel.full_state([&](const Parameter&, const View& view) {
      all.insert(all.end(), view.as<float>(), view.as<float>() + view.numel());
    });
    return all;
  }

  comm::ProcessGroup& group;
  Context context;
  Net net;
  DataParallel parallel;
};

// Returns the parameters after `body`, and checks that their bits are equal in every stage.
std::vector<float> in_all_stages(const std::function<void(Run&)>& body) {
  const auto group = world().group();
  std::vector<float> of_stage_0;
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    Run run(*group, {.stage = stage, .seed = 7});
    body(run);
    const std::vector<float> got = run.values();
    if (stage == 0) of_stage_0 = got;
    CHECK(same_bits(got, of_stage_0));
  }
  return of_stage_0;
}

std::vector<float> initial_values() {
  return in_all_stages([](Run&) {});
}

optim::Sgd plain_sgd(std::vector<OptimShard> shards) {
  return {std::move(shards), {.momentum = 0}};
}

}  // namespace

TEST_CASE("clipping lasts until zero_grad(), whatever is prepared after it") {
  const auto moved_by = [](bool prepare_first) {
    return in_all_stages([&](Run& run) {
      optim::Sgd optimizer = plain_sgd(run.parallel.shards());
      for (int step = 0; step < 2; ++step) {
        if (prepare_first) optimizer.prepare(run.context, step, 0.1f);
        run.pass(step);
        run.parallel.clip_grad_norm(step == 0 ? 0.01f : 0);  // the second step is not clipped
        if (!prepare_first) optimizer.prepare(run.context, step, 0.1f);
        optimizer.step();
        optimizer.zero_grad();
      }
    });
  };
  const std::vector<float> want = moved_by(true);
  CHECK(want != initial_values());
  CHECK(same_bits(moved_by(false), want));
}

TEST_CASE("two optimizers of a model have rates of their own and one norm, or a norm for each") {
  // Trains with an optimizer for weights and one for biases. An optimizer whose argument is false
  // has rate 0, so its parameters stay fixed.
  const auto moved = [](bool weights, bool biases, bool apart) {
    return in_all_stages([&](Run& run) {
      const auto shards = run.parallel.shards();
      optim::Sgd a = plain_sgd(select_parameters(shards, "*.weight"));
      optim::Sgd b = plain_sgd(select_parameters(shards, "*.bias"));
      run.pass(1);
      run.pass(2);  // adds its gradients to those of the first pass
      if (apart) {
        optim::clip_grad_norm(run.context, a.shards(), 0.5f);
        optim::clip_grad_norm(run.context, b.shards(), 0.25f);
      } else {
        run.parallel.clip_grad_norm(0.5f);
      }
      a.prepare(run.context, 0, weights ? 0.1f : 0);
      b.prepare(run.context, 0, biases ? 0.01f : 0);
      a.step();
      a.zero_grad();
      b.step();
      b.zero_grad();
    });
  };
  for (const bool apart : {false, true}) {
    CAPTURE(apart);
    const std::vector<float> before = initial_values(), both = moved(true, true, apart),
                             a = moved(true, false, apart), b = moved(false, true, apart);
    CHECK(a != before);
    CHECK(b != before);
    for (size_t i = 0; i < both.size(); ++i) {
      REQUIRE(both[i] == (a[i] != before[i] ? a[i] : b[i]));
    }
  }
}

TEST_CASE("what one optimizer drops, another keeps") {
  const std::vector<float> got = in_all_stages([](Run& run) {
    const auto shards = run.parallel.shards();
    optim::Sgd a = plain_sgd(select_parameters(shards, "*.weight"));
    optim::Sgd b = plain_sgd(select_parameters(shards, "*.bias"));
    run.pass(1);
    a.zero_grad();
    run.pass(2);
    a.prepare(run.context, 0, 0.1f);
    b.prepare(run.context, 0, 0.1f);
    a.step();
    b.step();
  });
  const std::vector<float> want = in_all_stages([](Run& run) {
    optim::Sgd all = plain_sgd(run.parallel.shards());
    optim::Sgd b = plain_sgd(select_parameters(run.parallel.shards(), "*.bias"));
    run.pass(1);
    all.zero_grad();
    run.pass(2);
    all.prepare(run.context, 0, 0.1f);
    all.step();
    all.zero_grad();
  });
  // The weights' optimizer saw the gradients of only the second pass. The biases' optimizer saw
  // those of both passes.
  const auto group = world().group();
  Run run(*group, {.stage = 0, .seed = 7});
  size_t at = 0;
  bool bias_differs = false;
  for (const Parameter* parameter : run.net.parameters()) {
    for (int64_t i = 0; i < parameter->numel(); ++i, ++at) {
      if (parameter->name == "weight") REQUIRE(got[at] == want[at]);
      if (parameter->name == "bias") bias_differs = bias_differs || got[at] != want[at];
    }
  }
  CHECK(bias_differs);
}

TEST_CASE("parameter options are those of an optimizer with these options for all") {
  const auto trained = [](float factor, float decay, bool of_all) {
    return in_all_stages([&](Run& run) {
      std::vector<OptimShard> shards = run.parallel.shards();
      set_parameter_options(shards, of_all ? "*" : "second.*",
                            {.lr_factor = factor, .weight_decay = decay});
      optim::AdamW optimizer(std::move(shards), {.weight_decay = 0.1f});
      for (int step = 0; step < 2; ++step) {
        optimizer.prepare(run.context, step, 0.01f);
        run.pass(step);
        optimizer.step();
        optimizer.zero_grad();
        run.parallel.load([&](const Parameter& parameter, int64_t first_row, const View& rows) {
          const int64_t row = parameter.numel() / parameter.shape[0];
          // Resets the parameters, so that every pass has the same gradients.
          parameter.write_initial(run.context.exec(), 7, first_row * row, rows);
        });
      }
      optimizer.prepare(run.context, 2, 0.01f);
      run.pass(2);
      optimizer.step();
    });
  };
  const std::vector<float> all = trained(0.25f, 0.5f, true), some = trained(0.25f, 0.5f, false),
                           none = trained(1, 0.1f, false);
  const size_t half = all.size() / 2;
  const auto part = [&](const std::vector<float>& from, bool second) {
    return std::vector<float>(from.begin() + int64_t(second ? half : 0),
                              from.begin() + int64_t(second ? from.size() : half));
  };
  CHECK(same_bits(part(some, true), part(all, true)));
  CHECK(same_bits(part(some, false), part(none, false)));
  CHECK(part(some, true) != part(none, true));
}

TEST_CASE("Adafactor on shards has the statistics of whole parameters") {
  const auto group = world().group();
  std::vector<double> want;
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    Run run(*group, {.stage = stage, .seed = 7});
    optim::Adafactor optimizer(run.parallel.shards(), {});
    for (int step = 0; step < 3; ++step) {
      optimizer.prepare(run.context, step, 0.01f);
      run.pass(step);
      optimizer.step();
      optimizer.zero_grad();
    }
    const std::vector<float> got = run.values();
    if (stage == 0) want = to_f64(got);
    // The two runs add 40 squares in different orders. The error passes through three updates of at
    // most 0.01.
    CHECK(max_error(to_f64(got), want) <= 1e-6);
  }
  Run run(*group, {.stage = 3, .seed = 7});
  std::vector<OptimShard> lonely = run.parallel.shards();
  for (OptimShard& shard : lonely) shard.peers = nullptr;
  if (group->size() > 1) {
    CHECK(contains(message_of<ConfigError>([&] { optim::Adafactor optimizer(lonely, {}); }),
                   "set OptimShard::peers"));
    lonely.front().peers = run.parallel.shards().front().peers;
    CHECK(contains(message_of<ConfigError>([&] { optim::clip_grad_norm(run.context, lonely, 1); }),
                   "sharded over other ranks"));
  }
}

TEST_CASE("a run of two optimizers goes on from a checkpoint to the bit") {
  const auto group = world().group();
  const SharedDir dir(*group);
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    struct Two {
      Two(comm::ProcessGroup& ranks, int zero)
          : run(ranks, {.stage = zero, .seed = 7}),
            a(select_parameters(run.parallel.shards(), "*.weight"), {}),
            b(select_parameters(run.parallel.shards(), "*.bias"), {}) {}
      void steps(int begin, int end) {
        for (int step = begin; step < end; ++step) {
          a.prepare(run.context, step, 0.01f);
          b.prepare(run.context, step, 0.002f);
          run.pass(step);
          run.parallel.clip_grad_norm(1);
          for (optim::Optimizer* one : all) one->step();
          for (optim::Optimizer* one : all) one->zero_grad();
        }
      }
      Run run;
      optim::AdamW a;
      optim::Lion b;
      const std::vector<optim::Optimizer*> all = {&a, &b};
      const std::vector<const optim::Optimizer*> states = {&a, &b};
    };
    const std::string folder = dir / cat("stage", stage);
    Two through(*group, stage), resumed(*group, stage);
    through.steps(0, 2);
    comm::CheckpointSaver saver(*group, through.run.context, folder, {});
    saver.save({.step = 2},
               comm::share_to_write(comm::training_state(through.run.parallel, through.states),
                                    {.shard = group.get()}));
    REQUIRE(saver.finish() == 2);
    through.steps(2, 4);
    CheckpointReader reader(folder + "/step_00000002");
    comm::load_training_state(reader, resumed.run.parallel, resumed.states);
    resumed.steps(2, 4);
    CHECK(same_bits(resumed.run.values(), through.run.values()));
    const auto refused = [&](const std::vector<const optim::Optimizer*>& optimizers) {
      return message_of<ConfigError>(
          [&] { comm::training_state(resumed.run.parallel, optimizers); });
    };
    CHECK(contains(refused({&resumed.a, &resumed.b, &resumed.a}),
                   "two optimizers update first.linear.weight"));
    CHECK(contains(refused({&through.a}), "not a parameter of this model"));
  }
}

TEST_CASE("offloaded, parameter options count, and a second optimizer is refused") {
  const auto group = world().group();
  const auto trained = [&](int stage, bool offloaded) {
    Context context(small_context(1));
    offload::HostTier tier(context, {.threads = 1});
    Net net;
    DataParallelOptions options{.stage = stage, .seed = 7};
    if (offloaded) options.offload = {.tier = &tier, .gradients = stage >= 2};
    DataParallel parallel(net, {&net.first, &net.second}, context, *group, options);
    std::vector<OptimShard> shards = parallel.shards();
    std::optional<offload::OptimizerOffload> offload;
    if (offloaded) shards = offload.emplace(tier, std::move(shards)).shards();
    set_parameter_options(shards, "second.*", {.lr_factor = 0.25f, .weight_decay = 0.5f});
    optim::AdamW optimizer(std::move(shards), {});
    for (int step = 0; step < 3; ++step) {
      for (const int seed : {2 * step, 2 * step + 1}) {  // each step has two losses
        const auto values = randn<float>(kWidth, uint64_t(10 * seed + group->rank()));
        backward(net.loss(from_host<float>(context, values, {1, kWidth})));
      }
      parallel.clip_grad_norm(1);
      optimizer.prepare(context, step, 0.01f);
      offloaded ? offload->step(optimizer) : optimizer.step();
      optimizer.zero_grad();
    }
    if (offloaded) {
      offload->finish();
      CHECK(contains(message_of<ConfigError>(
                         [&] { offload::OptimizerOffload second(tier, parallel.shards()); }),
                     "several optimizers"));
    }
    std::vector<float> all;
    parallel.full_state([&](const Parameter&, const View& view) {
      all.insert(all.end(), view.as<float>(), view.as<float>() + view.numel());
    });
    return all;
  };
  const std::vector<float> want = trained(0, false);
  for (const int stage : {0, 1, 2, 3}) {
    CAPTURE(stage);
    CHECK(same_bits(trained(stage, true), want));
  }
}

}  // namespace shale::test
