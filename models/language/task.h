#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shale/models/language/config.h"
#include "shale/models/language/open_data.h"
#include "shale/models/training/task.h"
#include "shale/models/weights/hf_extras.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

namespace shale::models {

// Training of a language model on a stream of tokens. A sample is a sequence.
class LanguageTask : public Task {
 public:
  // `config` must be resolved. Opens the data and, with --init, the stored model. opened: a task
  // whose data, stored model and tokenizer this one shares; null: opens them. Throws
  // MissingInputError, DataError or ConfigError for impossible input, and as open_data().
  explicit LanguageTask(const TrainConfig& config, const LanguageTask* opened = nullptr,
                        const DataReading& reading = {});
  ~LanguageTask() override;

  Module& model() override { return *model_; }
  std::vector<Module*> units() override { return model_->blocks(); }
  int64_t parameters() override { return parameters_; }  // number of elements before quantization
  std::unique_ptr<Task> twin(const RunConfig& run) const override {
    return std::make_unique<LanguageTask>(TrainConfig{config_, run}, this);
  }
  comm::ModelPlan plan() const override;
  void initialize(const TaskContext& run) override;

  int64_t samples_per_epoch() const override { return data_.train->samples_per_epoch(); }
  BatchSource train_batches(const BatchPlan& plan) override;
  Tensor loss(const DeviceBatch& batch) override;
  std::vector<nn::Piece> pieces() override { return model_->pieces(); }
  Tensor run_pieces(const comm::PieceRange& some, const Tensor& x,
                    const DeviceBatch& batch) override;
  Shape boundary(int64_t samples) const override;
  std::unique_ptr<StepTally> tally(Context& context) override;
  void describe_tally(const std::vector<int32_t>& counts, StepMetrics& metrics) const override;
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
  const LanguageConfig& config() const { return config_; }
  LanguageModel& language_model() { return static_cast<LanguageModel&>(here()); }
  std::unique_ptr<Module> make_model() const override;
  const TrainingData& data() const { return data_; }
  // Layout of the batches of all ranks. Its steps count from the start of the run, also after a
  // resume.
  const BatchLayout& batches() const { return batches_; }
  uint64_t seed() const { return seed_; }
  void plan(const BatchPlan& plan) { batches_ = plan.layout; }
  // Sums the results of an evaluation over all ranks. losses, items: those of this rank.
  Evaluation evaluation_of(const TaskContext& run, const Tensor& losses, int64_t items) const;

 private:
  Documents documents(const DeviceBatch& batch) const;
  EvalRounds eval_rounds() const;
  BatchSource of_rank(BatchSource whole) const;
  std::vector<int32_t> prompt() const;
  void sample(const TaskContext& run);
  std::string text_of(const std::vector<int32_t>& tokens) const;

  const LanguageConfig config_;
  BatchLayout batches_;  // batches of all ranks
  const uint64_t seed_;
  std::shared_ptr<StoredModel> init_;  // model of --init; null: starts with random weights
  // Null: tokens are bytes, or numbers without text.
  std::shared_ptr<const StoredTokenizer> tokenizer_;
  HfExtras extras_;                                   // extra files for exports
  TrainingData data_;
  std::optional<AdapterShape> adapters_;  // empty: no adapters, the model's own weights are trained
  std::unique_ptr<LanguageModel> model_;
  int64_t parameters_ = 0, trained_ = 0;  // elements of all parameters; of trained parameters
  double flops_per_token_ = 0;
};

}  // namespace shale::models
