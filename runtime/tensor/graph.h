#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "shale/runtime/tensor/context.h"

namespace shale {

// Where captured work keeps its tensors and scratch memory: a pool that serves nothing else, so
// that their addresses stay theirs. Graphs that share it run one after another, in the order in
// which they were captured or again from any point of it: what a graph leaves is there until one
// that was captured before it runs again.
class GraphMemory {
 public:
  explicit GraphMemory(Context& context);
  // Waits for the compute stream. The graphs, and the tensors they leave, are gone by then.
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  Context& context() const { return context_; }

  // While it lives, the context's tensors and its kernels' scratch memory come from there. For work
  // that is to be captured and runs once before: then the capture finds the memory it needs.
  class Scope {
   public:
    explicit Scope(GraphMemory& memory);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Context& context_;
    uint64_t before_;
  };

 private:
  class Scratch;

  Context& context_;
  uint64_t pool_;
  std::unique_ptr<Scratch> scratch_;
};

// What one run of a function queued on the compute stream, to be queued again as a whole: a CUDA
// graph. A replay computes with the addresses of the first run. So tensors from elsewhere that the
// work reads or writes live as long as the graph, and what changes from run to run comes from
// device memory: from them, or from StepState.
class Graph {
 public:
  // Calls `work`, whose kernels and copies are captured instead of run; host code in it runs this
  // once. It must have run before, so that libraries are loaded and memory is there, must leave no
  // other stream with work that the compute stream does not wait for, and must not wait for the
  // device (DeviceBackend::begin_capture). Throws what `work` throws, UnavailableError on a device
  // without streams.
  Graph(GraphMemory& memory, const std::function<void()>& work);

  // Queues all of it. Throws InternalError if StepState has moved, which Context::update_step()
  // does while somebody holds it.
  void replay();

 private:
  Context& context_;
  const StepState* step_;
  std::unique_ptr<DeviceGraph> graph_;
};

}  // namespace shale
