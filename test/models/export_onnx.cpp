// Exports ResNet, ViT and DiT to ONNX. test/oracles/onnx_files.py runs the files in onnxruntime.
#include <cmath>

#include "shale/kernels/elementwise.h"
#include "shale/models/dit/dit.h"
#include "shale/models/image/model.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/formula.h"
#include "shale/test/support/onnx.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

using Tensors = std::vector<Tensor>;

Tensor made(Context& context, const std::string& name, const Shape& shape, float base,
            float scale) {
  const Formula formula(name, /*seed=*/1);
  std::vector<float> values(size_t(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = formula.value(int64_t(i), base, scale);
  return from_host<float>(context, values, shape);
}

// Allocates a module's parameters and sets them to values that affect every layer.
void fill(Module& module, Context& context) {
  materialize(module, context, DType::kF32, /*seed=*/1);
  const auto set = [&](const std::string& name, const Shape& shape, const Tensor& to) {
    const bool is_gain = shape.ndim() == 1 && !name.ends_with("bias") && !name.ends_with("mean");
    const auto inputs = float(shape.numel() / shape[0]);
    const float scale = shape.ndim() > 1 ? std::sqrt(6 / inputs) : 0.5f;
    kernels::copy(context.exec(),
                  {.x = made(context, name, shape, is_gain ? 1 : 0, scale), .y = to});
  };
  for (const Parameter* p : module.parameters()) set(p->full_name(), p->shape, p->value);
  for (const Buffer* b : module.buffers()) {
    if (b->persistent) set(b->full_name(), b->shape, b->value);
  }
}

models::ImageModelConfig config_of(const std::string& name) {
  if (name == "vit") {
    return {.family = "vit",
            .classes = 7,
            .pixels = 16,
            .layers = 2,
            .width = 24,
            .heads = 3,
            .patch = 4};
  }
  models::ImageModelConfig config = models::find_image_preset(name).model;
  config.classes = 7, config.pixels = 32;
  return config;
}

}  // namespace

TEST_CASE("image classifiers are exported with their parameters") {
  for (const char* name : {"vit", "resnet18-small", "resnet50"}) {
    CAPTURE(name);
    Context context(small_context());
    const auto model = models::make_image_model(config_of(name));
    fill(*model, context);
    const int64_t pixels = model->config().pixels;
    const auto [result, file, frozen] =
        check_export(name, *model, [&](const Tensors& in) { return Tensors{model->logits(in[0])}; },
                     {made(context, "images", {2, pixels, pixels, 3}, 0, 3)});
    CHECK(result.fixed_batch == "");
    CHECK(result.nodes == frozen);
    for (const Parameter* p : model->parameters()) {
      CAPTURE(p->full_name());
      CHECK(file.initializers.contains(p->full_name()));
    }
    CHECK(file.outputs.at("output").dims == std::vector<int64_t>{-1, 7});
    if (std::string(name) == "vit") {
      CHECK(file.count("LayerNormalization") == 5);
      CHECK(file.count("Softmax") == 2);
    } else {
      const int64_t convolutions = std::string(name) == "resnet50" ? 53 : 20;
      CHECK(file.count("Conv") == convolutions);
      CHECK(file.count("BatchNormalization") == convolutions);
      CHECK(file.count("Transpose") == 2);
    }
  }
}

TEST_CASE("a diffusion transformer is exported with its three inputs") {
  for (const bool learned : {false, true}) {
    Context context(small_context());
    models::Dit model({.pixels = 8,
                       .channels = 3,
                       .patch = 2,
                       .layers = 2,
                       .width = 32,
                       .heads = 4,
                       .classes = 5,
                       .learned_variance = learned});
    fill(model, context);
    const auto times = models::time_features(std::vector<double>{0.3, 700}, model.config().variant);
    const auto [result, file, frozen] =
        check_export(learned ? "dit_variance" : "dit", model,
                     [&](const Tensors& in) { return Tensors{model.forward(in[0], in[1], in[2])}; },
                     {made(context, "x", {2, 8, 8, 3}, 0, 3),
                      from_host<float>(context, times, {2, models::kTimeFeatures}),
                      from_host<int32_t>(context, std::vector<int32_t>{4, 5}, {2})},
                     {.input_names = {"x", "times", "labels"}});
    CHECK(result.fixed_batch == "");
    CHECK(result.nodes == frozen);
    CHECK(file.inputs.at("labels").type == 6);
    CHECK(file.inputs.at("times").dims == std::vector<int64_t>{-1, models::kTimeFeatures});
    CHECK(file.outputs.at("output").dims == std::vector<int64_t>{-1, 8, 8, learned ? 6 : 3});
    CHECK(file.initializers.contains("pos_embed"));
    CHECK(file.count("Softmax") == 2);
  }
}

}  // namespace shale::test
