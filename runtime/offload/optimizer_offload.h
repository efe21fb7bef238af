#pragma once

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/offload/host_tier.h"
#include "runtime/optim/optimizer.h"

namespace shale::offload {

// Steps shards whose masters lie in a host tier on the CPU, the others where they are. A step
// begins when the gradient's norm and overflow are known on the device; it then goes shard by
// shard, in the order in which forward read them last, beside the next forward: gradients travel
// down, the CPU steps, parameters travel up. Forward waits for each unit's parameters at the unit's
// fence.
//
//   OptimizerOffload offload(tier, parallel.shards());
//   optim::AdamW optimizer(offload.shards(), {...});
//   each step: ... optim::clip_grad_norm(context, parallel.shards(), 1); offload.step(optimizer);
//
// Results are, to the bit, those of optimizer.step() without offload.
class OptimizerOffload {
 public:
  // background: whether the CPU steps on a thread of its own. Pointless on a CPU device, which has
  // nothing better to do.
  OptimizerOffload(HostTier& tier, std::vector<OptimShard> shards, bool background);
  OptimizerOffload(HostTier& tier, std::vector<OptimShard> shards)
      : OptimizerOffload(tier, std::move(shards), tier.device().exec().stream != nullptr) {}
  ~OptimizerOffload();  // finishes the step
  OptimizerOffload(const OptimizerOffload&) = delete;
  OptimizerOffload& operator=(const OptimizerOffload&) = delete;

  // What the optimizer is made of: the shards, with gradients in host memory where the step is.
  const std::vector<OptimShard>& shards() const { return stepped_; }

  // In place of optimizer.step(). What a former step threw is thrown.
  void step(optim::Optimizer& optimizer);
  // Returns when the parameters of the last step are in place for later work on the compute stream.
  void finish();

 private:
  // A shard in the host tier, and how far the step is with it.
  struct Place {
    size_t shard = 0;
    Event downloaded{};   // its gradient
    Event uploaded{};     // its parameters
    bool stepped = true;  // `uploaded` is set
    bool awaited = true;  // the compute stream waits for it
  };

  bool is_here(const Tensor& x) const { return &x.context() == &tier_.context(); }
  void wait_for(size_t place);
  // On the CPU, where the step's values are in `state_`.
  void run_step(optim::Optimizer& optimizer);
  Event step_shard(optim::Optimizer& optimizer, const Place& place);
  void work();

  HostTier& tier_;
  std::vector<OptimShard> shards_;  // as they are on the device
  std::vector<OptimShard> stepped_;
  std::vector<Place> places_;
  std::vector<size_t> order_;  // of places, in which forward read them last
  std::vector<size_t> next_order_;
  Tensor state_;  // the device's StepState, on its way to the CPU
  std::shared_ptr<const Storage> state_held_;
  Event state_downloaded_;
  Event computed_;  // what the device did before the step

  // Shared with the thread.
  std::mutex mutex_;
  std::condition_variable changed_;
  optim::Optimizer* optimizer_ = nullptr;  // what to step with; null: nothing to do
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace shale::offload
