#include "shale/runtime/tensor/context.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/kernels/registry.h"
#include "shale/kernels/slot.h"
#include "shale/runtime/tensor/autograd_state.h"
#include "shale/runtime/tensor/op_recorder.h"
#include "shale/runtime/tensor/storage.h"

namespace shale {

namespace {

// Throws if kernels cannot be launched before the previous grid ends: kernels compiled for GPUs
// before Hopper do not wait for it.
void check_dependent_launch(const DeviceBackend& backend) {
  const int arch = backend.kernel_arch();
  if (arch >= 90) return;
  throw UnavailableError(
      cat("dependent launch: expected a GPU with kernels compiled for compute ",
          "capability 9.0 or later, or emu:90; found ", backend.device(),
          arch == 0 ? "" : cat(", with kernels for ", arch / 10, ".", arch % 10)));
}

}  // namespace

// Scratch memory of a stream's kernels. They run one after another, so they can share it. It grows
// to the largest request and never shrinks.
class Context::StreamWorkspace final : public Workspace {
 public:
  explicit StreamWorkspace(Context& context) : context_(context) {}
  void* reserve(size_t bytes) override {
    if (storage_ == nullptr || storage_->bytes() < static_cast<int64_t>(bytes)) {
      storage_.reset();  // frees the old memory first, because both may not fit
      storage_ = context_.allocate(static_cast<int64_t>(bytes), MemoryTag::kWorkspace, "workspace");
    }
    return storage_->data();
  }

 private:
  Context& context_;
  std::shared_ptr<Storage> storage_;
};

Context::Context(const ContextOptions& options) : Context(options, make_backend(options.device)) {}

Context::Context(const ContextOptions& options, std::unique_ptr<DeviceBackend> backend)
    : memory_(
          std::make_shared<DeviceMemory>(std::move(backend), options.device_memory, options.name)),
      autograd_(std::make_unique<AutogradState>()),
      workspace_(std::make_unique<StreamWorkspace>(*this)) {
  memory_->context = this;
  if (options.dependent_launch) check_dependent_launch(*memory_->backend);
  kernels::register_cpu_kernels();
  exec_.device = memory_->backend->device();
  exec_.stream = memory_->stream;
  exec_.workspace = workspace_.get();
  exec_.threads = std::max(1, options.threads);
  exec_.deterministic = options.deterministic;
  exec_.tf32 = options.tf32;
  exec_.dependent_launch = options.dependent_launch;
  exec_.tracer = memory_->backend->tracer();
  exec_.held = &memory_->backend->held();
  use_step(allocate(sizeof(StepState), MemoryTag::kData, "step state"));
  update_step([&](StepState& step) { step.seed = options.seed; });
  set_loss_scale({});
  reset_step_results();
  if (exec_.device.type == DeviceType::kCpu) return;
  counters_storage_ = allocate(sizeof(BlockCounters), MemoryTag::kData, "block counters");
  exec_.counters = static_cast<BlockCounters*>(counters_storage_->data());
  const BlockCounters zeros;
  copy(exec_.counters, &zeros, sizeof(zeros));
}

Context::~Context() {
  try {
    synchronize();  // queued work may use the memory that is freed below
  } catch (const std::exception& error) {
    log_warning("context: ", error.what());
  }
  workspace_.reset();
  step_storage_.reset();
  counters_storage_.reset();
  memory_->context = nullptr;
  if (const int64_t used = allocator().stats().allocated; used > 0) {
    log_error("context ", to_string(device()), " is destroyed while ",
              format_bytes(static_cast<double>(used)),
              " of its memory are in use; it must outlive its tensors, models and optimizers");
  }
}

std::shared_ptr<Storage> Context::allocate(int64_t bytes, MemoryTag tag, std::string_view what) {
  auto storage =
      std::make_shared<Storage>(memory_, allocator().allocate(bytes, tag, exec_.stream, what), bytes);
  if (autograd_->recorder != nullptr) autograd_->recorder->allocated(storage.get());
  return storage;
}

void Context::use_step(std::shared_ptr<Storage> storage) {
  step_storage_ = std::move(storage);
  exec_.step = static_cast<StepState*>(step_storage_->data());
}

Context::StepScope::StepScope(Context& context, std::shared_ptr<const Storage> held)
    : context_(context), before_(context.step_storage_) {
  context.use_step(std::const_pointer_cast<Storage>(held));
}

Context::StepScope::~StepScope() {
  context_.use_step(std::move(before_));
}

void Context::update_step(const std::function<void(StepState&)>& change) {
  change(host_step_);
  if (step_storage_.use_count() > 1) {
    const auto held = std::move(step_storage_);
    use_step(allocate(sizeof(StepState), MemoryTag::kData, "step state"));
    copy(exec_.step, held->data(), sizeof(StepState));
  }
  copy(exec_.step, &host_step_, offsetof(StepState, loss_scale));
}

void Context::reset_step_results() {
  const StepState fresh;
  constexpr size_t kFirst = offsetof(StepState, grad_norm);
  copy(reinterpret_cast<std::byte*>(exec_.step) + kFirst,
       reinterpret_cast<const std::byte*>(&fresh) + kFirst, sizeof(StepState) - kFirst);
}

void Context::set_loss_scale(const LossScale& state) {
  copy(&exec_.step->loss_scale, &state, sizeof(LossScale));
}

StepState Context::read_step() {
  StepState step;
  copy(&step, exec_.step, sizeof(StepState));
  synchronize();
  return step;
}

Context::PassState::PassState() = default;
Context::PassState::PassState(PassState&&) noexcept = default;
Context::PassState::~PassState() = default;

Context::PassState Context::copy_pass_state() const {
  PassState state;
  state.autograd = std::make_unique<AutogradState>(*autograd_);
  state.host_step = host_step_;
  state.step_storage = step_storage_;
  state.observer = exec_.observer;
  return state;
}

void Context::exchange_pass_state(PassState& other) {
  // Scopes hold references to *autograd_, so only its content is swapped.
  std::swap(*autograd_, *other.autograd);
  std::swap(host_step_, other.host_step);
  std::shared_ptr<Storage> storage = std::exchange(other.step_storage, std::move(step_storage_));
  use_step(std::move(storage));
  std::swap(exec_.observer, other.observer);
}

void Context::continue_from(const PassState& other) {
  autograd_->next_node = std::max(autograd_->next_node, other.autograd->next_node);
  autograd_->seen_samples = other.autograd->seen_samples;
  host_step_ = other.host_step;
  use_step(other.step_storage);
}

void Context::set_workspace(Workspace* workspace) {
  exec_.workspace = workspace != nullptr ? workspace : workspace_.get();
}

void Context::will_write(const void* to, int64_t bytes) {
  if (exec_.observer != nullptr) exec_.observer->writing(to, bytes);
}

void Context::copy(void* to, const void* from, int64_t bytes) {
  will_write(to, bytes);
  memory_->backend->copy(to, from, static_cast<size_t>(bytes), exec_.stream);
}

void Context::synchronize() {
  memory_->backend->synchronize(exec_.stream);
}

void Storage::throw_context_ended() {
  throw InternalError(
      "tensor: its context has ended, expected a context that outlives its tensors, models and "
      "optimizers: declare it before them");
}

}  // namespace shale
