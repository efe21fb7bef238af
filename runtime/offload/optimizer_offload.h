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

// Runs the steps of shards synchronously instead of on a thread. A dry run implements it to
// simulate the time that the thread would need.
class InlineStepper {
 public:
  virtual ~InlineStepper() = default;
  // Called for the step of the shard `index`. It must call `work`, which computes the step.
  virtual void step(size_t index, const std::function<void()>& work) = 0;
  // Called when the caller waits for the step of the shard `index`.
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
  // background: true if the CPU steps on its own thread; useless if the device is the CPU. Throws
  // ConfigError for a shard that is not whole (OptimShard::is_whole) or that another object steps.
  OptimizerOffload(HostTier& tier, std::vector<OptimShard> shards, bool background);
  OptimizerOffload(HostTier& tier, std::vector<OptimShard> shards)
      : OptimizerOffload(tier, std::move(shards), tier.device().exec().stream != nullptr) {}
  // Steps with `stepper` instead of on a thread. The stepper must outlive this object.
  OptimizerOffload(HostTier& tier, std::vector<OptimShard> shards, InlineStepper& stepper)
      : OptimizerOffload(tier, std::move(shards), /*background=*/false) {
    stepper_ = &stepper;
  }
  ~OptimizerOffload();  // waits for the step
  OptimizerOffload(const OptimizerOffload&) = delete;
  OptimizerOffload& operator=(const OptimizerOffload&) = delete;

  // Shards for the optimizer's constructor. Their gradients are in host memory if the step runs on
  // the CPU.
  const std::vector<OptimShard>& shards() const { return stepped_; }

  // Steps shards during the following backward, each as soon as its gradient is complete. Call it
  // between optimizer.prepare() and the last backward of a step. The norm of the whole gradient is
  // not known at that time. So clipping and loss scaling are impossible, and a step with a
  // non-finite gradient is not skipped. Parameters must be used only where they get gradients.
  // Throws ConfigError for an optimizer that needs all gradients.
  void step_during_backward(optim::Optimizer& optimizer);
  // Replaces optimizer.step(): steps the shards that were not stepped during backward. Rethrows
  // errors of earlier steps.
  void step(optim::Optimizer& optimizer);
  // Makes work queued later on the compute stream see the parameters of the last step.
  void finish();

 private:
  // A shard in the host tier, and the progress of its step.
  struct Place {
    size_t shard = 0;
    Event downloaded{};    // end of the download of its gradient
    Event computed{};      // end of the work that used its old parameters
    Event uploaded{};      // end of the upload of its new parameters
    bool sent = false;     // `downloaded` belongs to this step
    bool begun = false;    // the step of this shard was queued
    bool stepped = true;   // the step has run, so `uploaded` is set
    bool reached = true;   // a reader has waited for it since its step began
    bool in_place = true;  // the compute stream already waits for `uploaded`
  };

  bool is_here(const Tensor& x) const { return &x.context() == &tier_.context(); }
  void gradient_complete(size_t place, const Event& arrived);
  void wait_for(size_t place, void* stream);
  void send_state(optim::Optimizer& optimizer);
  void begin(size_t place);
  // Steps the shard places_[place] on the CPU.
  void run(size_t place);
  void load_state();
  Event step_shard(const Place& place);
  // Tensors that the step of a shard uses; on disk they must be read first.
  std::vector<Tensor> memory_of(const Place& place) const;
  void prefetch_next(size_t place);
  void work();

  HostTier& tier_;
  InlineStepper* stepper_ = nullptr;
  std::vector<OptimShard> shards_;  // data-parallel shards, on the device
  std::vector<OptimShard> stepped_;
  std::vector<Place> places_;
  // order of steps: indices in places_, in the order in which forward last read the shards
  std::vector<size_t> order_;
  std::vector<size_t> next_order_;
  bool during_backward_ = false;  // true: shards step during backward in the next or current step
  Tensor state_;                  // copy of the optimizer's values in host memory
  std::shared_ptr<const Storage> state_held_;
  Event state_downloaded_;
  bool state_loaded_ = true;
  optim::Optimizer* optimizer_ = nullptr;  // optimizer of the current step

  // Guards the data shared with the thread: the members below, and the places in the queue.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<size_t> queue_;  // indices of places that the thread must step
  std::exception_ptr error_;  // error of the first failed step; no step runs after it
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace shale::offload
