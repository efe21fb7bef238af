#include "shale/models/image/classifier.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "shale/base/error.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/reader.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/loss.h"
#include "shale/models/image/image_weights.h"
#include "shale/models/weights/checkpoint_values.h"
#include "shale/models/weights/hf_export.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/data/images/image_batches.h"
#include "shale/runtime/io/json_object.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/softmax.h"

namespace shale::models {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// Files of the classifier at a path.
struct Description {
  std::string file;
  std::string checkpoint;  // folder of the checkpoint; empty: the path is an exported model
};

Description description_at(const std::string& path) {
  const std::string exported = (fs::path(path) / kHfConfigFile).string();
  if (const auto checkpoint = newest_checkpoint(path)) {
    return {(fs::path(*checkpoint) / kImageModelFile).string(), *checkpoint};
  }
  return {exported, ""};
}

// Reads the values of parameters and buffers, in f32.
class Values {
 public:
  Values(const std::string& path, const Description& of, const ImageModel& model) {
    if (of.checkpoint.empty()) {
      weights_.emplace(path, model, /*new_head=*/false);
    } else {
      reader_.emplace(of.checkpoint);
    }
  }
  std::vector<float> read(const std::string& name, const Shape& shape, bool averages) {
    if (reader_) return read_values(*reader_, name, shape, averages);
    std::vector<float> values(static_cast<size_t>(shape.numel()));
    weights_->read(name, make_view(values.data(), shape));
    return values;
  }

 private:
  std::optional<ImageWeights> weights_;
  std::optional<CheckpointReader> reader_;
};

}  // namespace

bool Hits::add(std::span<const float> scores, int32_t label) {
  int64_t higher = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    const float mine = scores[static_cast<size_t>(label)];
    if (scores[i] > mine || (scores[i] == mine && i < static_cast<size_t>(label))) ++higher;
  }
  ++counts[0];
  for (size_t k = 0; k < kTop.size(); ++k) counts[k + 1] += higher < kTop[k] ? 1 : 0;
  return higher == 0;
}

bool is_image_classifier(const std::string& path) {
  const Description found = description_at(path);
  if (!is_file(found.file)) return false;
  return !found.checkpoint.empty() || JsonObject::load(found.file).has("architecture");
}

ImageClassifier::ImageClassifier(const std::string& path, std::shared_ptr<Context> context,
                                 DType dtype, bool ema)
    : context_(std::move(context)), dtype_(dtype) {
  const Description found = description_at(path);
  if (!is_file(found.file)) {
    throw MissingInputError(cat(path, ": expected a run or checkpoint of train_image, or a folder ",
                                "that its --export wrote, found no ", found.file));
  }
  if (ema && found.checkpoint.empty()) {
    throw ConfigError(cat(path, ": --ema needs a checkpoint, found an exported folder"));
  }
  ImageModelConfig config;
  std::tie(config, classes_, augmentation_) = read_timm_config(found.file);
  model_ = make_image_model(config);
  Values values(path, found, *model_);
  materialize(*model_, *context_, dtype_, /*seed=*/0);
  const auto fill = [&](const std::string& name, const Shape& shape, const Tensor& to,
                        bool averages) {
    const std::vector<float> from = values.read(name, shape, averages);
    kernels::axpby(context_->exec(), {.a = from_host<float>(*context_, from, shape), .y = to});
  };
  for (Parameter* parameter : model_->parameters()) {
    fill(parameter->full_name(), parameter->shape, parameter->value, ema);
  }
  for (Buffer* buffer : model_->buffers()) {
    fill(buffer->full_name(), buffer->shape, buffer->value, /*averages=*/false);
  }
  context_->synchronize();
}

std::string ImageClassifier::description() const {
  int64_t count = 0;
  for (const Parameter* parameter : model_->parameters()) count += parameter->numel();
  const ImageModelConfig& config = model_->config();
  return cat(config.family, ", ", count, " parameters, ", classes_.size(), " classes, ",
             config.pixels, " x ", config.pixels, ", on ", context_->device(), " in ",
             dtype_name(dtype_));
}

std::vector<float> ImageClassifier::log_probabilities(std::span<const float> pictures,
                                                      int64_t count) {
  const Inference inference(*context_);
  const int64_t pixels = model_->config().pixels;
  const Tensor images = from_host<float>(
      *context_, std::vector<float>(pictures.begin(), pictures.end()), {count, pixels, pixels, 3});
  return to_host<float>(log_softmax(cast(model_->logits(images), DType::kF32), -1));
}

OnnxExport ImageClassifier::export_onnx(const std::string& path) {
  const int64_t pixels = model_->config().pixels;
  const auto list = [](const auto& values) {
    Json all = Json::array();
    for (const auto& value : values) all.push_back(value);
    return all.dump();
  };
  return shale::export_onnx(
      *model_,
      [this](const std::vector<Tensor>& in) { return std::vector<Tensor>{model_->logits(in[0])}; },
      {zeros(*context_, {1, pixels, pixels, 3}, DType::kF32)}, path,
      {.input_names = {"images"},
       .output_names = {"logits"},
       .metadata = {{"classes", list(classes_)},
                    {"mean", list(augmentation_.mean)},
                    {"deviation", list(augmentation_.deviation)}}});
}

ImageClassifier::Scores ImageClassifier::evaluate(const std::shared_ptr<const ImageDataset>& images,
                                                  const std::vector<std::string>& classes,
                                                  int64_t batch, int64_t limit,
                                                  comm::ProcessGroup& group) {
  std::vector<int32_t> label_of;  // element i: label in the model of the data set's label i
  for (const std::string& name : classes) {
    const auto found = std::ranges::find(classes_, name);
    if (found == classes_.end()) {
      throw DataError(cat("--data: expected classes of the model, such as ", classes_.front(),
                          ", found ", name));
    }
    label_of.push_back(static_cast<int32_t>(found - classes_.begin()));
  }
  const BatchSource source = image_eval_batches({.images = images,
                                                 .augmentation = augmentation_,
                                                 .rounds = {images->size(), batch, limit},
                                                 .rank = group.rank(),
                                                 .ranks = group.size(),
                                                 .damaged = std::make_shared<DamagedImages>(0)});
  Scores scores;
  Batch one;
  for (int64_t i = 0; source(i, one); ++i) {
    const std::vector<float> all = log_probabilities(one.field("images").values<float>(), batch);
    const auto labels = one.field("labels").values<int32_t>();
    for (size_t row = 0; row < labels.size(); ++row) {
      if (labels[row] == kernels::kIgnoreTarget) continue;
      const int32_t label = label_of[static_cast<size_t>(labels[row])];
      const auto of_image = std::span(all).subspan(row * classes_.size(), classes_.size());
      scores.hits.add(of_image, label);
      scores.loss -= of_image[static_cast<size_t>(label)];
    }
  }
  group.host().all_reduce_sum(
      make_view(scores.hits.counts.data(), {std::ssize(scores.hits.counts)}),
      {.tag = "evaluated images"});
  group.host().all_reduce_sum(make_view(&scores.loss, {1}), {.tag = "loss of images"});
  return scores;
}

}  // namespace shale::models
