#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shale/models/image/config.h"
#include "shale/models/image/image_weights.h"
#include "shale/models/training/task.h"
#include "shale/models/training/watch_reading.h"
#include "shale/runtime/data/images/image_batches.h"

namespace shale::models {

// Training of an image classifier.
class ImageTask : public Task {
 public:
  // `config` must be resolved. opened: a task whose data this one shares, without opening stored
  // weights; null: opens data and weights. Throws MissingInputError, DataError, or ConfigError for
  // impossible input.
  explicit ImageTask(const ImageTrainConfig& config, const ImageTask* opened = nullptr,
                     const DataReading& reading = {});
  ~ImageTask() override;

  Module& model() override { return *model_; }
  std::vector<Module*> units() override { return model_->blocks(); }
  std::unique_ptr<Task> twin(const RunConfig& run) const override {
    return std::make_unique<ImageTask>(ImageTrainConfig{config_, run}, this);
  }
  comm::ModelPlan plan() const override { return {.has_whole_samples = true}; }
  void prepare(const TaskContext& run) override;
  void initialize(const TaskContext& run) override;

  int64_t samples_per_epoch() const override { return data_.train->size(); }
  BatchSource train_batches(const BatchPlan& plan) override;
  Tensor loss(const DeviceBatch& batch) override;
  std::vector<nn::Piece> pieces() override { return model_->pieces(); }
  Tensor run_pieces(const comm::PieceRange& some, const Tensor& x,
                    const DeviceBatch& batch) override;
  Shape boundary(int64_t samples) const override;
  double step_weight(int64_t step) const override;

  void check_evaluation() const override;
  Evaluation evaluate(const TaskContext& run) override;
  void open_output() override;
  void finish(const TaskContext& run) override;

  std::string command_to_try(const std::string& out) const override;
  SampleUnit unit() const override;
  std::vector<std::string> summary() const override;
  std::map<std::string, std::string> same_on_all_ranks() const override;
  std::map<std::string, std::string> facts() const override;
  std::map<std::string, std::string> data_checksums() const override;
  std::map<std::string, std::string> attachments() const override;

 protected:
  std::unique_ptr<Module> make_model() const override;

 private:
  ImageModel& image_model() { return static_cast<ImageModel&>(here()); }
  Tensor softening_of(const DeviceBatch& batch) const;
  ImageExport export_of() const;

  const ImageConfig config_;
  const BatchLayout batches_;  // batches of all ranks
  const uint64_t seed_;
  const ImageSplits data_;
  const Augmentation augmentation_;
  const MixOptions mix_;
  std::shared_ptr<DamagedImages> damaged_;
  std::unique_ptr<comm::ProcessGroup> norm_group_;  // ranks that share batch-norm statistics
  std::unique_ptr<ImageModel> model_;
  std::optional<ImageWeights> init_;
};

}  // namespace shale::models
