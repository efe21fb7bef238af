#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/process_group.h"
#include "shale/models/training/step.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::bench {

// Bytes that a step sends over links if one rank owns the training state. There is a link from the
// owner to each other rank.
struct StarBytes {
  double down = 0;  // bytes on each link that the owner sends
  double up = 0;    // bytes on each link that the owner receives
};

// Returns a batch with the same fields, dtypes and shapes but without data. Ranks other than rank 0
// use it.
Batch without_rows(const Batch& whole);

// Data parallelism with an owner, like torch.nn.DataParallel for the devices of a process. Rank 0,
// the owner, has the batch, the parameters and the optimizer. In every step it sends each rank its
// rows and the parameters, and receives the rank's gradients. It alone updates the parameters. Rows
// go from host memory to host memory, and each rank copies its rows to its device. Only benchmarks
// use it, as a baseline.
class OwnerStep {
 public:
  // `group` and `alone` are for memory of the context's device; `alone` has this rank only. Every
  // rank allocates the model and its gradients, the owner also the optimizer. seed: for initial
  // values. The arguments must outlive this object. All ranks must call it.
  OwnerStep(Module& model, const std::vector<Module*>& units, Context& context,
            comm::ProcessGroup& group, comm::ProcessGroup& alone, uint64_t seed,
            const models::MakeOptimizer& make);

  // Runs a step on the sum of all ranks' losses divided by `weight`. `whole`: on rank 0 the batch
  // of all ranks, on other ranks without_rows() of it. Returns the sum of the losses of this rank's
  // rows. Throws InternalError unless the number of ranks divides the rows of the batch.
  float run(const Batch& whole, int64_t step, float lr, double weight,
            const models::MicroBatches::Loss& loss);

  StarBytes bytes() const { return bytes_; }  // bytes of the last step

 private:
  Batch scatter(const Batch& whole);
  void give_parameters();
  void take_gradients();

  Module& model_;
  Context& context_;
  comm::ProcessGroup& group_;
  comm::DataParallel parallel_;  // data parallelism in a group of this rank only
  std::unique_ptr<optim::Optimizer> optimizer_;
  StarBytes bytes_;
};

}  // namespace shale::bench
