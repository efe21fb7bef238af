// shale ckpt export --to onnx: image classifiers and diffusion transformers.
#include <cstdio>
#include <memory>

#include "shale/base/error.h"
#include "shale/comm/checkpoint/reader.h"
#include "shale/kernels/elementwise.h"
#include "shale/models/diffusion/description.h"
#include "shale/models/image/classifier.h"
#include "shale/models/tools/ckpt.h"
#include "shale/models/weights/checkpoint_values.h"

namespace shale::models::ckpt {
namespace {

using Tensors = std::vector<Tensor>;

OnnxExport export_dit(CheckpointReader& reader, const std::string& text, bool ema,
                      const std::string& out) {
  const DiffusionDescription about = parse_description(text, reader.path());
  Context context({});
  Dit model(about.model);
  materialize(model, context, DType::kF32, /*seed=*/0);
  for (const Parameter* parameter : model.parameters()) {
    const std::vector<float> values =
        read_values(reader, parameter->full_name(), parameter->shape, ema);
    kernels::copy(context.exec(), {.x = from_host<float>(context, values, parameter->shape),
                                   .y = parameter->value});
  }
  const int64_t pixels = about.model.pixels;
  const Tensors inputs = {zeros(context, {1, pixels, pixels, about.model.channels}, DType::kF32),
                          zeros(context, {1, kTimeFeatures}, DType::kF32),
                          zeros(context, {1}, DType::kI32)};
  return export_onnx(model,
                     [&](const Tensors& in) { return Tensors{model.forward(in[0], in[1], in[2])}; },
                     inputs, out,
                     {.input_names = {"x", "times", "labels"},
                      .output_names = {"output"},
                      .metadata = {{"description", text}}});
}

OnnxExport export_any(const std::string& path, bool ema, const std::string& out) {
  if (is_image_classifier(path)) {
    return ImageClassifier(path, std::make_shared<Context>(ContextOptions{}), DType::kF32, ema)
        .export_onnx(out);
  }
  CheckpointReader reader(find_checkpoint(path));
  const Json diffusion = checkpoint_fact(reader, kDiffusionFact);
  if (!diffusion.is_null()) return export_dit(reader, diffusion.dump(), ema, out);
  throw ConfigError(cat(reader.path(),
                        ": --to onnx needs a run of train_image or train_diffusion; "
                        "for a language model use: shale ckpt export --to hf, or --to gguf"));
}

}  // namespace

void export_to_onnx(const std::string& path, bool ema, const std::string& out) {
  const OnnxExport done = export_any(path, ema, out);
  std::printf("wrote %s: %s, %s of weights, %s\n", out.c_str(), counted(done.nodes, "node").c_str(),
              format_bytes(static_cast<double>(done.weight_bytes)).c_str(),
              done.fixed_batch.empty() ? "any batch size" : "a batch size of 1");
}

}  // namespace shale::models::ckpt
