#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "shale/base/exec.h"
#include "shale/base/trace.h"
#include "shale/runtime/tensor/allocator.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale {

class Storage;
struct AutogradState;

// Which device, and how much of it a Context may use.
struct ContextOptions {
  Device device = {};
  int threads = 1;            // CPU threads of a kernel
  int64_t device_memory = 0;  // budget in bytes; 0: none
  bool deterministic = false;
  bool tf32 = false;              // see Exec
  bool dependent_launch = false;  // see Exec; throws UnavailableError where that cannot be
  uint64_t seed = 0;
  std::string name = {};  // of its memory in tables and messages; empty: the device's
};

// One device as a rank uses it: memory, the compute stream, per-step values, and what autograd
// needs to know. Tensors point to their context, which outlives them. Used by one thread.
class Context {
 public:
  explicit Context(const ContextOptions& options);
  // On a backend made by the caller, whatever options.device says.
  Context(const ContextOptions& options, std::unique_ptr<DeviceBackend> backend);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Device& device() const { return exec_.device; }
  const Exec& exec() const { return exec_; }
  DeviceBackend& backend() { return *backend_; }
  CachingAllocator& allocator() { return allocator_; }
  AutogradState& autograd() { return *autograd_; }

  // Memory for `bytes` bytes on the compute stream. `what` names the asker when memory runs out.
  std::shared_ptr<Storage> allocate(int64_t bytes, MemoryTag tag, std::string_view what = "tensor");

  // Changes the host's part of the per-step values and queues its upload to the device. What
  // kernels write there (the loss scale, grad_norm, clip_factor, non_finite) stays as it is.
  void update_step(const std::function<void(StepState&)>& change);
  // Sets grad_norm, clip_factor and non_finite to their values at the beginning of a step: no
  // clipping, nothing found. With a loss scale other than 1, clip_factor is clip_grad_norm()'s.
  void reset_step_results();
  // For the start of a run; from then on kernels change it.
  void set_loss_scale(const LossScale& state);
  // For the initial values of a model that nobody has given a seed: 0, 1 and so on, so that two
  // models of one class differ.
  uint64_t next_model_seed() { return model_seeds_++; }
  int64_t step() const { return static_cast<int64_t>(host_step_.step); }  // as last set
  // The per-step values as they are now, for an op whose backward reads them: while somebody holds
  // them, update_step() writes to a new place. Put exec.step to hold.get()->data() to compute under
  // them.
  std::shared_ptr<const Storage> hold_step() const { return step_storage_; }
  // While it lives, kernels and hold_step() see these per-step values. Nobody may call
  // update_step().
  class StepScope {
   public:
    StepScope(Context& context, std::shared_ptr<const Storage> held);
    ~StepScope();
    StepScope(const StepScope&) = delete;
    StepScope& operator=(const StepScope&) = delete;

   private:
    Context& context_;
    std::shared_ptr<Storage> before_;
  };
  // The device's copy, which kernels write too. Waits for the compute stream.
  StepState read_step();

  // What belongs to the forward or backward that runs: autograd's part, and the per-step values.
  // Several that take turns on one context (comm/parallel/hosted_ranks.h) have one each.
  struct PassState {
    PassState();
    PassState(PassState&&) noexcept;
    ~PassState();

    std::unique_ptr<AutogradState> autograd;
    StepState host_step = {};
    std::shared_ptr<Storage> step_storage = {};
    kernels::CallObserver* observer = nullptr;
  };
  PassState copy_pass_state() const;
  // Exchanges the content of the context's with that of `other`.
  void exchange_pass_state(PassState& other);
  // Goes on where a pass has ended: nodes, samples and per-step values count on from there.
  void continue_from(const PassState& other);

  // Whoever writes to the context's memory by other means than kernels and copy() calls this first.
  // Throws InternalError for memory that must be acquired and was not (offload/disk_memory.h).
  void will_write(const void* to, int64_t bytes);
  // On the compute stream, as DeviceBackend::copy().
  void copy(void* to, const void* from, int64_t bytes);
  void synchronize();  // waits for the compute stream
  // Scratch memory of kernels from now on; null: the compute stream's own again.
  void set_workspace(Workspace* workspace);
  // Instead of the device's own; null: that again.
  void set_tracer(Tracer* tracer) {
    exec_.tracer = tracer != nullptr ? tracer : backend_->tracer();
  }
  // While it lives, `observer` stands around the context's kernel calls.
  class Observation {
   public:
    Observation(Context& context, kernels::CallObserver& observer)
        : exec_(context.exec_), before_(std::exchange(exec_.observer, &observer)) {}
    ~Observation() { exec_.observer = before_; }
    Observation(const Observation&) = delete;
    Observation& operator=(const Observation&) = delete;

   private:
    Exec& exec_;
    kernels::CallObserver* before_;
  };

 private:
  class StreamWorkspace;
  void use_step(std::shared_ptr<Storage> storage);

  std::unique_ptr<DeviceBackend> backend_;
  CachingAllocator allocator_;
  std::unique_ptr<AutogradState> autograd_;
  std::unique_ptr<StreamWorkspace> workspace_;
  std::shared_ptr<Storage> step_storage_;
  std::shared_ptr<Storage> counters_storage_;  // of a GPU
  StepState host_step_;
  uint64_t model_seeds_ = 0;  // that were given out
  Exec exec_;
};

}  // namespace shale
