#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "shale/base/trace.h"
#include "shale/bench/support/kernel_recorder.h"
#include "shale/bench/support/timing.h"
#include "shale/bench/support/train_work.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/world.h"
#include "shale/models/language/family.h"
#include "shale/models/training/run_config.h"
#include "shale/models/training/step.h"
#include "shale/runtime/data/sampler.h"

namespace shale::bench {

struct TrainOptions {
  Device device = {};
  std::string model = "gpt2-124m";  // preset of a language model, image model or DiT
  int64_t layers = 0;               // 0: as in the preset
  int64_t seq_len = 256;            // tokens of a sequence
  int64_t pixels = 0;               // image edge length; 0: 224, or 32 for a DiT
  int64_t micro_batch = 4;          // samples per rank and forward
  int64_t global_batch = 0;         // samples per step; 0: micro_batch * ranks
  int64_t loss_chunk = 0;           // maximum tokens whose logits exist at a time; 0: all
  int64_t lora_rank = 0;            // LoRA rank; only the adapters are trained; 0: no adapters
  DType dtype = DType::kF32;
  int threads = 0;  // 0: this rank's part of the CPUs
  int zero = 0;     // ZeRO stage
  models::OptimizerKind optimizer = models::OptimizerKind::kAdamW;
  bool overlap = true;
  Recompute recompute = Recompute::kNone;
  models::OffloadKind offload = models::OffloadKind::kNone;
  bool offload_activations = false;
  bool cuda_graph = false;        // captures CUDA graphs, from the second step on
  bool dependent_launch = false;  // sets Exec::dependent_launch
  uint64_t seed = 1234;
};

// Phases of a step, in order: the phases of models::StepPhase, then the handling of losses.
enum class Phase { kPrepare, kForward, kBackward, kReduce, kOptimizer, kLoss };
inline constexpr int kPhases = 6;
const char* phase_name(Phase phase);

struct StepTime {
  double seconds = 0;
  double exposed_comm_seconds = 0;
  float loss = 0;  // mean loss over the global batch
};

// Bytes that training needs, by purpose, and the most memory that was held.
struct MemoryParts {
  int64_t parameters = 0;  // parameters in the compute dtype
  int64_t gradients = 0;
  int64_t optimizer = 0;          // optimizer states, and masters if the parameters are not f32
  int64_t saved_activations = 0;  // activations kept from forward to backward
  int64_t workspace = 0;          // workspace of kernels
  int64_t other = 0;              // token ids, communication buffers
  int64_t peak_reserved = 0;      // most memory that the allocator held
  int64_t peak_allocated = 0;     // most memory in use
  int64_t host_peak = 0;          // most offloaded memory, which is not part of sum()

  int64_t sum() const;
};

// Returns true for presets of image models and DiT, false for language models.
bool is_image_preset(const std::string& name);
// Returns the sizes of the language model. Throws ConfigError for a longer sequence than its
// context.
models::LanguageModelConfig language_config(const TrainOptions& options);

// Runs one rank's training steps on random tokens or images, like models::Trainer, without data
// loading, metrics and logs.
class TrainLoop : private models::StepObserver {
 public:
  // All ranks must call it. Sets `options`' global_batch, pixels and threads if they are 0.
  TrainLoop(TrainOptions& options, comm::World& world);
  ~TrainLoop() override;

  // Runs one optimizer step, which all ranks start together. All ranks must call it.
  StepTime step(KernelRecorder& recorder);

  // Returns times since the last reset_times(): slot_times() of each kernel slot in a phase,
  // phase_seconds() of the whole phase.
  const Tracer& slot_times(Phase phase) const { return tracers_[size_t(phase)]; }
  double phase_seconds(Phase phase) const { return phase_seconds_[size_t(phase)]; }
  void reset_times();

  MemoryParts memory() const;
  comm::ProcessGroup& group() { return *group_; }
  int64_t parameter_count() const;
  int64_t items_per_step() const { return options_.global_batch * work_.items; }
  const TrainWork& work() const { return work_; }
  const Device& device() const { return context_->device(); }

 private:
  void begins(models::StepPhase phase) override { begin(Phase(phase)); }
  void ends(models::StepPhase phase) override;
  void done(const models::StepOutcome& outcome) override { outcome_ = outcome; }
  void begin(Phase phase);
  void end(Phase phase);

  TrainOptions options_;
  comm::World& world_;
  BatchLayout layout_;
  std::unique_ptr<Context> context_;
  std::unique_ptr<comm::ProcessGroup> group_;  // process group for the context's device
  TrainWork work_;
  std::unique_ptr<models::TrainStep> step_;
  models::StepOutcome outcome_;         // outcome of the last step
  KernelRecorder* recorder_ = nullptr;  // recorder of the current step
  Clock::time_point phase_start_;
  int64_t steps_ = 0;
  int64_t saved_activation_bytes_ = 0;
  std::array<Tracer, kPhases> tracers_;
  std::array<double, kPhases> phase_seconds_{};
};

}  // namespace shale::bench
