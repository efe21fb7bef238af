// Tests a custom training loop over several axes: bits are equal for any number of processes.
#include "shale/comm/parallel/parallel_step.h"

#include <cmath>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/loss.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/ranks/training.h"

namespace shale::test {
namespace {

constexpr int64_t kVocab = 32, kWidth = 16, kLayers = 4, kBatch = 8;

struct Model : Module {
  Model()
      : tokens(this, "tokens", kVocab, kWidth, Init::normal(0.2f)),
        norm(this, "norm", kWidth, 1e-5f),
        head(this, "head", kVocab, kWidth, Init::normal(0.2f)) {
    for (int64_t i = 0; i < kLayers; ++i) {
      layers.push_back(std::make_unique<nn::SelfAttention>(
          this, cat("layers.", i),
          nn::SelfAttention::Config{.width = kWidth,
                                    .heads = 2,
                                    .init = Init::normal(0.2f),
                                    .out_init = Init::normal(0.2f)}));
    }
  }
  std::vector<nn::Piece> pieces() {
    std::vector<nn::Piece> all = {{.name = "embedding", .parameters = tokens.parameters()}};
    for (const auto& layer : layers) {
      all.push_back(
          {.name = layer->name(), .unit = layer.get(), .parameters = layer->parameters()});
    }
    all.push_back({.name = "head", .parameters = nn::parameters_of({&norm, &head})});
    return all;
  }
  Tensor forward(const comm::ForwardPass& pass, const Tensor& ids, const Tensor& targets) {
    const bool is_first = pass.pieces.first == 0;
    return run(is_first ? ids : pass.x, [=, this](const Tensor& in) {
      Tensor x = is_first ? distribution().dropout(tokens.forward(in), 0.2f, 0) : in;
      for (int i = pass.pieces.first; i < pass.pieces.end; ++i) {
        if (i > 0 && i <= kLayers) x = layers[size_t(i - 1)]->forward(x, x);
      }
      if (pass.pieces.end < kLayers + 2) return x;
      return scale(head.loss(norm.forward(x), targets, kVocab), 1.0f / 100);
    });
  }

  nn::Embedding tokens;
  std::vector<std::unique_ptr<nn::SelfAttention>> layers;
  nn::RmsNorm norm;
  nn::Embedding head;
};

std::vector<double> train(comm::ProcessGroup& group, const comm::Degrees& wanted,
                          const comm::ParallelStepOptions& options, int64_t length) {
  Context context(small_context(1));
  comm::Parallel parallel(group, context, comm::fit_degrees(wanted, group.size()));
  const auto models = parallel.build<Model>({.tokens = length, .key_heads = 2},
                                            [] { return std::make_unique<Model>(); });
  comm::ParallelStep step(parallel, models, options);
  optim::AdamW optimizer(step.data().shards(), {});
  std::vector<double> losses;
  for (int64_t i = 0; i < 3; ++i) {
    optimizer.prepare(context, i, 0.05f);
    losses.push_back(step.run([&](const comm::ForwardPass& pass) {
      std::vector<int32_t> ids;
      for (int64_t t = 0; t <= length; ++t) {
        ids.push_back(int32_t((3 * t + 5 * t * pass.micro_batch) % kVocab));
      }
      const std::span<const int32_t> all(ids);
      return models[size_t(pass.rank)]->forward(
          pass, parallel.own_part(all.first(size_t(length)), 1),
          parallel.own_part(all.last(size_t(length)), 1, kernels::kIgnoreTarget));
    }));
    step.data().clip_grad_norm(1);
    optimizer.step();
    optimizer.zero_grad();
  }
  return losses;
}

}  // namespace

TEST_CASE("a loop over several axes has the same bits on any number of processes",
          "[gate][parallel_step][many_ranks]") {
  const auto group = world().group();
  const int ranks = group->size();
  if (ranks != 1 && ranks != 2 && ranks != 4 && ranks != 8) return;
  struct Case {
    comm::Degrees degrees;
    int stage;
    comm::ScheduleKind schedule;
    int chunks = 1;
  };
  using enum comm::ScheduleKind;
  for (const auto& [degrees, stage, schedule, chunks] :
       {Case{{.tensor = 2, .context = 2}, 3, k1F1B}, Case{{.tensor = 2, .pipeline = 2}, 1, k1F1B},
        Case{{.tensor = 2, .context = 2, .pipeline = 2}, 1, kZbV},
        Case{{.tensor = 2, .pipeline = 2}, 0, kInterleaved, 2}, Case{{.context = 2}, 2, k1F1B},
        Case{{.replica = 2, .tensor = 2}, 3, k1F1B}}) {
    for (const int64_t length : {16, 13}) {
      CAPTURE(degrees.tensor, degrees.context, degrees.pipeline, stage, length);
      const comm::ParallelStepOptions options{
          .data = {.stage = stage, .reproducible = true, .seed = 1},
          .micro_batches = kBatch,
          .schedule = schedule,
          .chunks = chunks,
          .width = kWidth};
      const std::vector<double> losses = train(*group, degrees, options, length);
      CHECK(losses == train(alone(), degrees, options, length));
      CHECK(losses.back() < losses.front());
      const std::vector<double> whole = train(alone(), {}, options, length);
      for (size_t i = 0; i < losses.size(); ++i) {
        // The orders of additions differ: roundings of 2^-24 for each of several hundred additions.
        CHECK(std::abs(losses[i] - whole[i]) < 2e-5 * whole[i]);
      }
    }
  }
}

TEST_CASE("degrees are fitted to the processes that there are", "[parallel_step]") {
  using Text = std::string;
  const auto fitted = [](const comm::Degrees& wanted, int processes) {
    const comm::Degrees fit = comm::fit_degrees(wanted, processes);
    return cat("r", fit.replica, " p", fit.pipeline, " s", fit.shard, " c", fit.context, "/",
               fit.context_here, " t", fit.tensor, "/", fit.tensor_here);
  };
  const comm::Degrees both{.tensor = 2, .context = 2};
  CHECK(fitted(both, 8) == Text("r1 p1 s2 c2/1 t2/1"));
  CHECK(fitted(both, 4) == Text("r1 p1 s1 c2/1 t2/1"));
  CHECK(fitted(both, 2) == Text("r1 p1 s1 c2/1 t2/2"));
  CHECK(fitted(both, 1) == Text("r1 p1 s1 c2/2 t2/2"));
  CHECK(fitted(both, 6) == Text("r1 p1 s3 c2/1 t2/2"));
  const comm::Degrees staged{.replica = 2, .tensor = 2, .pipeline = 4};
  CHECK(fitted(staged, 16) == Text("r2 p4 s1 c1/1 t2/1"));
  CHECK(fitted(staged, 8) == Text("r1 p4 s1 c1/1 t2/1"));
  CHECK(fitted(staged, 2) == Text("r1 p2 s1 c1/1 t2/2"));
  CHECK(fitted(staged, 1) == Text("r1 p1 s1 c1/1 t2/2"));
  CHECK(contains(message_of<ConfigError>([&] { comm::fit_degrees({.tensor = 6}, 2); }),
                 "tensor 6 do not fit 2 processes"));
  CHECK(contains(message_of<ConfigError>([&] { comm::fit_degrees({.shard = 2}, 4); }), "shard 2"));
  CHECK(fitted({.tensor = 0}, 4) == Text("r1 p1 s0 c1/1 t0/1"));  // Parallel refuses tensor 0
}

TEST_CASE("sequences of another length than those that were cut are refused", "[parallel_step]") {
  Context context(small_context(1));
  comm::Parallel parallel(alone(), context, comm::fit_degrees({.context = 2}, 1));
  const auto models = parallel.build<Model>({.tokens = 16, .key_heads = 2},
                                            [] { return std::make_unique<Model>(); });
  const std::vector<int32_t> ids(24);
  CHECK(contains(message_of<ShapeError>([&] { parallel.own_part(ids, 1); }),
                 "24 tokens in 1 sequences, expected 16 tokens in each sequence"));
  CHECK_THROWS_AS(parallel.own_part(ids, 0), ShapeError);
  CHECK(parallel.own_part(std::span(ids).first(16), 1).shape() == Shape{1, 8});
}

TEST_CASE("micro-batches and shapes that do not fit the ranks are refused", "[parallel_step]") {
  const auto group = world().group();
  const int ranks = group->size();
  if (ranks == 1) return;
  CHECK(contains(message_of<ConfigError>(
                     [&] { train(*group, {}, {.micro_batches = ranks + 1, .width = kWidth}, 16); }),
                 cat(ranks + 1, " micro-batches on ", ranks, " ranks of data parallelism")));
  if (ranks != 2) return;
  CHECK(contains(
      message_of<ConfigError>([&] { train(*group, {.pipeline = 2}, {.micro_batches = 2}, 16); }),
      "pipeline 2 with width 0 and sequences of 16 tokens"));
}

}  // namespace shale::test
