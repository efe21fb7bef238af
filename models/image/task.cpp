#include "shale/models/image/task.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/comm/parallel/data/batch_norm_sync.h"
#include "shale/comm/sums/ordered_sum.h"
#include "shale/kernels/loss.h"
#include "shale/models/image/classifier.h"
#include "shale/models/training/batch_ramp.h"
#include "shale/models/training/output_folder.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/distribution.h"
#include "shale/runtime/ops/elementwise.h"

namespace shale::models {
namespace {

ImageModelConfig model_config(const ImageConfig& config, const Augmentation& augmentation,
                              size_t classes) {
  ImageModelConfig model = find_image_preset(config.model).model;
  model.classes = static_cast<int64_t>(classes);
  model.pixels = augmentation.pixels;
  return model;
}

// Draws the model's input as a picture. The colour of its frame shows whether the answer was right.
Image framed_picture(std::span<const float> values, const Augmentation& augmentation, bool right) {
  constexpr std::array<uint8_t, 3> kGreen = {0, 160, 60}, kRed = {200, 0, 40};
  const int64_t edge = augmentation.pixels, frame = std::max<int64_t>(1, edge / 32);
  Image picture;
  picture.resize(edge + 2 * frame, edge + 2 * frame, 3);
  for (int64_t row = 0; row < picture.rows; ++row) {
    for (int64_t col = 0; col < picture.cols; ++col) {
      uint8_t* const pixel = picture.at(row, col);
      const int64_t y = row - frame, x = col - frame;
      const bool inside = y >= 0 && y < edge && x >= 0 && x < edge;
      for (size_t c = 0; c < 3; ++c) {
        pixel[c] = (right ? kGreen : kRed)[c];
        if (!inside) continue;
        const float value = values[static_cast<size_t>((y * edge + x) * 3) + c];
        const float share = value * augmentation.deviation[c] + augmentation.mean[c];
        pixel[c] = static_cast<uint8_t>(std::clamp(std::lround(255 * share), 0L, 255L));
      }
    }
  }
  return picture;
}

}  // namespace

ImageTask::ImageTask(const ImageTrainConfig& config, const ImageTask* opened,
                     const DataReading& reading)
    : config_(config.image),
      batches_(batch_layout(config.run, /*ranks=*/1)),
      seed_(static_cast<uint64_t>(config.run.seed)),
      data_(opened != nullptr ? opened->data_ : open_images(data_options(config, reading))),
      augmentation_(augmentation(config_, data_.format)),
      mix_(mix_options(config_)),
      damaged_(std::make_shared<DamagedImages>(config_.data.max_damaged)),
      model_(make_image_model(model_config(config_, augmentation_, data_.classes.size()))) {
  if (data_.classes.size() < 2) {
    throw DataError(cat("--data ", config_.data.path,
                        ": expected at least two classes, found only ", data_.classes.front(),
                        "; --data must be the folder with one folder per class"));
  }
  if (config_.init.empty() || opened != nullptr) return;
  check_normalisation(config_.init, augmentation_);
  init_.emplace(config_.init, *model_, config_.new_head);
}

ImageTask::~ImageTask() = default;

std::unique_ptr<Module> ImageTask::make_model() const {
  return make_image_model(model_->config());
}

void ImageTask::prepare(const TaskContext& run) {
  if (!config_.sync_batch_norm || run.group.size() == 1) return;
  norm_group_ = run.group.split(0, run.group.rank(), "batch norm", comm::Lane::kModel);
  comm::synchronise_batch_norm(*model_, *norm_group_);
}

void ImageTask::initialize(const TaskContext& run) {
  if (init_) init_->load(*model_, run.parallel, seed_);
}

BatchSource ImageTask::train_batches(const BatchPlan& plan) {
  return image_train_batches({.images = data_.train,
                              .augmentation = augmentation_,
                              .mix = mix_,
                              .classes = model_->config().classes,
                              .seed = seed_,
                              .layout = plan.layout,
                              .rank = plan.rank,
                              .first_step = plan.first_step,
                              .damaged = damaged_});
}

// Returns the soft targets of a training batch. Undefined for validation, whose targets are labels.
Tensor ImageTask::softening_of(const DeviceBatch& batch) const {
  return mix_.is_soft() && !model_->keeps_logits() ? batch["softening"] : Tensor();
}

Tensor ImageTask::loss(const DeviceBatch& batch) {
  return image_model().loss(batch["images"], batch["labels"], softening_of(batch));
}

Tensor ImageTask::run_pieces(const comm::PieceRange& some, const Tensor& x,
                             const DeviceBatch& batch) {
  const std::vector<nn::Piece> pieces = image_model().pieces();
  return image_model().run_pieces(pieces_in(pieces, some), x,
                                  {batch["images"], batch["labels"], softening_of(batch)});
}

Shape ImageTask::boundary(int64_t samples) const {
  return {samples / model_->distribution().sample_ranks(), model_->tokens(),
          model_->config().width};
}

double ImageTask::step_weight(int64_t step) const {
  return static_cast<double>(batches_.batch_at(step));
}

void ImageTask::check_evaluation() const {
  if (data_.val != nullptr) return;
  throw DataError(
      cat("--data ", config_.data.path,
          " has no data for validation, which --eval-every needs; raise --val-fraction"));
}

Evaluation ImageTask::evaluate(const TaskContext& run) {
  const Inference inference(run.context);
  Prefetcher batches(
      image_eval_batches({.images = data_.val,
                          .augmentation = augmentation_,
                          .rounds = {data_.val->size(), batches_.micro_batch, config_.eval_samples},
                          .rank = run.data.rank,
                          .ranks = run.data.count,
                          .damaged = damaged_}));
  const int64_t classes = model_->config().classes;
  struct KeepsLogits {
    explicit KeepsLogits(std::vector<Module*> models) : of(std::move(models)) { keep(true); }
    ~KeepsLogits() { keep(false); }
    void keep(bool keeps) const {
      for (Module* model : of) static_cast<ImageModel*>(model)->keep_logits(keeps);
    }
    std::vector<Module*> of;
  };
  const KeepsLogits keeps(models());
  std::vector<double> losses;
  Hits hits;
  int64_t shown = run.show ? 0 : config_.tensorboard_images;
  while (const Batch* batch = batches.next()) {
    const DeviceBatch on_device(run.context, *batch);
    const Tensor sum = run.loss(on_device);
    losses.push_back(sum.defined() ? to_host<float>(sum).front() : 0);
    Tensor logits;  // equal on all ranks of the mesh
    run.parallel.run([&](int) { logits = image_model().kept_logits(); });
    if (!run.data.counts || !logits.defined()) continue;  // another rank counts the same images
    const std::vector<float> scores = to_host<float>(cast(logits, DType::kF32));
    const auto labels = batch->field("labels").values<int32_t>();
    for (size_t row = 0; row < labels.size(); ++row) {
      if (labels[row] == kernels::kIgnoreTarget) continue;
      const auto width = static_cast<size_t>(classes);
      const bool right = hits.add(std::span(scores).subspan(row * width, width), labels[row]);
      if (shown == config_.tensorboard_images) continue;
      const auto bytes = static_cast<size_t>(3 * augmentation_.pixels * augmentation_.pixels);
      const auto values = batch->field("images").values<float>().subspan(row * bytes, bytes);
      run.show(cat("validation/image_", ++shown), framed_picture(values, augmentation_, right));
    }
  }
  const double total = comm::ordered_sum(run.group, losses, run.data.losses);
  run.group.host().all_reduce_sum(make_view(hits.counts.data(), {std::ssize(hits.counts)}),
                                  {.tag = "evaluated images"});
  const auto images = static_cast<double>(hits.counts[0]);
  Evaluation result{.loss = total / images, .items = hits.counts[0]};
  for (size_t k = 0; k < Hits::kTop.size(); ++k) {
    if (Hits::kTop[k] >= classes) continue;
    result.top_k[Hits::kTop[k]] = static_cast<double>(hits.counts[k + 1]) / images;
  }
  return result;
}

ImageExport ImageTask::export_of() const {
  return {.folder = config_.export_dir,
          .names = config_.export_names,
          .preset = config_.model,
          .classes = data_.classes,
          .augmentation = augmentation_};
}

std::map<std::string, std::string> ImageTask::attachments() const {
  return {{kImageModelFile, timm_config(export_of(), *model_)}};
}

void ImageTask::open_output() {
  if (!config_.export_dir.empty()) make_folder(config_.export_dir);
}

void ImageTask::finish(const TaskContext& run) {
  if (!config_.export_dir.empty()) {
    // Saving or loading the checkpoint of the last step has already averaged the buffers over all
    // ranks.
    export_image_model(export_of(), *model_, run.parallel, run.group.rank() == 0);
    log_info("wrote ", config_.export_dir);
  }
  int64_t damaged = damaged_->count();
  run.group.host().all_reduce_sum(make_view(&damaged, {1}), {.tag = "damaged images"});
  if (damaged > 0) log_info(damaged, " damaged images were skipped on all ranks together");
}

std::string ImageTask::command_to_try(const std::string& out) const {
  return cat("shale classify ", out, " PICTURE");
}

SampleUnit ImageTask::unit() const {
  return {.samples = cat("images of ", augmentation_.pixels, " x ", augmentation_.pixels),
          .items = "images",
          .item = "img",
          .flops_per_item = model_->flops_per_image()};
}

std::vector<std::string> ImageTask::summary() const {
  return {data_.summary,
          cat(config_.model, config_.init.empty() ? "" : cat(" of ", config_.init), ": ",
              whole_numel(*model_), " parameters, ", data_.classes.size(), " classes")};
}

std::map<std::string, std::string> ImageTask::same_on_all_ranks() const {
  return {{cat("data: ", config_.data.path), data_.summary}};
}

std::map<std::string, std::string> ImageTask::facts() const {
  return {{"number of training images", std::to_string(data_.train->size())},
          {"number of classes", std::to_string(data_.classes.size())}};
}

std::map<std::string, std::string> ImageTask::data_checksums() const {
  return {{"image data", cat(data_.fingerprint)}, {"image content", cat(data_.checksum)}};
}

}  // namespace shale::models
