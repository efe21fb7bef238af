#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/optim/shard.h"

namespace shale::optim {

// A state tensor of an optimizer, for checkpoints and memory tables.
struct OptimState {
  std::string name;  // "m", "v"
  Tensor value;      // laid out like the shard
  size_t shard = 0;  // index into shards()
};

// Steps shards from their gradients. Learning rate, bias corrections and the clip factor are read
// by the kernels from StepState, which prepare() fills.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Sets the per-step values: `step` counts from 0, lr is the scheduled rate. Call before step().
  virtual void prepare(Context& context, int64_t step, float lr);
  // One update of every shard. Parameters without a gradient count as having gradient 0.
  void step();
  void zero_grad() { shale::zero_grad(shards_); }

  const std::vector<OptimShard>& shards() const { return shards_; }
  const std::vector<OptimState>& states() const { return states_; }

 protected:
  explicit Optimizer(std::vector<OptimShard> shards) : shards_(std::move(shards)) {}
  virtual void step_span(size_t shard, const OptimSpan& span) = 0;
  // A zeroed f32 state per shard.
  void add_state(const std::string& name);
  const Tensor& state(size_t shard, size_t index) const {
    return states_[index * shards_.size() + shard].value;
  }

 private:
  std::vector<OptimShard> shards_;
  std::vector<OptimState> states_;
};

struct AdamWOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  float weight_decay = 0.1f;  // on parameters that declare decay: not norms, not biases
};

// Adam with decoupled weight decay (arXiv:1711.05101, algorithm 2).
class AdamW : public Optimizer {
 public:
  AdamW(std::vector<OptimShard> shards, const AdamWOptions& options);
  void prepare(Context& context, int64_t step, float lr) override;

 private:
  void step_span(size_t shard, const OptimSpan& span) override;
  AdamWOptions options_;
};

struct SgdOptions {
  float momentum = 0.9f;  // 0: no state
  float weight_decay = 0;
};

// Gradient descent with heavy-ball momentum, m = momentum * m + g.
class Sgd : public Optimizer {
 public:
  Sgd(std::vector<OptimShard> shards, const SgdOptions& options);

 private:
  void step_span(size_t shard, const OptimSpan& span) override;
  SgdOptions options_;
};

}  // namespace shale::optim
