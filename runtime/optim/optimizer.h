#pragma once

#include <memory>
#include <string>
#include <vector>

#include "shale/runtime/nn/state_part.h"
#include "shale/runtime/optim/shard.h"

namespace shale::optim {

// A state tensor of an optimizer, for memory tables.
struct OptimState {
  std::string name;   // "m", "v"
  Tensor value;       // a vector
  size_t shard = 0;   // index into shards()
  int64_t block = 1;  // elements of the shard that one value is for, in order
};

// Steps shards from their gradients. Learning rate, bias corrections and the clip factor are read
// by the kernels from StepState, which prepare() fills.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // Sets the per-step values: `step` counts from 0, lr is the scheduled rate. Call before step().
  void prepare(Context& context, int64_t step, float lr);
  // How many updates were done before this one: bias corrections count them. prepare() says `step`,
  // which a run that skips steps corrects before step().
  virtual void set_updates(Context&, int64_t /*done*/) {}
  // One update of every shard. Parameters without a gradient count as having gradient 0.
  void step();
  void zero_grad() { shale::zero_grad(shards_); }

  // The parts of step(), for those who step shards when each is ready (runtime/offload): once all
  // gradients are complete, what concerns all shards; then each shard's update, which only queues
  // kernels. The rounded parameters go to `compute`.
  virtual void begin_step() {}
  virtual void update(size_t shard, const Tensor& compute) = 0;

  const std::vector<OptimShard>& shards() const { return shards_; }
  const std::vector<OptimState>& states() const { return states_; }
  // All that a resumed run needs besides masters and the number of updates done. A part is whole
  // where that does not depend on how its parameter is cut over ranks.
  virtual std::vector<StatePart> state_parts() const;

 protected:
  explicit Optimizer(std::vector<OptimShard> shards) : shards_(std::move(shards)) {}
  // A vector of `initial`, the last of states(). Memory that runs out is asked for by the shard.
  Tensor add_state(OptimState state, int64_t count, DType dtype, double initial = 0);
  // states()[index] of a class that adds states for all shards in turn.
  const Tensor& state(size_t shard, size_t index) const {
    return states_[index * shards_.size() + shard].value;
  }

 private:
  std::vector<OptimShard> shards_;
  std::vector<OptimState> states_;
};

// What one call of a kernel steps: neighbouring spans with the same options, and the padding
// between them, which is zero and stays so.
struct OptimRun {
  int64_t offset = 0;  // in the shard's buffers
  int64_t count = 0;
  bool decay = false;
};
std::vector<OptimRun> runs_of(const OptimShard& shard);

// An optimizer to which an element of a parameter is as good as any other.
class ElementwiseOptimizer : public Optimizer {
 public:
  void update(size_t shard, const Tensor& compute) override;

 protected:
  explicit ElementwiseOptimizer(std::vector<OptimShard> shards);
  virtual void step_run(size_t shard, const OptimRun& run, const View& compute) = 0;
  // A state of `initial` per shard, of one value per `block` elements.
  void add_states(const std::string& name, DType dtype = DType::kF32, int64_t block = 1,
                  double initial = 0);
  // The run's part of a vector of the shard, or of one with a value per `block` elements; undefined
  // if the vector is.
  static View part(const Tensor& vector, const OptimRun& run, int64_t block = 1);

 private:
  std::vector<std::vector<OptimRun>> runs_;  // of each shard
};

// How an optimizer keeps its moments.
enum class Moments : uint8_t {
  kF32,   // 4 bytes each
  kBF16,  // 2; needs decay rates below 1 - 2^-8, or a moment could not shrink
  kInt8,  // 1 and 1/64: 8 bits, block-wise (arXiv:2110.02861)
};

// The names are those of the paper below.
struct AdamWOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  float weight_decay = 0.1f;  // on parameters that declare decay: not norms, not biases
  Moments moments = Moments::kF32;
};

// Adam with decoupled weight decay (arXiv:1711.05101, algorithm 2). Throws ConfigError for rates
// that the moments' format does not admit.
class AdamW : public ElementwiseOptimizer {
 public:
  AdamW(std::vector<OptimShard> shards, const AdamWOptions& options);
  void set_updates(Context& context, int64_t done) override;

 private:
  void step_run(size_t shard, const OptimRun& run, const View& compute) override;
  void step_run_8bit(size_t shard, const OptimRun& run, const View& compute);
  AdamWOptions options_;
};

// The names are those of the paper below.
struct LionOptions {
  float beta1 = 0.9f;
  float beta2 = 0.99f;
  float weight_decay = 0.1f;        // as AdamW's
  Moments moments = Moments::kF32;  // or kBF16
};

// Sign descent with momentum (arXiv:2302.06675, program 1): one moment. Wants a learning rate a
// third to a tenth of AdamW's, and a decay as much larger. Throws ConfigError as AdamW.
class Lion : public ElementwiseOptimizer {
 public:
  Lion(std::vector<OptimShard> shards, const LionOptions& options);

 private:
  void step_run(size_t shard, const OptimRun& run, const View& compute) override;
  LionOptions options_;
};

// Momentum and decay of Sgd; the rate is prepare()'s.
struct SgdOptions {
  float momentum = 0.9f;  // 0: no state
  float weight_decay = 0;
};

// Gradient descent with heavy-ball momentum, m = momentum * m + g.
class Sgd : public ElementwiseOptimizer {
 public:
  Sgd(std::vector<OptimShard> shards, const SgdOptions& options);

 private:
  void step_run(size_t shard, const OptimRun& run, const View& compute) override;
  SgdOptions options_;
};

}  // namespace shale::optim
