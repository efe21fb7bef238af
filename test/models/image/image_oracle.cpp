// Compares residual networks and the vision transformer with torchvision and timm: logits, loss,
// the gradient of every parameter, running statistics, and steps of SGD. The numbers were computed
// in f64 by test/fixtures/make_images.py, which explains every key at its top.
#include <cmath>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/world.h"
#include "shale/models/image/model.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/formula.h"
#include "shale/test/support/json.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/oracle.h"

namespace shale::test {
namespace {

const char* const kCases[] = {"resnet18", "resnet50", "vit"};
const char* const kTrained[] = {"resnet18", "vit"};  // the third fixture has no steps

struct Fixture : Oracle {
  explicit Fixture(const std::string& name) : Oracle(name) {
    const Json& sizes = data["config"];
    if (name == "vit") {
      config = {.family = "vit",
                .layers = sizes["layers"].integer(),
                .width = sizes["width"].integer(),
                .heads = sizes["heads"].integer(),
                .patch = sizes["patch"].integer()};
    } else {
      config = models::find_image_preset(name).model;
    }
    config.classes = sizes["classes"].integer();
    config.pixels = sizes["pixels"].integer();
  }
  models::ImageModelConfig config;
};

void fill_weights(const Parameter& parameter, const View& to, uint32_t seed) {
  const std::string name = parameter.full_name();
  const Formula formula(name, seed);
  const Shape& shape = parameter.shape;
  float base = 0, scale = 0.25f;
  if (shape.ndim() == 2 || shape.ndim() == 4) {
    const auto inputs = double(shape.numel() / shape[0]);
    scale = float(std::sqrt(24 / inputs));
  } else if (shape.ndim() == 1 && name.ends_with(".weight")) {
    base = 1, scale = 0.5f;
  }
  float* values = to.as<float>();
  for (int64_t e = 0; e < parameter.numel(); ++e) values[e] = formula.value(e, base, scale);
}

Batch batch_of(const Fixture& fixture) {
  const int64_t P = fixture.config.pixels;
  Batch batch{.count = fixture.images};
  batch.set("images", DType::kF32, {fixture.images, P, P, 3});
  const auto labels = batch.set("labels", DType::kI32, {fixture.images}).values<int32_t>();
  const auto images = batch.set("images", DType::kF32, {fixture.images, P, P, 3}).values<float>();
  const Formula pixels("images", fixture.seed), classes("labels", fixture.seed);
  for (size_t i = 0; i < images.size(); ++i) images[i] = pixels.value(int64_t(i), 0, 4);
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = int32_t(classes.word(int64_t(i)) % uint32_t(fixture.config.classes));
  }
  return batch;
}

// A model with a fixture's weights on one rank.
struct Loaded {
  explicit Loaded(const Fixture& fixture)
      : context(small_context()),
        model(models::make_image_model(fixture.config)),
        parallel(*model, model->blocks(), context, *group, {}),
        batch(context, batch_of(fixture)) {
    parallel.load([&](const Parameter& parameter, int64_t, const View& to) {
      fill_weights(parameter, to, fixture.seed);
    });
  }

  comm::World world{0, nullptr};
  std::unique_ptr<comm::ProcessGroup> group = world.group();
  Context context;
  std::unique_ptr<models::ImageModel> model;
  comm::DataParallel parallel;
  DeviceBatch batch;
};

void check_logits(const Fixture& fixture, const char* key, const Tensor& logits) {
  CAPTURE(key);
  REQUIRE(logits.shape() == Shape{fixture.images, fixture.config.classes});
  const std::vector<float> got = to_host<float>(logits);
  std::vector<double> want;
  for (const Json& row : fixture.data[key]) {
    for (const Json& value : row) want.push_back(value.real());
  }
  CHECK(max_error(got, want) <= fixture.allowed(key) * max_abs(want));
}

}  // namespace

TEST_CASE("logits, loss, gradients and statistics of image models are torch's") {
  for (const char* name : kCases) {
    CAPTURE(name);
    const Fixture fixture(name);
    Loaded run(fixture);
    run.context.update_step([](StepState& s) { s.grad_scale = 1; });
    const Tensor loss = run.model->loss(run.batch["images"], run.batch["labels"]);
    run.parallel.begin_backward(true);
    backward(loss);
    run.parallel.finish_gradients();
    CHECK(std::abs(to_host<float>(loss).front() / fixture.data["loss"].get<double>() - 1) <=
          fixture.allowed("loss"));
    CHECK(run.model->parameters().size() == fixture.data["gradients"].size());
    for (const Parameter* parameter : run.model->parameters()) {
      check_summary(fixture, "gradients", parameter->full_name(), parameter->value.grad());
    }
    CHECK(run.model->buffers().size() == fixture.data["buffers"].size());
    for (const Buffer* buffer : run.model->buffers()) {
      check_summary(fixture, "buffers", buffer->full_name(), buffer->value);
    }
    {
      const Inference inference(run.context);
      check_logits(fixture, "eval_logits", run.model->logits(run.batch["images"]));
    }
    const NoGrad no_grad(run.context);
    check_logits(fixture, "logits", run.model->logits(run.batch["images"]));
  }
}

TEST_CASE("steps of SGD on image models go as torch's") {
  for (const char* name : kTrained) {
    CAPTURE(name);
    const Fixture fixture(name);
    const auto model = models::make_image_model(fixture.config);
    check_steps(
        fixture, *model, model->blocks(),
        [&](const DeviceBatch& batch) { return model->loss(batch["images"], batch["labels"]); },
        fixture.data["config"]["momentum"].real(),
        [&](const Parameter& parameter, const View& to) {
          fill_weights(parameter, to, fixture.seed);
        },
        batch_of(fixture));
  }
}

TEST_CASE("image models have the sizes that are published") {
  struct Published {
    const char* preset;
    int64_t parameters;
    double multiply_adds;  // multiply-adds of a forward pass at 224 pixels, in units of 1e9
  };
  // The numbers are from the tables of torchvision and timm. For a vision transformer, timm counts
  // only matmuls.
  for (const auto& [preset, parameters, multiply_adds] : {Published{"resnet18", 11'689'512, 1.81},
                                                          {"resnet50", 25'557'032, 4.09},
                                                          {"vit-s16", 22'050'664, 4.6},
                                                          {"vit-b16", 86'567'656, 17.6},
                                                          {"vit-l16", 304'326'632, 61.6}}) {
    CAPTURE(preset);
    const auto model = models::make_image_model(models::find_image_preset(preset).model);
    int64_t count = 0;
    for (const Parameter* parameter : model->parameters()) count += parameter->numel();
    CHECK(count == parameters);
    CHECK(model->flops_per_image() / 6e9 == Approx(multiply_adds).epsilon(0.005));
  }
}

}  // namespace shale::test
