#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "shale/comm/parallel/data/captured_collectives.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/runtime/data/device_batch.h"
#include "shale/runtime/offload/activations.h"
#include "shale/runtime/tensor/graph.h"

namespace shale::models {

// Forward and backward of the micro-batches of training steps: queued kernel by kernel, or captured
// once and replayed as graphs.
//
// With graphs the first step is queued kernel by kernel, in the memory that graphs will use. Then
// the first micro-batch of a step, the last one and those between are captured when they first
// come, each as two graphs, as they differ in what they do with gradients: the first overwrites
// them, the last completes them. Losses are the same to the bit. All micro-batches have one shape.
class MicroBatches {
 public:
  // The sum of a micro-batch's losses, an f32 scalar. Where this process has several mesh ranks it
  // is called for each, with all they have of the batch, inside of comm::HostedRanks::run().
  using Loss = std::function<Tensor(const DeviceBatch&)>;
  // Where a micro-batch is in its step.
  struct Place {
    bool first = false;
    bool last = false;
  };

  // All outlive this. activations: null, or what moves them to the host, which takes no graphs.
  MicroBatches(Context& context, Loss loss, comm::DataParallel& parallel,
               offload::ActivationOffload* activations, bool graphs);
  ~MicroBatches();

  // Queues the forward of a micro-batch. StepState is its already. With graphs, throws ShapeError
  // for a batch of another shape than the first.
  void forward(const Batch& batch, Place place);
  // Queues its backward. Returns its loss, a tensor of its own.
  Tensor backward();
  // After the last micro-batch of a step.
  void end_step() { warm_ = true; }

 private:
  struct Pass {
    std::unique_ptr<Graph> graph;  // null: not captured yet
    comm::CapturedCollectives collectives;
  };
  // Graphs of the micro-batches at one place of their steps.
  struct Captured {
    Pass forward, backward;
    Tensor loss;
    std::vector<bool> flags_before, flags_after;  // of backward, see DataParallel
  };

  void queue_forward();
  void queue_backward();
  Tensor take_loss();  // all ranks have the same
  void capture(Pass& pass, void (MicroBatches::*queue)());
  void replay(const Pass& pass);
  void graph_forward();
  Tensor graph_backward();
  Captured& captured() { return captured_.at((place_.first ? 1u : 0u) + (place_.last ? 2u : 0u)); }

  Context& context_;
  Loss loss_of_;
  comm::DataParallel& parallel_;
  offload::ActivationOffload* activations_;
  std::unique_ptr<GraphMemory> memory_;  // null: no graphs
  DeviceBatch batch_;                    // with graphs always in the same memory
  Place place_;                          // of the micro-batch whose forward was queued last
  std::vector<Tensor> losses_;           // its loss on each mesh rank, unless that was a replay
  bool warm_ = false;                    // a whole step has run
  std::array<Captured, 4> captured_;     // by place; they go before the memory
};

}  // namespace shale::models
