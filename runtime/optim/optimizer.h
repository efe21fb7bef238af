#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "shale/base/exec.h"
#include "shale/runtime/nn/state_part.h"
#include "shale/runtime/optim/shard.h"

namespace shale::optim {

// A state tensor of an optimizer, such as a moment, and its relation to the shard.
struct OptimState {
  std::string name;   // name, such as "m" or "v"
  Tensor value;       // values, as a vector
  size_t shard = 0;   // index into shards()
  int64_t block = 1;  // number of consecutive elements of the shard per value
  int64_t first = 0;  // index in the shard of the first value's first element
  OverReplicas replicas = OverReplicas::kSame;
};

// Updates shards from their gradients. Kernels read learning rate, bias corrections and clip factor
// from the optimizer's own StepState in device memory. So several optimizers in one context can
// have different rates. The clip factor of a gradient stays valid until zero_grad(), whatever
// happens in between.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Sets the per-step values. step: counted from 0. lr: the scheduled learning rate. Call it before
  // step(), and before forward, because the context's random numbers depend on the step. Throws
  // ConfigError for a parameter whose `trainable` changed after it got memory.
  void prepare(Context& context, int64_t step, float lr);
  // Sets the number of updates done so far, for bias corrections. prepare() sets it to `step`; a
  // run that has skipped steps must correct it before step().
  void set_updates(int64_t done);
  // Updates every shard once. A parameter without a gradient is treated as having gradient 0.
  // Throws InternalError unless prepare() was called since the last step().
  void step();
  void zero_grad() { shale::zero_grad(shards_); }
  // True if the prepared step requires gradients that are reduced over the replicas of hybrid
  // sharding. False if it uses the unreduced gradient of each replica.
  virtual bool needs_replica_sum() const { return true; }

  // Parts of step(), for callers that step each shard when it is ready (runtime/offload).
  // begin_step() does what concerns all shards; call it when all gradients are complete.
  // step_shard() steps one shard, and only queues kernels. It writes the rounded parameters to
  // `compute`. needs_all_gradients(): true if begin_step() reads all gradients.
  virtual bool needs_all_gradients() const { return false; }
  virtual void begin_step() {}
  void step_shard(size_t shard, const Tensor& compute);
  // Tensors that step_shard() changes: master, states and average.
  std::vector<Tensor> memory_of(size_t shard) const;
  // Returns the step's values in the memory that prepare() wrote. While the result is held,
  // prepare() and set_updates() write to new memory. Throws ConfigError for shards that were
  // clipped separately.
  std::shared_ptr<const Storage> hold_values();
  // Returns the values for shards that are stepped in another context. The code that steps the
  // shards must set them.
  StepState& values_in(const Context& context);

  // Starts to keep an exponential moving average of the masters, beginning with their present
  // values:
  //
  // average = decay average + (1 - decay) master
  //
  // It is updated after every update that is not skipped. Averages are f32, in the memory and with
  // the sharding of the masters. Throws ConfigError for a decay outside [0, 1), DTypeError for
  // masters that are not f32.
  void keep_average(double decay);
  bool keeps_average() const { return !averages_.empty(); }
  // Exchanges masters and averages. Call it before an evaluation and again after it, not during a
  // step. The caller must inform code that reads the masters.
  void swap_average();

  const std::vector<OptimShard>& shards() const { return shards_; }
  const std::vector<OptimState>& states() const { return states_; }
  // Returns everything that a resumed run needs besides masters and the number of updates: the
  // states of the subclass, and averages, "wte.weight/ema". StatePart::is_whole is true for a state
  // that does not depend on the sharding of its parameter.
  std::vector<StatePart> state_parts() const;

 protected:
  explicit Optimizer(std::vector<OptimShard> shards);
  virtual void update(size_t shard, const Tensor& compute) = 0;
  // Returns the states in the form in which they are saved; by default, the tensors of states().
  virtual std::vector<StatePart> own_state_parts() const;
  // Returns the Exec for kernels that step this shard: that of its gradient's context, with this
  // optimizer's step values.
  Exec exec(size_t shard);
  // Sets the bias corrections after `done` updates.
  virtual void set_corrections(StepState&, int64_t /*done*/) const {}
  static float correction(float beta, int64_t updates);  // returns 1 - beta^updates
  // prepared_step(): the step passed to the last prepare(). updates_done(): the number of updates
  // done before it.
  int64_t prepared_step() const { return static_cast<int64_t>(host_values_.step); }
  int64_t updates_done() const { return updates_done_; }
  // Adds a vector filled with `initial` to states(). If memory runs out, the message names the
  // shard.
  Tensor add_state(OptimState state, int64_t count, DType dtype, double initial = 0);
  // Returns state number `index` of a shard. Valid if the subclass added each state for all shards
  // in turn.
  const Tensor& state(size_t shard, size_t index) const {
    return states_[index * shards_.size() + shard].value;
  }

 private:
  // A copy of StepState in the memory of one context.
  struct Values {
    Context* context = nullptr;
    std::shared_ptr<Storage> memory = {};
    Tensor clipped = {};  // tensor from which the clip results were copied; undefined: no clipping
  };
  Values& values_of(const Context& context);
  void check_prepared() const;
  void add_parts(const OptimState& state, std::vector<StatePart>& parts) const;
  void upload(size_t bytes);
  void take_clipped(const OptimShard& shard);

  std::vector<OptimShard> shards_;
  std::vector<OptimState> states_;
  std::vector<OptimState> averages_;  // one average per shard; empty: no averages
  float average_share_ = 0;           // weight of the newest master: 1 - decay
  StepState host_values_;
  int64_t updates_done_ = 0;
  std::list<Values> values_;
  Values* prepared_ = nullptr;  // values that the last prepare() set
  bool stepped_ = false;        // true: step() was called since prepare()
};

// Elements that one kernel call steps: adjacent spans with equal options, and the padding between
// them. Padding is zero and stays zero.
struct OptimRun {
  int64_t offset = 0;  // offset in the shard's buffers
  int64_t count = 0;
  float lr_factor = 1;
  float weight_decay = 0;
  const Parameter* parameter = nullptr;  // parameter of the run's first span
};
// kJoined: joins adjacent spans; kOfParameters: one run per span
enum class Runs : uint8_t { kJoined, kOfParameters };
// Returns the runs of a shard. weight_decay: that of parameters that declare decay and have no
// options of their own.
std::vector<OptimRun> runs_of(const OptimShard& shard, float weight_decay,
                              Runs runs = Runs::kJoined);
// Returns the weight decay of a span's parameter.
float decay_of(const OptimSpan& span, float weight_decay);

// Base of optimizers for which the position of an element in its parameter does not matter.
class ElementwiseOptimizer : public Optimizer {
 protected:
  ElementwiseOptimizer(std::vector<OptimShard> shards, float weight_decay,
                       Runs runs = Runs::kJoined);
  void update(size_t shard, const Tensor& compute) override;
  virtual void step_run(size_t shard, const OptimRun& run, const View& compute) = 0;
  // Adds a state to each shard. It has one value per `block` elements, initially `initial`.
  void add_states(const std::string& name, DType dtype = DType::kF32, int64_t block = 1,
                  double initial = 0);
  // Returns the run's part of a shard's vector that has one value per `block` elements; undefined
  // if the vector is undefined.
  static View part(const Tensor& vector, const OptimRun& run, int64_t block = 1);
  const std::vector<OptimRun>& runs(size_t shard) const { return runs_[shard]; }

 private:
  std::vector<std::vector<OptimRun>> runs_;  // runs of each shard
};

// Storage format of an optimizer's moments.
enum class Moments : uint8_t {
  kF32,  // 4 bytes per moment
  // 2 bytes per moment; decay rates must be below 1 - 2^-8, or rounding would keep a moment from
  // shrinking
  kBF16,
  kInt8,  // 8 bits per moment and one f32 scale per block: 1 + 1/64 bytes (arXiv:2110.02861)
};

// Options of AdamW, with the names in arXiv:1711.05101.
struct AdamWOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  // Weight decay of parameters that declare decay (not norms and biases); set_parameter_options()
  // can change it per parameter.
  float weight_decay = 0.1f;
  Moments moments = Moments::kF32;
};

// Adam with decoupled weight decay (arXiv:1711.05101, algorithm 2). Throws ConfigError for beta
// values that the moments' format does not support.
class AdamW : public ElementwiseOptimizer {
 public:
  AdamW(std::vector<OptimShard> shards, const AdamWOptions& options);

 private:
  void set_corrections(StepState& values, int64_t done) const override;
  void step_run(size_t shard, const OptimRun& run, const View& compute) override;
  void step_run_8bit(size_t shard, const OptimRun& run, const View& compute);
  AdamWOptions options_;
};

// Options of Lion, with the names in arXiv:2302.06675.
struct LionOptions {
  float beta1 = 0.9f;
  float beta2 = 0.99f;
  float weight_decay = 0.1f;        // see AdamWOptions::weight_decay
  Moments moments = Moments::kF32;  // Moments::kF32 or kBF16
};

// Lion: sign descent with momentum (arXiv:2302.06675, program 1). It keeps one moment. Use a
// learning rate 3 to 10 times lower than AdamW's, and a weight decay higher by the same factor.
// Throws ConfigError for beta values that the moments' format does not support.
class Lion : public ElementwiseOptimizer {
 public:
  Lion(std::vector<OptimShard> shards, const LionOptions& options);

 private:
  void step_run(size_t shard, const OptimRun& run, const View& compute) override;
  LionOptions options_;
};

// Options of Sgd. prepare() sets the learning rate.
struct SgdOptions {
  float momentum = 0.9f;  // 0: keeps no momentum
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
