#include "shale/models/diffusion/sampler.h"

#include "shale/test/support/catch.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using models::DiffusionKind;

constexpr models::DitConfig kSmall{
    .pixels = 4, .channels = 3, .patch = 2, .layers = 1, .width = 16, .heads = 2, .classes = 3};

// A model whose zero-initialized parameters are replaced by random ones, so that all layers matter.
struct Small {
  explicit Small(models::DitConfig config = kSmall) : context(small_context()), model(config) {
    materialize(model, context, DType::kF32, 1);
    uint64_t seed = 0;
    for (Parameter* parameter : model.parameters()) {
      const std::vector<float> values = randn<float>(parameter->numel(), ++seed, 0, 0.2);
      Tensor to = parameter->value.detach();
      context.copy(to.data(), from_host<float>(context, values, parameter->shape).data(),
                   to.bytes());
    }
  }
  std::vector<float> sample(const std::vector<int32_t>& labels, int64_t first,
                            const models::SamplerOptions& options) {
    return to_host<float>(models::sample_images(model, context, labels, first, options));
  }

  Context context;
  models::Dit model;
};

}  // namespace

TEST_CASE("samples do not depend on how they are cut into calls") {
  for (const DiffusionKind kind : {DiffusionKind::kFlow, DiffusionKind::kDdpm}) {
    for (const double guidance : {1., 3.}) {
      Small small;
      const models::SamplerOptions options{
          .kind = kind, .steps = 4, .guidance = guidance, .seed = 5};
      const std::vector<float> all = small.sample({0, 2, 1}, 4, options);
      std::vector<float> parts = small.sample({0}, 4, options);
      const std::vector<float> rest = small.sample({2, 1}, 5, options);
      parts.insert(parts.end(), rest.begin(), rest.end());
      // GEMMs with other shapes may sum in a different order.
      CHECK(max_error(parts, std::vector<double>(all.begin(), all.end())) < 1e-4);
      CHECK(small.sample({1, 2, 1}, 4, options) != all);
    }
  }
}

TEST_CASE("a flow's samples are its noise less what the model says on the way") {
  // A new model predicts 0, so samples do not move, with any guidance.
  Context context(small_context());
  models::Dit model(kSmall);
  materialize(model, context, DType::kF32, 1);
  const auto sample = [&](int64_t steps, double guidance) {
    return to_host<float>(models::sample_images(model, context, {0, 1}, 0,
                                                {.steps = steps, .guidance = guidance, .seed = 9}));
  };
  const std::vector<float> noise = sample(1, 1);
  CHECK(sample(7, 4) == noise);
  Small small;
  const models::SamplerOptions one{.steps = 1, .seed = 9};
  const std::vector<float> moved = small.sample({0, 1}, 0, one);
  CHECK(moved != noise);
  // The shift changes only intermediate times: with one step there is none, with two there is one.
  models::SamplerOptions shifted{.steps = 1, .shift = 3, .seed = 9};
  CHECK(small.sample({0, 1}, 0, shifted) == moved);
  shifted.steps = 2;
  CHECK(small.sample({0, 1}, 0, shifted) !=
        small.sample({0, 1}, 0, {.steps = 2, .seed = 9}));
  // Guidance 0 ignores the class.
  const models::SamplerOptions none{.steps = 1, .guidance = 0, .seed = 9};
  CHECK(small.sample({0, 1}, 0, none) == small.sample({2, 2}, 0, none));
}

TEST_CASE("DDPM's samples that are clipped end in pictures") {
  models::DitConfig config = kSmall;
  config.learned_variance = true;
  Small small(config);
  const models::SamplerOptions options{
      .kind = DiffusionKind::kDdpm, .steps = 6, .guidance = 2, .seed = 3};
  for (const float value : small.sample({0, 1, 2}, 0, options)) {
    CHECK((value >= -1 && value <= 1));
  }
}

TEST_CASE("samples of classes that a model has not are refused") {
  Small small;
  CHECK_THROWS_AS(small.sample({4}, 0, {}), ConfigError);
  CHECK_THROWS_AS(small.sample({-1}, 0, {}), ConfigError);
  CHECK_THROWS_AS(small.sample({0}, 0, {.steps = 0}), ConfigError);
}

}  // namespace shale::test
