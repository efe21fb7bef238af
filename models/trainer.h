#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/data_parallel.h"
#include "comm/process_group.h"
#include "comm/world.h"
#include "models/language_model.h"
#include "models/training_config.h"
#include "runtime/data/batches.h"
#include "runtime/io/metrics.h"
#include "runtime/io/progress.h"
#include "runtime/optim/optimizer.h"

namespace shale::models {

// Trains a language model on the ranks of a World: everything between the options and the exit
// code. All members are set up by the constructor, so that what cannot work fails before the first
// step.
class Trainer {
 public:
  // `config` is resolved. Collective.
  Trainer(const TrainConfig& config, comm::World& world);
  ~Trainer();

  // Trains, evaluates, samples, exports as the options say. Collective.
  void run();

 private:
  void build_model();
  void build_optimizer();
  void open_output();

  StepMetrics train_step(int64_t step);
  // Forward and backward of one micro-batch; returns the sum of its losses, on the device.
  Tensor micro_step(int64_t step, const Batch& batch, bool last);
  void check_finite(int64_t step, float loss);
  float global_mean_loss(const std::vector<Tensor>& micro_losses);

  void prepare_evaluation();
  void evaluate(int64_t step);
  std::vector<int32_t> prompt() const;
  void sample();
  void report(const StepMetrics& metrics);

  Tensor upload(const std::vector<int32_t>& tokens, const Batch& batch);
  bool is_main() const { return world_.rank() == 0; }
  int64_t tokens_per_step() const { return config_.global_batch * config_.seq_len; }

  const TrainConfig config_;
  comm::World& world_;
  DatasetSplits data_;
  std::unique_ptr<comm::ProcessGroup> group_;
  Context context_;
  std::unique_ptr<LanguageModel> model_;
  std::unique_ptr<comm::DataParallel> parallel_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::Schedule schedule_;
  BatchLayout layout_;
  std::unique_ptr<Prefetcher> batches_;
  std::optional<EvalSampler> eval_sampler_;
  std::unique_ptr<MetricsWriter> metrics_;
  std::unique_ptr<Progress> progress_;
  double peak_flops_ = 0;  // of one rank's device; 0: unknown
};

}  // namespace shale::models
