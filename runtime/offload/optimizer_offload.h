#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "shale/runtime/offload/host_tier.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::offload {

// Steps shards in the place of a thread of its own, each when it is queued: in a plan, which keeps
// the time that the thread would take beside its caller.
class InlineStepper {
 public:
  virtual ~InlineStepper() = default;
  // Has to call `work`. index: of the shard.
  virtual void step(size_t index, const std::function<void()>& work) = 0;
  // The caller waits until that shard has been stepped.
  virtual void await(size_t index) = 0;
};

// Steps shards whose masters lie in a host tier on the CPU, the others where they are. A gradient
// travels down as soon as it is complete, beside the rest of backward. The step begins when the
// gradient's norm and overflow are known on the device; it then goes shard by shard, in the order
// in which forward read them last, beside the next forward: the CPU steps, parameters travel up.
// Forward waits for each unit's parameters at the unit's fence.
//
//   OptimizerOffload offload(tier, parallel.shards());
//   optim::AdamW optimizer(offload.shards(), {...});
//   each step: ... optim::clip_grad_norm(context, parallel.shards(), 1); offload.step(optimizer);
//   in the end: offload.finish();  // the optimizer is in use until then
//
// Results are, to the bit, those of optimizer.step() without offload. A gradient that is changed
// after its completion (StepFence::gradient_complete) is stepped as it was then.
class OptimizerOffload {
 public:
  // background: whether the CPU steps on a thread of its own. Pointless on a CPU device, which has
  // nothing better to do. Throws ConfigError for shards that are not whole, or that another one
  // steps.
  OptimizerOffload(HostTier& tier, std::vector<OptimShard> shards, bool background);
  OptimizerOffload(HostTier& tier, std::vector<OptimShard> shards)
      : OptimizerOffload(tier, std::move(shards), tier.device().exec().stream != nullptr) {}
  // Without a thread. The stepper outlives this.
  OptimizerOffload(HostTier& tier, std::vector<OptimShard> shards, InlineStepper& stepper)
      : OptimizerOffload(tier, std::move(shards), /*background=*/false) {
    stepper_ = &stepper;
  }
  ~OptimizerOffload();  // finishes the step
  OptimizerOffload(const OptimizerOffload&) = delete;
  OptimizerOffload& operator=(const OptimizerOffload&) = delete;

  // What the optimizer is made of: the shards, with gradients in host memory where the step is.
  const std::vector<OptimShard>& shards() const { return stepped_; }

  // Between optimizer.prepare() and the last backward of a step: shards are stepped during that
  // backward, each when its gradient is complete. For runs without clipping and loss scaling only,
  // as nothing is known of the gradient as a whole: a step whose gradient is not finite is not
  // skipped. Parameters must be used where they get gradients from and nowhere else. Throws
  // ConfigError for an optimizer that needs all gradients.
  void step_during_backward(optim::Optimizer& optimizer);
  // In place of optimizer.step(): all that is left of it. What a former step threw is thrown.
  void step(optim::Optimizer& optimizer);
  // Returns when the parameters of the last step are in place for later work on the compute stream.
  void finish();

 private:
  // A shard in the host tier, and how far the step is with it.
  struct Place {
    size_t shard = 0;
    Event downloaded{};    // its gradient
    Event computed{};      // what used its parameters
    Event uploaded{};      // its parameters
    bool sent = false;     // `downloaded` is of this step
    bool begun = false;    // this step of it
    bool stepped = true;   // `uploaded` is set
    bool reached = true;   // by a reader, since the step
    bool in_place = true;  // the compute stream waits for it
  };

  bool is_here(const Tensor& x) const { return &x.context() == &tier_.context(); }
  void gradient_complete(size_t place, const Event& arrived);
  void wait_for(size_t place, void* stream);
  void send_state(optim::Optimizer& optimizer);
  void begin(size_t place);
  // On the CPU.
  void run(size_t place);
  void load_state();
  Event step_shard(const Place& place);
  // Of a tier on a disk: what the step of a shard uses.
  std::vector<Tensor> memory_of(const Place& place) const;
  void prefetch_next(size_t place);
  void work();

  HostTier& tier_;
  InlineStepper* stepper_ = nullptr;
  std::vector<OptimShard> shards_;  // as they are on the device
  std::vector<OptimShard> stepped_;
  std::vector<Place> places_;
  std::vector<size_t> order_;  // of places, in which forward read them last
  std::vector<size_t> next_order_;
  bool during_backward_ = false;  // the step that comes next, or has begun
  Tensor state_;                  // the optimizer's values, on their way to the CPU
  std::shared_ptr<const Storage> state_held_;
  Event state_downloaded_;
  bool state_loaded_ = true;
  optim::Optimizer* optimizer_ = nullptr;  // what to step with

  // Shared with the thread, as are the places in the queue and what their step needs.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<size_t> queue_;  // places to step
  std::exception_ptr error_;  // of the first step that failed; there is no other after it
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace shale::offload
