#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "shale/comm/parallel/data/captured_collectives.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/runtime/data/batch_uploads.h"
#include "shale/runtime/data/device_batch.h"
#include "shale/runtime/offload/activations.h"
#include "shale/runtime/tensor/graph.h"

namespace shale::models {

// Forward and backward of the micro-batches of training steps, launched kernel by kernel, or
// captured once and replayed as graphs.
//
// With graphs, the first step is launched kernel by kernel, in the memory that the graphs will use.
// Three micro-batches are captured when they first occur, because they treat gradients differently:
// the first of a step overwrites them, a middle one adds to them, and the last one completes them.
// Each is captured as two graphs. Losses are bit-identical to those without graphs.
// All micro-batches must have one shape.
class MicroBatches {
 public:
  // Returns the sum of a micro-batch's losses, an f32 scalar. If this process hosts several mesh
  // ranks, it is called inside comm::HostedRanks::run() for each of them, with the rank's rows of
  // the batch.
  using Loss = std::function<Tensor(const DeviceBatch&)>;
  // Position of a micro-batch in its step.
  struct Place {
    bool first = false;
    bool last = false;
  };

  // All arguments must outlive this. activations: moves activations to the host; null: they stay.
  // Incompatible with `graphs`.
  MicroBatches(Context& context, Loss loss, comm::DataParallel& parallel,
               offload::ActivationOffload* activations, bool graphs);
  ~MicroBatches();

  // Launches the forward of a micro-batch; StepState must already describe it. With graphs, throws
  // ShapeError if the batch's shape differs from that of the first micro-batch.
  void forward(const Batch& batch, Place place);
  // Launches the backward of the micro-batch whose forward was launched last. Returns its loss in a
  // new tensor.
  Tensor backward();
  // Call after the last micro-batch of a step.
  void end_step() { warm_ = true; }

 private:
  struct Pass {
    std::unique_ptr<Graph> graph;  // null: not captured yet
    comm::CapturedCollectives collectives;
  };
  // Graphs of micro-batches with the same Place in their steps.
  struct Captured {
    Pass forward, backward;
    Tensor loss;
    std::vector<bool> flags_before, flags_after;  // gradient flags of DataParallel around backward
  };

  void queue_forward();
  void queue_backward();
  Tensor take_loss();  // returns the loss, which is equal on all ranks
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
  BatchUploads uploads_;
  DeviceBatch batch_;                    // input; with graphs always at the same address
  Place place_;                          // place of the last launched micro-batch
  // Loss of the last micro-batch on each mesh rank; replays do not set it.
  std::vector<Tensor> losses_;
  bool warm_ = false;                 // a whole step has run, so graphs can be captured
  std::array<Captured, 4> captured_;  // indexed by place; must be destroyed before memory_
};

}  // namespace shale::models
