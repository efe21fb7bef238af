#include "shale/models/image/model.h"

#include "shale/base/error.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/loss.h"

namespace shale::models {
namespace {

void check_images(const char* op, const Tensor& images, const ImageModelConfig& config) {
  check_defined(op, "images", images);
  check_shape(op, "images", images, {images.size(0), config.pixels, config.pixels, 3});
}

}  // namespace

Tensor ImageModel::logits(const Tensor& images) {
  check_images("logits", images, config_);
  return run(images, [this](const Tensor& in) { return classify(cast(in, compute_dtype())); });
}

Tensor ImageModel::loss(const Tensor& images, const Tensor& labels, const Tensor& softening) {
  check_images("loss", images, config_);
  check_shape("loss", "labels", labels, {images.size(0)});
  return run({images, labels, softening}, [this](const Tensors& in) -> Tensors {
    Tensor scores = classify(cast(in[0], compute_dtype()));
    if (in[2].defined()) return {soft_cross_entropy(scores, in[1], in[2])};
    return {cross_entropy_(scores, in[1], config_.classes)};
  })[0];
}

}  // namespace shale::models
