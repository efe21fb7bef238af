#include "shale/models/diffusion/task.h"

#include <algorithm>
#include <filesystem>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/sums/ordered_sum.h"
#include "shale/models/diffusion/batches.h"
#include "shale/models/diffusion/description.h"
#include "shale/models/diffusion/loss.h"
#include "shale/models/diffusion/sample_files.h"
#include "shale/models/diffusion/sampler.h"
#include "shale/models/training/batch_ramp.h"
#include "shale/models/training/output_folder.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/distribution.h"

namespace shale::models {
namespace {

constexpr const char* kSamplesFolder = "samples";

}  // namespace

DiffusionTask::DiffusionTask(const DiffusionTrainConfig& config, const DiffusionTask* opened,
                             const DataReading& reading)
    : config_(config.diffusion),
      batches_(batch_layout(config.run, /*ranks=*/1)),
      seed_(static_cast<uint64_t>(config.run.seed)),
      folder_((std::filesystem::path(config.run.out) / kSamplesFolder).string()),
      damaged_(opened != nullptr ? opened->damaged_
                                 : std::make_shared<DamagedImages>(config_.data.max_damaged)),
      data_(opened != nullptr ? opened->data_
                              : open_diffusion_data(config_, seed_, damaged_, reading)),
      model_(std::make_unique<Dit>(
          model_config(config_, data_.pixels, data_.channels, std::ssize(data_.classes)))) {
  if (!config_.init.empty() && opened == nullptr)
    init_ = std::make_unique<DitWeights>(config_.init, *model_);
}

DiffusionTask::~DiffusionTask() = default;

void DiffusionTask::initialize(const TaskContext& run) {
  if (init_ == nullptr) return;
  run.parallel.load([&](const Parameter& parameter, int64_t first_row, const View& rows) {
    init_->read(parameter, first_row, rows);
  });
}

BatchSource DiffusionTask::noisy(BatchSource images, bool evaluates) const {
  return diffusion_batches({.images = std::move(images),
                            .kind = config_.process,
                            .variant = config_.variant,
                            .draws = config_.times,
                            .shift = config_.time_shift,
                            .no_class = model_->config().no_class(),
                            .label_dropout = config_.label_dropout,
                            .seed = seed_,
                            .evaluates = evaluates});
}

BatchSource DiffusionTask::train_batches(const BatchPlan& plan) {
  return noisy(data_.train(plan), /*evaluates=*/false);
}

Tensor DiffusionTask::loss(const DeviceBatch& batch) {
  return diffusion_loss(dit(), config_.process, batch);
}

std::unique_ptr<Module> DiffusionTask::make_model() const {
  return std::make_unique<Dit>(model_->config());
}

Tensor DiffusionTask::run_pieces(const comm::PieceRange& some, const Tensor& x,
                                 const DeviceBatch& batch) {
  const std::vector<nn::Piece> pieces = dit().pieces();
  return dit().run_pieces(pieces_in(pieces, some), x,
                          {.x = x.defined() ? Tensor() : noisy_images(batch),
                           .times = batch["times"],
                           .labels = batch["labels"],
                           .loss = [&](const Tensor& said) {
                             return loss_of_result(dit(), config_.process, batch, said);
                           }});
}

Shape DiffusionTask::boundary(int64_t samples) const {
  return {samples / model_->distribution().sample_ranks(), model_->config().tokens() + 1,
          model_->config().width};
}

double DiffusionTask::step_weight(int64_t step) const {
  return static_cast<double>(batches_.batch_at(step));
}

void DiffusionTask::check_evaluation() const {
  if (data_.val_images > 0) return;
  throw DataError(
      cat("--data ", config_.data.path,
          " has no data for validation, which --eval-every needs; raise --val-fraction"));
}

Evaluation DiffusionTask::evaluate(const TaskContext& run) {
  const Inference inference(run.context);
  const EvalRounds rounds(data_.val_images, batches_.micro_batch, config_.eval_samples);
  Prefetcher batches(noisy(data_.val(rounds, run.data.rank, run.data.count), /*evaluates=*/true));
  std::vector<double> losses;
  int64_t images = 0;
  while (const Batch* batch = batches.next()) {
    const Tensor sum = run.loss(DeviceBatch(run.context, *batch));
    losses.push_back(sum.defined() ? to_host<float>(sum).front() : 0);
    if (!run.data.counts) continue;  // another rank counts the same samples
    const auto coefficients = batch->field("coefficients").values<float>();
    for (size_t row = 0; row < coefficients.size(); row += kLossCoefficients) {
      images += coefficients[row + kWeight] > 0 ? 1 : 0;
    }
  }
  const double total = comm::ordered_sum(run.group, losses, run.data.losses);
  run.group.host().all_reduce_sum(make_view(&images, {1}), {.tag = "evaluated images"});
  return {.loss = total / static_cast<double>(images), .items = images};
}

void DiffusionTask::open_output() {
  if (config_.samples > 0) make_folder(folder_);
  if (!config_.export_dir.empty()) make_folder(config_.export_dir);
}

void DiffusionTask::show(const TaskContext& run, int64_t step) {
  if (config_.samples == 0) return;
  // Ranks that share a sharded model must run it together, so each data-parallel rank generates
  // equally many samples: a multiple of the number of ranks that split samples among them.
  const int64_t ranks = model_->distribution().sample_ranks();
  const int64_t most = (config_.samples + run.data.count - 1) / run.data.count;
  const int64_t each = (most + ranks - 1) / ranks * ranks;
  const int64_t first = each * run.data.rank, classes = std::ssize(data_.classes);
  std::vector<int32_t> labels;
  for (int64_t i = first; i < first + each; ++i) labels.push_back(int32_t(i % classes));
  const SamplerOptions options{.kind = config_.process,
                               .steps = config_.sample_steps,
                               .shift = config_.time_shift,
                               .guidance = config_.guidance,
                               .clips = data_.is_pictures,
                               .seed = seed_};
  std::vector<float> mine;
  run.with_average([&] {
    run.parallel.run([&](int rank) {
      const Tensor images = sample_images(dit(), run.context, labels, first, options);
      if (rank == 0) mine = to_host<float>(images);  // other mesh ranks have the same images
    });
  });
  if (!run.data.has_losses(run.group.rank())) mine.clear();  // another rank has the same samples
  const std::vector<float> values = gather_samples(run.group, mine);
  if (run.group.rank() != 0) return;
  write_samples((std::filesystem::path(folder_) / checkpoint_name(step)).string(),
                {.pixels = data_.pixels,
                 .channels = data_.channels,
                 .values = std::span(values).first(static_cast<size_t>(
                     config_.samples * data_.pixels * data_.pixels * data_.channels)),
                 .is_pictures = data_.is_pictures});
}

void DiffusionTask::finish(const TaskContext& run) {
  int64_t damaged = damaged_->count();
  run.group.host().all_reduce_sum(make_view(&damaged, {1}), {.tag = "damaged images"});
  if (damaged > 0) log_info(damaged, " damaged images were skipped on all ranks together");
  if (config_.export_dir.empty()) return;
  run.with_average([&] {
    export_dit(config_.export_dir, *model_, run.parallel, /*is_main=*/run.group.rank() == 0);
  });
  log_info("wrote ", config_.export_dir);
}

SampleUnit DiffusionTask::unit() const {
  return {.samples = cat("images of ", data_.pixels, " x ", data_.pixels),
          .items = "images",
          .item = "img",
          .flops_per_item = model_->flops_per_image()};
}

std::vector<std::string> DiffusionTask::summary() const {
  const DitConfig& model = model_->config();
  return {data_.summary,
          cat(config_.model, ": ", model.layers, " layers, width ", model.width, ", ", model.heads,
              " heads, ", model.tokens(), " patches of ", model.patch, " x ", model.patch, ", ",
              whole_numel(*model_), " parameters, ", data_.classes.size(), " classes; ",
              config_.process == DiffusionKind::kFlow ? "rectified flow" : "DDPM")};
}

std::map<std::string, std::string> DiffusionTask::same_on_all_ranks() const {
  return {{cat("data: ", config_.data.path), data_.summary}};
}

std::map<std::string, std::string> DiffusionTask::facts() const {
  return {{kDiffusionFact, description_json({.model = model_->config(),
                                             .process = config_.process,
                                             .time_shift = config_.time_shift,
                                             .is_pictures = data_.is_pictures,
                                             .classes = data_.classes})},
          {"number of training images", std::to_string(data_.train_images)}};
}

std::map<std::string, std::string> DiffusionTask::data_checksums() const {
  return {{"image data", cat(data_.fingerprint)}, {"image content", cat(data_.checksum)}};
}

}  // namespace shale::models
