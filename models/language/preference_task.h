#pragma once

#include <vector>

#include "shale/models/language/task.h"
#include "shale/runtime/data/tokens/batches.h"

namespace shale::models {

// Direct preference optimization (Rafailov et al., arXiv:2305.18290): of two answers the first is
// to gain on the second, against the model that the run began with. With s the log-probability of
// an answer, its tokens' added up, b beta, e the label smoothing, and
//   d = (s_chosen - s_rejected) - (r_chosen - r_rejected)
// where r is s of the beginning, the loss of a pair is
//   (1 - e) softplus(-b d) + e softplus(b d)
// r is computed once, before the first step, and checkpoints carry it: there is no second model.
// A sample is a pair, two rows of a batch.
class PreferenceTask : public LanguageTask {
 public:
  // Throws as LanguageTask; DataError if no pair has answers within a row.
  explicit PreferenceTask(const TrainConfig& config);

  void initialize(const TaskContext& run) override;
  BatchSource train_batches(const BatchPlan& plan) override;
  Tensor loss(const DeviceBatch& batch) override;
  std::vector<nn::Piece> pieces() override { return {}; }
  double step_weight(int64_t step) const override;
  void check_evaluation() const override;
  Evaluation evaluate(const TaskContext& run) override;
  SampleUnit unit() const override;
  std::map<std::string, std::string> attachments() const override;

 private:
  // The pairs of a store that have answers within a row, and r_chosen - r_rejected of each.
  struct Pairs {
    std::shared_ptr<const ExampleStore> examples;  // null: none
    std::vector<int64_t> numbers = {};
    std::vector<float> reference = {};

    int64_t size() const { return std::ssize(numbers); }
  };
  Pairs usable(const std::shared_ptr<const ExampleStore>& examples) const;
  // Rows 2 row and 2 row + 1, of the pair at that index; beyond the pairs rows without targets.
  void fill(const Pairs& pairs, int64_t index, const TokenBatch& tokens, int64_t row) const;
  void make_batch(const Pairs& pairs, const std::vector<int64_t>& indices, Batch& batch) const;
  // s_chosen - s_rejected: [pairs].
  Tensor difference(const DeviceBatch& batch);
  void compute_reference(const TaskContext& run, Pairs& pairs);
  void load_reference(const TrainConfig& config);

  double beta_, smoothing_;
  Pairs train_, val_;
};

// The task that --task names.
std::unique_ptr<LanguageTask> make_language_task(const TrainConfig& config);

}  // namespace shale::models
