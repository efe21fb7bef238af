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

// Options of a Context: its device, and limits on its use.
struct ContextOptions {
  Device device = {};
  int threads = 1;            // CPU threads per kernel
  int64_t device_memory = 0;  // limit of memory in bytes; 0: no limit
  bool deterministic = false;
  bool tf32 = false;  // see Exec::tf32
  // see Exec::dependent_launch; throws UnavailableError if unsupported
  bool dependent_launch = false;
  uint64_t seed = 0;
  std::string name = {};  // name of this memory in tables and messages; empty: the device's name
};

// One device as one rank uses it: memory, the compute stream, per-step values and autograd state.
// It must outlive its tensors, models and optimizers. A tensor of a context that has ended can only
// be destroyed. Not thread-safe.
class Context {
 public:
  explicit Context(const ContextOptions& options);
  // Uses the given backend; ignores options.device.
  Context(const ContextOptions& options, std::unique_ptr<DeviceBackend> backend);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Device& device() const { return exec_.device; }
  const Exec& exec() const { return exec_; }
  DeviceBackend& backend() { return *memory_->backend; }
  CachingAllocator& allocator() { return memory_->allocator; }
  const std::shared_ptr<DeviceMemory>& memory() const { return memory_; }
  AutogradState& autograd() { return *autograd_; }

  // Returns memory for use on the compute stream. `what` names the requester in the out-of-memory
  // error.
  std::shared_ptr<Storage> allocate(int64_t bytes, MemoryTag tag, std::string_view what = "tensor");

  // Changes those per-step values that the host sets, and queues their upload to the device. Values
  // that kernels write (loss scale, grad_norm, clip_factor, non_finite) do not change.
  void update_step(const std::function<void(StepState&)>& change);
  // Sets grad_norm, clip_factor and non_finite to their values at the beginning of a step: no
  // clipping, no non-finite gradient. With a loss scale other than 1, clip_grad_norm() must set
  // clip_factor.
  void reset_step_results();
  // Sets the loss scale. Call it at the start of a run; afterwards kernels update the loss scale.
  void set_loss_scale(const LossScale& state);
  // Returns 0, 1, 2, and so on: seeds for the initial values of models that were given no seed. So
  // two models of the same class differ.
  uint64_t next_model_seed() { return model_seeds_++; }
  uint64_t seed() const { return host_step_.seed; }  // ContextOptions::seed
  // Returns the optimizer step that the last update_step() set.
  int64_t step() const { return static_cast<int64_t>(host_step_.step); }
  // Returns the current per-step values. An op whose backward reads them holds the result. While it
  // is held, update_step() writes to new memory. To compute with held values, set exec.step to
  // hold.get()->data().
  std::shared_ptr<const Storage> hold_step() const { return step_storage_; }
  // Scope in which kernels and hold_step() use the given per-step values. update_step() must not be
  // called in it.
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
  // Returns the device's copy of the per-step values, including those that kernels write. Waits for
  // the compute stream.
  StepState read_step();

  // State of a running forward or backward: autograd state and per-step values. Each of several
  // hosted ranks that take turns on one context (comm/parallel/hosted_ranks.h) has its own.
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
  // Swaps this context's pass state with `other`.
  void exchange_pass_state(PassState& other);
  // Takes the per-step values and the numbering of nodes and samples from `other`, the end of
  // another pass, and continues from there.
  void continue_from(const PassState& other);

  // Call this before writing to the context's memory by other means than kernels and copy(). Throws
  // InternalError if the memory must be acquired before a write (offload/disk_memory.h) and was
  // not.
  void will_write(const void* to, int64_t bytes);
  // Calls DeviceBackend::copy() on the compute stream.
  void copy(void* to, const void* from, int64_t bytes);
  void synchronize();  // waits for the compute stream
  // Sets the scratch memory of kernels; null: the compute stream's own.
  void set_workspace(Workspace* workspace);
  // Replaces the device's tracer; null: restores it.
  void set_tracer(Tracer* tracer) {
    exec_.tracer = tracer != nullptr ? tracer : memory_->backend->tracer();
  }
  // Scope in which `observer` is called around the context's kernel calls.
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

  std::shared_ptr<DeviceMemory> memory_;
  std::unique_ptr<AutogradState> autograd_;
  std::unique_ptr<StreamWorkspace> workspace_;
  std::shared_ptr<Storage> step_storage_;
  std::shared_ptr<Storage> counters_storage_;  // counters in GPU memory; null on other devices
  StepState host_step_;
  uint64_t model_seeds_ = 0;  // number of seeds given out
  Exec exec_;
};

}  // namespace shale
