#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "shale/base/exec.h"
#include "shale/runtime/nn/state_part.h"
#include "shale/runtime/optim/shard.h"

namespace shale::optim {

// A state tensor of an optimizer, with the fields that memory tables need.
struct OptimState {
  std::string name;   // "m", "v"
  Tensor value;       // a vector
  size_t shard = 0;   // index into shards()
  int64_t block = 1;  // consecutive elements of the shard per value
  int64_t first = 0;  // shard element of the first value
  OverReplicas replicas = OverReplicas::kSame;
};

// Updates shards from their gradients. Kernels read learning rate, bias corrections and clip factor
// from the optimizer's own StepState in device memory. Several optimizers in one context can
// therefore have different rates, and clipped gradients stay clipped until zero_grad() whatever
// happens in between.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Sets the per-step values: `step` counts from 0; lr is the scheduled rate. Call it before
  // step(), and before forward, because the context's random numbers depend on the step. Throws
  // ConfigError for a parameter whose `trainable` changed after it got memory.
  void prepare(Context& context, int64_t step, float lr);
  // Sets the number of updates done before this one, for bias corrections. prepare() sets it to
  // `step`; a run that skips steps must correct it before step().
  void set_updates(int64_t done);
  // Updates every shard once. A parameter without a gradient is treated as having gradient 0.
  // Throws InternalError unless prepare() was called since the last step().
  void step();
  void zero_grad() { shale::zero_grad(shards_); }
  // True if the prepared step requires gradients reduced over the replicas of hybrid sharding;
  // false: it uses each replica's own sum.
  virtual bool needs_replica_sum() const { return true; }

  // The parts of step(), for callers that step each shard when it is ready (runtime/offload).
  // begin_step() handles what concerns all shards once all gradients are complete; step_shard()
  // steps one shard and only queues kernels. Rounded parameters are written to `compute`.
  virtual bool needs_all_gradients() const { return false; }  // begin_step() reads all gradients
  virtual void begin_step() {}
  void step_shard(size_t shard, const Tensor& compute);
  // Tensors that step_shard() changes: master, states and average.
  std::vector<Tensor> memory_of(size_t shard) const;
  // The step's values in the memory that prepare() wrote. While they are held, prepare() and
  // set_updates() write to new memory. Throws ConfigError for shards that were clipped separately.
  std::shared_ptr<const Storage> hold_values();
  // Values for shards that are stepped in another context; the code that steps them there must set
  // the values.
  StepState& values_in(const Context& context);

  // From now on keeps an exponential moving average of the masters, which starts with their present
  // values:
  //   average = decay average + (1 - decay) master
  // It is updated after every update that is not skipped. Averages are f32, in the memory and with
  // the sharding of the masters. Throws ConfigError for a decay outside [0, 1), DTypeError for
  // masters that are not f32.
  void keep_average(double decay);
  bool keeps_average() const { return !averages_.empty(); }
  // Exchanges masters and averages; call it before an evaluation and again after it, not during a
  // step. The caller must inform readers of the masters.
  void swap_average();

  const std::vector<OptimShard>& shards() const { return shards_; }
  const std::vector<OptimState>& states() const { return states_; }
  // Everything that a resumed run needs besides masters and the number of updates: the class's own
  // states, and averages, "wte.weight/ema". A part is whole if it does not depend on the sharding
  // of its parameter.
  std::vector<StatePart> state_parts() const;

 protected:
  explicit Optimizer(std::vector<OptimShard> shards);
  virtual void update(size_t shard, const Tensor& compute) = 0;
  // Returns the tensors of states() by default; a class may save its states in another form.
  virtual std::vector<StatePart> own_state_parts() const;
  // Exec for kernels that step this shard: its gradient's context with this optimizer's values.
  Exec exec(size_t shard);
  // Sets the bias corrections for a number of updates already done.
  virtual void set_corrections(StepState&, int64_t /*done*/) const {}
  static float correction(float beta, int64_t updates);  // 1 - beta^updates
  // The step passed to prepare(), and the number of updates done before it.
  int64_t prepared_step() const { return static_cast<int64_t>(host_values_.step); }
  int64_t updates_done() const { return updates_done_; }
  // Adds a vector filled with `initial` to states(). The shard is named if memory runs out.
  Tensor add_state(OptimState state, int64_t count, DType dtype, double initial = 0);
  // State number `index` of a shard, if the class added each state for all shards in turn.
  const Tensor& state(size_t shard, size_t index) const {
    return states_[index * shards_.size() + shard].value;
  }

 private:
  // A StepState in a context's memory.
  struct Values {
    Context* context = nullptr;
    std::shared_ptr<Storage> memory = {};
    Tensor clipped = {};  // source of the clip results in `memory`; undefined: no clipping
  };
  Values& values_of(const Context& context);
  void check_prepared() const;
  void add_parts(const OptimState& state, std::vector<StatePart>& parts) const;
  void upload(size_t bytes);
  void take_clipped(const OptimShard& shard);

  std::vector<OptimShard> shards_;
  std::vector<OptimState> states_;
  std::vector<OptimState> averages_;  // one average per shard; empty: no averages
  float average_share_ = 0;           // 1 - decay
  StepState host_values_;
  int64_t updates_done_ = 0;
  std::list<Values> values_;
  Values* prepared_ = nullptr;  // values set by prepare()
  bool stepped_ = false;        // step() was called since prepare()
};

// Elements that one kernel call steps: adjacent spans with equal options, and the padding between
// them, which is and stays zero.
struct OptimRun {
  int64_t offset = 0;  // offset in the shard's buffers
  int64_t count = 0;
  float lr_factor = 1;
  float weight_decay = 0;
  const Parameter* parameter = nullptr;  // parameter of the run's first span
};
enum class Runs : uint8_t { kJoined, kOfParameters };  // kOfParameters: each span separately
// Runs of a shard. weight_decay: for parameters that declare decay and have no options of their
// own.
std::vector<OptimRun> runs_of(const OptimShard& shard, float weight_decay,
                              Runs runs = Runs::kJoined);
// Weight decay of a span's parameter.
float decay_of(const OptimSpan& span, float weight_decay);

// Base of optimizers that update each element independently of its position in a parameter.
class ElementwiseOptimizer : public Optimizer {
 protected:
  ElementwiseOptimizer(std::vector<OptimShard> shards, float weight_decay,
                       Runs runs = Runs::kJoined);
  void update(size_t shard, const Tensor& compute) override;
  virtual void step_run(size_t shard, const OptimRun& run, const View& compute) = 0;
  // Adds to each shard a state, filled with `initial`, that has one value per `block` elements.
  void add_states(const std::string& name, DType dtype = DType::kF32, int64_t block = 1,
                  double initial = 0);
  // The run's part of a shard's vector, or of one with a value per `block` elements; undefined if
  // the vector is undefined.
  static View part(const Tensor& vector, const OptimRun& run, int64_t block = 1);
  const std::vector<OptimRun>& runs(size_t shard) const { return runs_[shard]; }

 private:
  std::vector<std::vector<OptimRun>> runs_;  // runs of each shard
};

// Storage format of an optimizer's moments.
enum class Moments : uint8_t {
  kF32,   // 4 bytes per moment
  kBF16,  // 2 bytes; decay rates must be below 1 - 2^-8, or a moment could not shrink
  kInt8,  // 1 + 1/64 bytes per moment: 8 bits, block-wise (arXiv:2110.02861)
};

// Options of AdamW, named as in the paper below.
struct AdamWOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  // Applies to parameters that declare decay (not norms and biases), unless set_parameter_options()
  // changes it.
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

// Options of Lion, named as in the paper below.
struct LionOptions {
  float beta1 = 0.9f;
  float beta2 = 0.99f;
  float weight_decay = 0.1f;        // as in AdamW
  Moments moments = Moments::kF32;  // Moments::kF32 or kBF16
};

// Sign descent with momentum (arXiv:2302.06675, program 1), with one moment. Use a learning rate 3
// to 10 times lower than AdamW's, and a weight decay higher by the same factor. Throws ConfigError
// as AdamW does.
class Lion : public ElementwiseOptimizer {
 public:
  Lion(std::vector<OptimShard> shards, const LionOptions& options);

 private:
  void step_run(size_t shard, const OptimRun& run, const View& compute) override;
  LionOptions options_;
};

// Momentum and decay of Sgd; prepare() sets the learning rate.
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
