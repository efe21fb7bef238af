#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "shale/runtime/tensor/context.h"

namespace shale {

// Private memory pool for the tensors and scratch memory of captured work, so that their addresses
// never change. Graphs that share a pool overwrite each other's memory. So they must replay in the
// order of capture, from any of them on. The results of a graph stay valid until a graph that was
// captured earlier replays.
class GraphMemory {
 public:
  explicit GraphMemory(Context& context);
  // Waits for the compute stream. The graphs, and the tensors that they made, must be destroyed
  // before.
  ~GraphMemory();
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;

  Context& context() const { return context_; }

  // Scope in which the context's tensors and its kernels' scratch memory come from this pool. Use
  // it also for the eager run before a capture; then the capture finds the memory that it needs.
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

// A CUDA graph: the work that one run of a function queued on the compute stream, for replay. A
// replay uses the addresses of the captured run. So tensors that were made before the capture and
// that the work reads or writes must live as long as the graph. Values that change between runs
// must come from device memory, that is, from such tensors or from StepState.
class Graph {
 public:
  // Calls `work` and captures its kernels and copies instead of running them; its host code runs
  // once. `work` must have run before, so that libraries are loaded and memory is allocated. It
  // must not leave work on another stream for which the compute stream does not wait, and must not
  // wait for the device (DeviceBackend::begin_capture). Throws what `work` throws; UnavailableError
  // on a device without streams.
  Graph(GraphMemory& memory, const std::function<void()>& work);

  // Queues the captured work. Throws InternalError if StepState has moved. This happens when
  // Context::update_step() is called while step values are held.
  void replay();

 private:
  Context& context_;
  const StepState* step_;
  std::unique_ptr<DeviceGraph> graph_;
};

}  // namespace shale
