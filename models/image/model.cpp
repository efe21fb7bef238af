#include "shale/models/image/model.h"

#include "shale/base/error.h"
#include "shale/runtime/nn/distribution.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/shape.h"

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
    return {loss_of(classify(cast(in[0], compute_dtype())), {in[0], in[1], in[2]})};
  })[0];
}

Tensor ImageModel::loss_of(Tensor logits, const ClassifiedImages& batch) {
  if (keeps_logits_) kept_logits_ = logits.detach();
  const nn::Distribution& ranks = distribution();
  if (ranks.sample_ranks() == 1 && !batch.softening.defined() && !keeps_logits_) {
    return cross_entropy_(logits, batch.labels, config_.classes);
  }
  const Tensor labels = ranks.own_samples(batch.labels);
  const Tensor loss = batch.softening.defined()
                          ? soft_cross_entropy(logits, labels, ranks.own_samples(batch.softening))
                          : cross_entropy(logits, labels, config_.classes);
  return ranks.sum_over_samples(loss);
}

Tensor ImageModel::run_pieces(std::span<const nn::Piece> some, const Tensor& x,
                              const ClassifiedImages& batch) {
  struct Reset {
    ClassifiedImages& of;
    ~Reset() { of = {}; }
  };
  batch_ = batch;
  const Reset reset{batch_};
  const bool begins = !x.defined();
  return run(begins ? batch.images : x, [&](const Tensor& in) {
    Tensor y = begins ? Tensor() : in;
    for (const nn::Piece& piece : some) y = piece.run(y, {});
    return y;
  });
}

void ImageModel::keep_logits(bool keeps) {
  keeps_logits_ = keeps;
  kept_logits_ = {};
}

Tensor ImageModel::kept_logits() {
  return kept_logits_.defined() ? distribution().all_samples(contiguous(kept_logits_)) : Tensor();
}

}  // namespace shale::models
