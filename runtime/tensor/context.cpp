#include "runtime/tensor/context.h"

#include <algorithm>
#include <cstddef>

#include "kernels/registry.h"
#include "runtime/autograd/state.h"
#include "runtime/tensor/storage.h"

namespace shale {

// Grows to the largest request and stays: kernels on one stream run one after another.
class Context::StreamWorkspace final : public Workspace {
 public:
  explicit StreamWorkspace(Context& context) : context_(context) {}
  void* reserve(size_t bytes) override {
    if (storage_ == nullptr || storage_->bytes() < static_cast<int64_t>(bytes)) {
      storage_.reset();  // first, so that old and new need not both fit
      storage_ = context_.allocate(static_cast<int64_t>(bytes), MemoryTag::kWorkspace, "workspace");
    }
    return storage_->data();
  }

 private:
  Context& context_;
  std::shared_ptr<Storage> storage_;
};

Context::Context(const ContextOptions& options)
    : backend_(make_backend(options.device)),
      allocator_(*backend_, options.device_memory),
      autograd_(std::make_unique<AutogradState>()),
      workspace_(std::make_unique<StreamWorkspace>(*this)) {
  kernels::register_cpu_kernels();
  exec_.device = backend_->device();
  exec_.stream = backend_->create_stream();
  exec_.workspace = workspace_.get();
  exec_.threads = std::max(1, options.threads);
  exec_.deterministic = options.deterministic;
  step_storage_ = allocate(sizeof(StepState), MemoryTag::kData, "step state");
  exec_.step = static_cast<StepState*>(step_storage_->data());
  update_step([&](StepState& step) { step.seed = options.seed; });
  reset_step_results();
}

Context::~Context() {
  workspace_.reset();
  step_storage_.reset();
  backend_->destroy_stream(exec_.stream);
}

std::shared_ptr<Storage> Context::allocate(int64_t bytes, MemoryTag tag, std::string_view what) {
  return std::make_shared<Storage>(*this, allocator_.allocate(bytes, tag, exec_.stream, what),
                                   bytes);
}

void Context::update_step(const std::function<void(StepState&)>& change) {
  change(host_step_);
  if (step_storage_.use_count() > 1) {
    const auto held = std::move(step_storage_);
    step_storage_ = allocate(sizeof(StepState), MemoryTag::kData, "step state");
    exec_.step = static_cast<StepState*>(step_storage_->data());
    copy(exec_.step, held->data(), sizeof(StepState));
  }
  copy(exec_.step, &host_step_, offsetof(StepState, grad_norm));
}

void Context::reset_step_results() {
  const StepState fresh{.clip_factor = 1 / host_step_.loss_scale};
  constexpr size_t kFirst = offsetof(StepState, grad_norm);
  copy(reinterpret_cast<std::byte*>(exec_.step) + kFirst,
       reinterpret_cast<const std::byte*>(&fresh) + kFirst, sizeof(StepState) - kFirst);
}

StepState Context::read_step() {
  StepState step;
  copy(&step, exec_.step, sizeof(StepState));
  synchronize();
  return step;
}

void Context::copy(void* to, const void* from, int64_t bytes) {
  backend_->copy(to, from, static_cast<size_t>(bytes), exec_.stream);
}

void Context::synchronize() {
  backend_->synchronize(exec_.stream);
}

Storage::~Storage() {
  context_->allocator().free(block_);
}

void Storage::record_stream(void* stream) const {
  context_->allocator().record_stream(block_, stream);
}

}  // namespace shale
