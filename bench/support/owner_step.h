#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/process_group.h"
#include "shale/models/training/micro_batches.h"
#include "shale/runtime/data/device_batch.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::bench {

// What crosses the links of a step in which one rank owns the training state, in bytes. The links
// are a star: one from the owner to each of the others.
struct StarBytes {
  double down = 0;  // on each link, from the owner
  double up = 0;    // on each link, to the owner
};

// Data parallelism with an owner, as torch.nn.DataParallel does it over the devices of a process:
// rank 0 has the batch, the parameters and the optimizer; in every step it gives each rank its rows
// and the parameters, gets its gradients, and steps alone. A baseline, which nothing else uses.
class OwnerStep {
 public:
  // Collective; all are used until the end. Every rank has memory for the model and its gradients.
  OwnerStep(Module& model, const std::vector<Module*>& units, Context& context,
            comm::ProcessGroup& group, comm::ProcessGroup& alone,
            const std::function<std::unique_ptr<optim::Optimizer>(std::vector<OptimShard>)>& make);

  // `whole`: on the owner the batch of all ranks; on others what its fields are called, without
  // rows. Its rows are a multiple of the ranks. Returns the sum of losses of this rank's rows.
  float run(const Batch& whole, int64_t step, float lr, const models::MicroBatches::Loss& loss);

  StarBytes bytes() const { return bytes_; }  // of the last step
  Module& model() { return model_; }

 private:
  Batch scatter(const Batch& whole);
  void give_parameters();
  void take_gradients();

  Module& model_;
  Context& context_;
  comm::ProcessGroup& group_;
  comm::DataParallel parallel_;  // of this rank alone
  std::unique_ptr<optim::Optimizer> optimizer_;
  StarBytes bytes_;
};

}  // namespace shale::bench
