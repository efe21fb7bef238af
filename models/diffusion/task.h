#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shale/models/diffusion/config.h"
#include "shale/models/diffusion/data.h"
#include "shale/models/diffusion/dit_weights.h"
#include "shale/models/training/task.h"

namespace shale::models {

// Training of a diffusion transformer.
class DiffusionTask : public Task {
 public:
  // `config` must be resolved. opened: a task whose data this one shares, without opening stored
  // weights; null: opens data and weights. Throws MissingInputError, DataError, or ConfigError for
  // impossible input.
  explicit DiffusionTask(const DiffusionTrainConfig& config, const DiffusionTask* opened = nullptr,
                         const DataReading& reading = {});
  ~DiffusionTask() override;

  Module& model() override { return *model_; }
  std::vector<Module*> units() override { return model_->blocks(); }
  std::unique_ptr<Task> twin(const RunConfig& run) const override {
    return std::make_unique<DiffusionTask>(DiffusionTrainConfig{config_, run}, this);
  }
  comm::ModelPlan plan() const override { return {.has_whole_samples = true}; }
  void initialize(const TaskContext& run) override;

  int64_t samples_per_epoch() const override { return data_.train_images; }
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
  // Writes samples: pictures as a grid in a PNG file, latents as a safetensors file.
  void show(const TaskContext& run, int64_t step) override;
  void finish(const TaskContext& run) override;

  SampleUnit unit() const override;
  std::vector<std::string> summary() const override;
  std::map<std::string, std::string> same_on_all_ranks() const override;
  std::map<std::string, std::string> facts() const override;
  std::map<std::string, std::string> data_checksums() const override;

 protected:
  std::unique_ptr<Module> make_model() const override;

 private:
  Dit& dit() { return static_cast<Dit&>(here()); }
  BatchSource noisy(BatchSource images, bool evaluates) const;

  const DiffusionConfig config_;
  const BatchLayout batches_;  // batches of all ranks
  const uint64_t seed_;
  const std::string folder_;  // folder for samples
  std::shared_ptr<DamagedImages> damaged_;
  const DiffusionData data_;
  std::unique_ptr<Dit> model_;
  std::unique_ptr<DitWeights> init_;  // weights of --init; null: starts with random weights
};

}  // namespace shale::models
