#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "shale/base/exec.h"
#include "shale/runtime/nn/state_part.h"
#include "shale/runtime/optim/shard.h"

namespace shale::optim {

// A state tensor of an optimizer, for memory tables.
struct OptimState {
  std::string name;   // "m", "v"
  Tensor value;       // a vector
  size_t shard = 0;   // index into shards()
  int64_t block = 1;  // elements of the shard that one value is for, in order
  int64_t first = 0;  // element of the shard that the first value is for
  OverReplicas replicas = OverReplicas::kSame;
};

// Steps shards from their gradients. Kernels read learning rate, bias corrections and the clip
// factor from a StepState of the optimizer's own, in device memory: several optimizers of a context
// have their own rates, and gradients that were clipped stay clipped until zero_grad(), whatever
// comes between.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // Sets the per-step values: `step` counts from 0, lr is the scheduled rate. Before step(), and
  // before forward, as the context's random numbers count steps too.
  // Throws ConfigError for a parameter whose `trainable` was changed since it has memory.
  void prepare(Context& context, int64_t step, float lr);
  // How many updates were done before this one: bias corrections count them. prepare() says `step`,
  // which a run that skips steps corrects before step().
  void set_updates(int64_t done);
  // One update of every shard. Parameters without a gradient count as having gradient 0. Throws
  // InternalError unless prepare() was called since the last step().
  void step();
  void zero_grad() { shale::zero_grad(shards_); }
  // Whether the step that is prepared wants gradients that were added over the replicas of hybrid
  // sharding; if not, each replica's own sum.
  virtual bool needs_replica_sum() const { return true; }

  // The parts of step(), for those who step shards when each is ready (runtime/offload): once all
  // gradients are complete, what concerns all shards; then each shard's step, which only queues
  // kernels. The rounded parameters go to `compute`.
  virtual bool needs_all_gradients() const { return false; }  // begin_step() looks at them
  virtual void begin_step() {}
  void step_shard(size_t shard, const Tensor& compute);
  // What that changes: master, states and average.
  std::vector<Tensor> memory_of(size_t shard) const;
  // The step's values where prepare() put them. While somebody holds them, prepare() and
  // set_updates() write to a new place. Throws ConfigError for shards that were clipped apart.
  std::shared_ptr<const Storage> hold_values();
  // Those that shards in another context are stepped with, which whoever steps them there sets.
  StepState& values_in(const Context& context);

  // From the masters as they are now on, keeps their exponential moving average
  //   average = decay average + (1 - decay) master
  // after every update that is not skipped: f32, where the masters are and cut as they are.
  // Throws ConfigError for a decay outside [0, 1), DTypeError for masters that are not f32.
  void keep_average(double decay);
  bool keeps_average() const { return !averages_.empty(); }
  // Exchanges masters and averages, whose readers are told by the caller; for an evaluation, and
  // once more after it. No step is under way.
  void swap_average();

  const std::vector<OptimShard>& shards() const { return shards_; }
  const std::vector<OptimState>& states() const { return states_; }
  // All that a resumed run needs besides masters and the number of updates done: the class's own,
  // and averages, "wte.weight/ema". A part is whole where that does not depend on how its parameter
  // is cut over ranks.
  std::vector<StatePart> state_parts() const;

 protected:
  explicit Optimizer(std::vector<OptimShard> shards);
  virtual void update(size_t shard, const Tensor& compute) = 0;
  // Those of states(), unless a class has them in another form.
  virtual std::vector<StatePart> own_state_parts() const;
  // What kernels that step this shard are called with: its gradient's context, this optimizer's
  // values.
  Exec exec(size_t shard);
  // What bias corrections are after so many updates.
  virtual void set_corrections(StepState&, int64_t /*done*/) const {}
  static float correction(float beta, int64_t updates);  // 1 - beta^updates
  // What prepare() said, and how many updates were done before.
  int64_t prepared_step() const { return static_cast<int64_t>(host_values_.step); }
  int64_t updates_done() const { return updates_done_; }
  // A vector of `initial`, the last of states(). Memory that runs out is asked for by the shard.
  Tensor add_state(OptimState state, int64_t count, DType dtype, double initial = 0);
  // states()[index] of a class that adds states for all shards in turn.
  const Tensor& state(size_t shard, size_t index) const {
    return states_[index * shards_.size() + shard].value;
  }

 private:
  // A StepState in the memory of a context.
  struct Values {
    Context* context = nullptr;
    std::shared_ptr<Storage> memory = {};
    Tensor clipped = {};  // what its end is a copy of; undefined: no clipping
  };
  Values& values_of(const Context& context);
  void check_prepared() const;
  void add_parts(const OptimState& state, std::vector<StatePart>& parts) const;
  void upload(size_t bytes);
  void take_clipped(const OptimShard& shard);

  std::vector<OptimShard> shards_;
  std::vector<OptimState> states_;
  std::vector<OptimState> averages_;  // of each shard; empty: none are kept
  float average_share_ = 0;           // 1 - decay
  StepState host_values_;
  int64_t updates_done_ = 0;
  std::list<Values> values_;
  Values* prepared_ = nullptr;  // where prepare() puts them
  bool stepped_ = false;        // since then
};

// What one call of a kernel steps: neighbouring spans with the same options, and the padding
// between them, which is zero and stays so.
struct OptimRun {
  int64_t offset = 0;  // in the shard's buffers
  int64_t count = 0;
  float lr_factor = 1;
  float weight_decay = 0;
  const Parameter* parameter = nullptr;  // that of its first span
};
enum class Runs : uint8_t { kJoined, kOfParameters };  // the second: each span by itself
// weight_decay: of parameters that declare decay and have no options of their own.
std::vector<OptimRun> runs_of(const OptimShard& shard, float weight_decay,
                              Runs runs = Runs::kJoined);
// The decay of a parameter.
float decay_of(const OptimSpan& span, float weight_decay);

// An optimizer to which an element of a parameter is as good as any other.
class ElementwiseOptimizer : public Optimizer {
 protected:
  ElementwiseOptimizer(std::vector<OptimShard> shards, float weight_decay,
                       Runs runs = Runs::kJoined);
  void update(size_t shard, const Tensor& compute) override;
  virtual void step_run(size_t shard, const OptimRun& run, const View& compute) = 0;
  // A state of `initial` per shard, of one value per `block` elements.
  void add_states(const std::string& name, DType dtype = DType::kF32, int64_t block = 1,
                  double initial = 0);
  // The run's part of a vector of the shard, or of one with a value per `block` elements; undefined
  // if the vector is.
  static View part(const Tensor& vector, const OptimRun& run, int64_t block = 1);
  const std::vector<OptimRun>& runs(size_t shard) const { return runs_[shard]; }

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
  // On parameters that declare decay, not on norms and biases, unless set_parameter_options() says
  // otherwise.
  float weight_decay = 0.1f;
  Moments moments = Moments::kF32;
};

// Adam with decoupled weight decay (arXiv:1711.05101, algorithm 2). Throws ConfigError for rates
// that the moments' format does not admit.
class AdamW : public ElementwiseOptimizer {
 public:
  AdamW(std::vector<OptimShard> shards, const AdamWOptions& options);

 private:
  void set_corrections(StepState& values, int64_t done) const override;
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
