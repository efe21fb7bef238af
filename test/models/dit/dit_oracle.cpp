// Compares the diffusion transformer and its losses with the paper's formulas and diffusers' model:
// output, loss, the gradient of every parameter, and steps of SGD. The numbers were computed in f64
// by test/fixtures/make_dit.py, which explains every key at its top.
#include <algorithm>
#include <cmath>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/world.h"
#include "shale/models/diffusion/loss.h"
#include "shale/models/dit/dit.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/formula.h"
#include "shale/test/support/json.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/oracle.h"

namespace shale::test {
namespace {

using models::DiffusionKind;
using models::DitVariant;

const char* const kCases[] = {"dit_ddpm", "dit_flow", "dit_diffusers"};

struct Fixture : Oracle {
  explicit Fixture(const std::string& name) : Oracle(name) {
    const Json& sizes = data["config"];
    config = {.pixels = sizes["pixels"].integer(),
              .channels = sizes["channels"].integer(),
              .patch = sizes["patch"].integer(),
              .layers = sizes["layers"].integer(),
              .width = sizes["width"].integer(),
              .heads = sizes["heads"].integer(),
              .classes = sizes["classes"].integer(),
              .learned_variance = sizes["learned_variance"].boolean()};
    if (name == "dit_diffusers") config.variant = DitVariant::kDiffusers;
    if (name == "dit_flow") kind = DiffusionKind::kFlow;
  }

  models::DitConfig config;
  DiffusionKind kind = DiffusionKind::kDdpm;
};

void fill_weights(const Parameter& parameter, const View& to, uint32_t seed) {
  const Formula formula(parameter.full_name(), seed);
  const Shape& shape = parameter.shape;
  const bool is_matrix = shape.ndim() == 2 || shape.ndim() == 4;
  const float scale = is_matrix ? float(std::sqrt(12 / double(shape.numel() / shape[0]))) : 0.25f;
  float* values = to.as<float>();
  for (int64_t e = 0; e < parameter.numel(); ++e) values[e] = formula.value(e, 0, scale);
}

Batch batch_of(const Fixture& fixture) {
  const models::DitConfig& config = fixture.config;
  const int64_t N = fixture.images, elements = config.pixels * config.pixels * config.channels;
  const Shape shape{N, config.pixels, config.pixels, config.channels};
  std::vector<double> times;
  const models::NoiseSchedule schedule;
  Batch batch{.count = N};
  for (const char* name : {"images", "noise"}) batch.set(name, DType::kF32, shape);
  batch.set("times", DType::kF32, {N, models::kTimeFeatures});
  batch.set("coefficients", DType::kF32, {N, models::kLossCoefficients});
  const auto labels = batch.set("labels", DType::kI32, {N}).values<int32_t>();
  const auto images = batch.set("images", DType::kF32, shape).values<float>();
  const auto noise = batch.set("noise", DType::kF32, shape).values<float>();
  const auto coefficients =
      batch.set("coefficients", DType::kF32, {N, models::kLossCoefficients}).values<float>();
  const Formula pixels("images", fixture.seed), numbers("noise", fixture.seed);
  const Formula classes("labels", fixture.seed);
  for (int64_t i = 0; i < N * elements; ++i) {
    images[size_t(i)] = std::clamp(pixels.value(i, 0, 2.4f), -1.f, 1.f);
    noise[size_t(i)] = numbers.value(i, 0, 3.4f);
  }
  for (int64_t row = 0; row < N; ++row) {
    const double time = fixture.data["config"]["times"][size_t(row)].real();
    labels[size_t(row)] = int32_t(classes.word(row) % uint32_t(config.classes + 1));
    times.push_back(models::model_time(fixture.kind, time));
    std::ranges::copy(models::loss_coefficients(fixture.kind, schedule, time, 1, elements),
                      coefficients.begin() + row * models::kLossCoefficients);
  }
  std::ranges::copy(
      models::time_features(times, config.variant),
      batch.set("times", DType::kF32, {N, models::kTimeFeatures}).values<float>().begin());
  return batch;
}

void flatten(const Json& from, std::vector<double>& to) {
  if (!from.is_array()) return to.push_back(from.real());
  for (const Json& part : from) flatten(part, to);
}

// Mixes images and noise into the inputs that the loss gives to the model.
Tensor mixed(const Batch& batch, Context& context) {
  const auto images = batch.field("images").values<float>();
  const auto noise = batch.field("noise").values<float>();
  const auto c = batch.field("coefficients").values<float>();
  const Shape shape = batch.field("images").shape;
  const auto elements = size_t(shape.numel() / shape[0]);
  std::vector<float> x(images.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t row = i / elements * models::kLossCoefficients;
    x[i] = c[row + models::kSignal] * images[i] + c[row + models::kSpread] * noise[i];
  }
  return from_host<float>(context, x, shape);
}

}  // namespace

TEST_CASE("results, losses and gradients of diffusion transformers are torch's") {
  for (const char* name : kCases) {
    CAPTURE(name);
    const Fixture fixture(name);
    comm::World world(0, nullptr);
    const auto group = world.group();
    Context context(small_context());
    models::Dit model(fixture.config);
    comm::DataParallel parallel(model, model.blocks(), context, *group, {});
    parallel.load([&](const Parameter& parameter, int64_t, const View& to) {
      fill_weights(parameter, to, fixture.seed);
    });
    const Batch host = batch_of(fixture);
    const DeviceBatch batch(context, host);
    {
      const Inference inference(context);
      const Tensor said = model.forward(mixed(host, context), batch["times"], batch["labels"]);
      std::vector<double> want;
      flatten(fixture.data["output"], want);
      CHECK(max_error(to_host<float>(said), want) <= fixture.allowed("output") * max_abs(want));
    }
    context.update_step([](StepState& s) { s.grad_scale = 1; });
    const Tensor loss = models::diffusion_loss(model, fixture.kind, batch);
    parallel.begin_backward(true);
    backward(loss);
    parallel.finish_gradients();
    CHECK(std::abs(to_host<float>(loss).front() / fixture.data["loss"].get<double>() - 1) <=
          fixture.allowed("loss"));
    CHECK(model.parameters().size() == fixture.data["gradients"].size());
    for (const Parameter* parameter : model.parameters()) {
      check_summary(fixture, "gradients", parameter->full_name(), parameter->value.grad());
    }
  }
}

TEST_CASE("steps of SGD on diffusion transformers go as torch's") {
  for (const char* name : kCases) {
    CAPTURE(name);
    const Fixture fixture(name);
    models::Dit model(fixture.config);
    check_steps(
        fixture, model, model.blocks(),
        [&](const DeviceBatch& batch) {
          return models::diffusion_loss(model, fixture.kind, batch);
        },
        /*momentum=*/0,
        [&](const Parameter& parameter, const View& to) {
          fill_weights(parameter, to, fixture.seed);
        },
        batch_of(fixture));
  }
}

TEST_CASE("diffusion transformers have the sizes that are published") {
  struct Published {
    const char* preset;
    // Parameters of the model in the paper's program, which count position embeddings.
    int64_t parameters;
    // Multiply-adds of a forward pass in units of 1e9, from table 4 of the paper.
    double multiply_adds;
  };
  for (const auto& [name, parameters, multiply_adds] : {Published{"dit-s2", 32'963'360, 6.06},
                                                        {"dit-b2", 130'512'416, 23.01},
                                                        {"dit-l2", 458'102'816, 80.71},
                                                        {"dit-xl2", 675'129'632, 118.64}}) {
    CAPTURE(name);
    models::DitConfig config = models::find_dit_preset(name).model;
    config.learned_variance = true;
    models::Dit model(config);
    int64_t count = config.tokens() * config.width;
    for (const Parameter* parameter : model.parameters()) count += parameter->numel();
    CHECK(count == parameters);
    CHECK(model.flops_per_image() / 6e9 == Approx(multiply_adds).epsilon(0.01));
  }
}

TEST_CASE("a diffusion transformer begins with a result of zero") {
  Context context(small_context());
  models::Dit model({.pixels = 8, .layers = 1, .width = 16, .heads = 2, .classes = 3});
  materialize(model, context, DType::kF32, 1);
  const std::vector<double> times{500};
  const Tensor features = from_host<float>(
      context, models::time_features(times, DitVariant::kPaper), {1, models::kTimeFeatures});
  const std::vector<int32_t> label{3};
  const Inference inference(context);
  const Tensor x = full(context, {1, 8, 8, 4}, DType::kF32, 0.5);
  const Tensor said = model.forward(x, features, from_host<int32_t>(context, label, {1}));
  for (const float value : to_host<float>(said)) CHECK(value == 0);
}

TEST_CASE("sinusoids of a time are those of either program") {
  const std::vector<double> ten{10};
  const auto expect = [&](DitVariant variant, std::array<float, 3> cosines) {
    const std::vector<float> features = models::time_features(ten, variant);
    for (size_t j = 0; j < cosines.size(); ++j) {
      CHECK(features[j] == Approx(cosines[j]).margin(5e-8));
    }
    CHECK(features[128] == Approx(-0.5440211).margin(5e-8));
  };
  expect(DitVariant::kPaper, {-0.8390715f, -0.9929210f, -0.7212890f});
  expect(DitVariant::kDiffusers, {-0.8390715f, -0.9922812f, -0.7144617f});
}

TEST_CASE("sizes of diffusion transformers that do not fit are refused") {
  CHECK_THROWS_AS(models::Dit({.pixels = 9, .patch = 2, .width = 16, .heads = 2}), ConfigError);
  CHECK_THROWS_AS(models::Dit({.pixels = 8, .patch = 2, .width = 16, .heads = 3}), ConfigError);
  CHECK_THROWS_AS(models::find_dit_preset("dit-xxl2"), ConfigError);
}

}  // namespace shale::test
