#include "shale/runtime/tensor/graph.h"

#include <exception>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/runtime/tensor/storage.h"

namespace shale {

// Scratch memory of captured kernels. It grows to the largest request. Smaller memory is kept, too,
// because earlier graphs still use it.
class GraphMemory::Scratch final : public Workspace {
 public:
  explicit Scratch(Context& context) : context_(context) {}
  void* reserve(size_t bytes) override {
    const auto wanted = static_cast<int64_t>(bytes);
    if (pieces_.empty() || pieces_.back()->bytes() < wanted) {
      pieces_.push_back(context_.allocate(wanted, MemoryTag::kWorkspace, "workspace of graphs"));
    }
    return pieces_.back()->data();
  }

 private:
  Context& context_;
  std::vector<std::shared_ptr<Storage>> pieces_;
};

GraphMemory::GraphMemory(Context& context)
    : context_(context),
      pool_(context.allocator().make_pool()),
      scratch_(std::make_unique<Scratch>(context)) {}

GraphMemory::~GraphMemory() {
  try {
    context_.synchronize();
    scratch_.reset();
    context_.allocator().release_pool(pool_);
  } catch (const std::exception& error) {
    log_warning("graph: ", error.what());
  }
}

GraphMemory::Scope::Scope(GraphMemory& memory)
    : context_(memory.context_), before_(context_.allocator().use_pool(memory.pool_)) {
  context_.set_workspace(memory.scratch_.get());
}

GraphMemory::Scope::~Scope() {
  context_.set_workspace(nullptr);
  context_.allocator().use_pool(before_);
}

namespace {

// A capture on the compute stream. It ends with finish(), or with the destructor after an error.
class Capture {
 public:
  explicit Capture(Context& context) : context_(context) {
    if (context.exec().dependent_launch && !context.backend().captures_dependent_launch()) {
      throw UnavailableError(
          "graph: found CUDA or a driver before 12.3, expected 12.3 or later to capture dependent "
          "launches; leave out --dependent-launch or --cuda-graph");
    }
    context_.allocator().begin_capture();
    try {
      context_.backend().begin_capture(context_.exec().stream);
    } catch (...) {
      context_.allocator().end_capture();
      throw;
    }
  }
  ~Capture() {
    if (ended_) return;
    try {
      finish();
    } catch (const std::exception&) {
      // Ignores this error, because an earlier error that caused it is already propagating.
    }
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  std::unique_ptr<DeviceGraph> finish() {
    ended_ = true;
    struct AllocatorGoesOn {
      CachingAllocator& allocator;
      ~AllocatorGoesOn() { allocator.end_capture(); }
    } const goes_on{context_.allocator()};
    return context_.backend().end_capture(context_.exec().stream);
  }

 private:
  Context& context_;
  bool ended_ = false;
};

}  // namespace

Graph::Graph(GraphMemory& memory, const std::function<void()>& work)
    : context_(memory.context()), step_(context_.exec().step) {
  const GraphMemory::Scope scope(memory);
  Capture capture(context_);
  work();
  graph_ = capture.finish();
}

void Graph::replay() {
  if (context_.exec().step != step_) {
    throw InternalError(
        "graph: the per-step values (StepState) have another address than during capture; nothing "
        "may keep a reference to them between two replays");
  }
  graph_->launch(context_.exec().stream);
}

}  // namespace shale
