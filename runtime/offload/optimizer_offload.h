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

// Steps shards synchronously instead of on a thread. For dry runs, which simulate the time that the
// thread would need.
class InlineStepper {
 public:
  virtual ~InlineStepper() = default;
  // Must call `work`. index: index of the shard.
  virtual void step(size_t index, const std::function<void()>& work) = 0;
  // Called when the caller waits until the shard with this index has been stepped.
  virtual void await(size_t index) = 0;
};

// Steps shards whose masters are in a host tier on the CPU; steps other shards where they are. A
// gradient is downloaded as soon as it is complete, while backward continues. The step begins when
// the gradient's norm and overflow are known on the device. It processes shards in the order in
// which forward last read them, and overlaps with the next forward: the CPU steps, then the
// parameters are uploaded. Forward waits for a unit's parameters at the unit's fence.
//
//   OptimizerOffload offload(tier, parallel.shards());
//   optim::AdamW optimizer(offload.shards(), {...});
//   each step: ... optim::clip_grad_norm(context, parallel.shards(), 1); offload.step(optimizer);
//   in the end: offload.finish();  // the optimizer is in use until then
//
// Results are bitwise those of optimizer.step() without offload. If a gradient changes after
// StepFence::gradient_complete, the step uses its earlier value.
class OptimizerOffload {
 public:
  // background: true if the CPU steps on its own thread. Useless if the device is the CPU. Throws
  // ConfigError for shards that are not whole, or that another object steps.
  OptimizerOffload(HostTier& tier, std::vector<OptimShard> shards, bool background);
  OptimizerOffload(HostTier& tier, std::vector<OptimShard> shards)
      : OptimizerOffload(tier, std::move(shards), tier.device().exec().stream != nullptr) {}
  // Steps with `stepper` instead of on a thread. The stepper must outlive this object.
  OptimizerOffload(HostTier& tier, std::vector<OptimShard> shards, InlineStepper& stepper)
      : OptimizerOffload(tier, std::move(shards), /*background=*/false) {
    stepper_ = &stepper;
  }
  ~OptimizerOffload();  // finishes the step
  OptimizerOffload(const OptimizerOffload&) = delete;
  OptimizerOffload& operator=(const OptimizerOffload&) = delete;

  // Shards for the optimizer's constructor, with gradients in host memory where the step runs.
  const std::vector<OptimShard>& shards() const { return stepped_; }

  // Makes shards step during the following backward, each when its gradient is complete. Call it
  // between optimizer.prepare() and the last backward of a step. Only for runs without clipping and
  // loss scaling, because the whole gradient is not yet known: a step with a non-finite gradient is
  // not skipped. Parameters must be used only where they get gradients. Throws ConfigError for an
  // optimizer that needs all gradients.
  void step_during_backward(optim::Optimizer& optimizer);
  // Replaces optimizer.step(): steps the remaining shards. Rethrows errors of earlier steps.
  void step(optim::Optimizer& optimizer);
  // Waits until work queued later on the compute stream sees the parameters of the last step.
  void finish();

 private:
  // A shard in the host tier, and the progress of its step.
  struct Place {
    size_t shard = 0;
    Event downloaded{};    // download of its gradient
    Event computed{};      // work that used its parameters
    Event uploaded{};      // upload of its parameters
    bool sent = false;     // `downloaded` belongs to this step
    bool begun = false;    // its step was queued
    bool stepped = true;   // `uploaded` is set
    bool reached = true;   // a reader has waited for it since the step
    bool in_place = true;  // the compute stream waits for `uploaded`
  };

  bool is_here(const Tensor& x) const { return &x.context() == &tier_.context(); }
  void gradient_complete(size_t place, const Event& arrived);
  void wait_for(size_t place, void* stream);
  void send_state(optim::Optimizer& optimizer);
  void begin(size_t place);
  // Steps a place on the CPU.
  void run(size_t place);
  void load_state();
  Event step_shard(const Place& place);
  // Tensors that the step of a shard uses, for a tier on disk.
  std::vector<Tensor> memory_of(const Place& place) const;
  void prefetch_next(size_t place);
  void work();

  HostTier& tier_;
  InlineStepper* stepper_ = nullptr;
  std::vector<OptimShard> shards_;  // shards of data parallelism, on the device
  std::vector<OptimShard> stepped_;
  std::vector<Place> places_;
  std::vector<size_t> order_;  // indices in places_, in the order in which forward last read them
  std::vector<size_t> next_order_;
  bool during_backward_ = false;  // mode of the next or current step
  Tensor state_;                  // the optimizer's values, copied to the CPU
  std::shared_ptr<const Storage> state_held_;
  Event state_downloaded_;
  bool state_loaded_ = true;
  optim::Optimizer* optimizer_ = nullptr;  // optimizer of the current step

  // The mutex guards what is shared with the thread: the members below, and data of queued places.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<size_t> queue_;  // places that the thread must step
  std::exception_ptr error_;  // error of the first failed step; no step runs after it
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace shale::offload
