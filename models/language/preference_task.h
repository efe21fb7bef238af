#pragma once

#include <vector>

#include "shale/models/language/task.h"
#include "shale/runtime/data/tokens/batches.h"

namespace shale::models {

// Direct preference optimization (Rafailov et al., arXiv:2305.18290): raises the log-probability of
// the first of two answers over that of the second, relative to the initial model. Let s be the sum
// of the log-probabilities of an answer's tokens, r the value of s in the initial model, b beta,
// and d = (s_chosen - s_rejected) - (r_chosen - r_rejected). The loss of a pair is softplus(-b d).
//
// r is computed once, before the first step, and stored in checkpoints, so no second model is
// needed. A sample is a pair, i.e. two rows of a batch. Validations also report:
// - accuracy: fraction of pairs with d > 0
// - margin: mean of b d
// - chosen_reward, rejected_reward: means of b (s_chosen - r_chosen) and b (s_rejected -
//   r_rejected)
class PreferenceTask : public LanguageTask {
 public:
  // Throws as LanguageTask does; DataError if no pair has answers that fit into a row.
  explicit PreferenceTask(const TrainConfig& config, const PreferenceTask* opened = nullptr,
                          const DataReading& reading = {});

  std::unique_ptr<Task> twin(const RunConfig& run) const override {
    return std::make_unique<PreferenceTask>(TrainConfig{config(), run}, this);
  }
  void initialize(const TaskContext& run) override;
  int64_t samples_per_epoch() const override { return train_.size(); }
  BatchSource train_batches(const BatchPlan& plan) override;
  Tensor loss(const DeviceBatch& batch) override;
  std::vector<nn::Piece> pieces() override { return {}; }
  double step_weight(int64_t step) const override;
  void check_evaluation() const override;
  Evaluation evaluate(const TaskContext& run) override;
  SampleUnit unit() const override;
  std::map<std::string, std::string> attachments() const override;

 private:
  // Pairs of a store whose answers fit into a row, with r_chosen - r_rejected and r_chosen of each
  // pair. r_chosen is empty if it is unknown: an earlier version of Shale began the run.
  struct Pairs {
    std::shared_ptr<const ExampleStore> examples;  // null: no pairs
    std::vector<int64_t> numbers = {};
    std::vector<float> reference = {}, chosen = {};

    int64_t size() const { return std::ssize(numbers); }
  };
  Pairs usable(const std::shared_ptr<const ExampleStore>& examples) const;
  // Fills rows 2 row and 2 row + 1 with pair `index`. If there is no such pair, the rows have no
  // targets.
  void fill(const Pairs& pairs, int64_t index, const TokenBatch& tokens, int64_t row) const;
  void make_batch(const Pairs& pairs, const std::vector<int64_t>& indices, Batch& batch) const;
  // Returns -s_chosen and -s_rejected: [pairs, 2].
  Tensor answer_losses(const DeviceBatch& batch);
  // Results of a validation, summed over pairs: accuracy, margin, rewards.
  struct Figures;
  void add_figures(const Pairs& pairs, const std::vector<int64_t>& indices, Figures& to) const;
  void compute_reference(const TaskContext& run, Pairs& pairs);
  void load_reference(const TrainConfig& config);

  double beta_;
  Pairs train_, val_;
  bool keeps_ = false;  // true in a validation: loss() sets kept_losses_ and kept_margin_
  Tensor kept_losses_, kept_margin_;  // answer_losses() of the last loss, and its b d
};

// Makes the task that --task selects.
std::unique_ptr<LanguageTask> make_language_task(const TrainConfig& config,
                                                 const DataReading& reading = {});

}  // namespace shale::models
