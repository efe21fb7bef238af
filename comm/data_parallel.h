#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/process_group.h"
#include "runtime/optim/shard.h"

namespace shale::comm {

class FlatUnit;

struct DataParallelOptions {
  DType compute = DType::kF32;  // of parameters and activations; below f32 there are f32 masters
  bool overlap = true;          // reduce a unit while backward goes on; false: all at the end
  uint64_t seed = 0;            // of the initial values
};

// Data parallelism over the ranks of a group (stage 0: every rank has all parameters, gradients and
// optimizer states). The parameters of each unit lie in one flat buffer and so do their gradients,
// in memory that peers reach; backward accumulates into it and, as soon as a unit's gradient is
// complete, it is summed over the ranks in place while backward goes on.
//
// Reductions are issued in one fixed order on all ranks, the order in which backward usually gets
// to the units: from the last to the first, then the root, which holds what comes before and after
// them. A unit that is ready early waits. What is left (parameters that a step did not use) is
// reduced as zeros by finish_gradients(), so ranks never disagree about what is reduced.
//
//   DataParallel parallel(model, model.blocks(), context, group, {...});
//   optim::AdamW optimizer(parallel.shards(), {...});
//   for each step:
//     for each micro-batch: parallel.begin_backward(is_last); backward(loss);
//     parallel.finish_gradients();  // the sum over ranks and micro-batches
//     optimizer.step(); optimizer.zero_grad();
class DataParallel {
 public:
  // Gives all parameters of `model` memory and their initial values. `units`: see plan_units().
  // Model, context and group must outlive this.
  DataParallel(Module& model, const std::vector<Module*>& units, Context& context,
               ProcessGroup& group, const DataParallelOptions& options);
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  // What this rank's optimizer steps.
  const std::vector<OptimShard>& shards() const { return shards_; }

  // Before every backward. reduce = false ("no_sync"): the gradient stays local and accumulates;
  // the last backward of a step must reduce.
  void begin_backward(bool reduce);
  // After the last backward of a step: all gradients are complete on every rank when it returns.
  // Throws what a reduction threw.
  void finish_gradients();

  // Sets every parameter from full-size f32 host values: fill(parameter, view) writes them.
  void load(const std::function<void(const Parameter&, const View&)>& fill);
  // Copies the f32 value of a parameter, whole, to dense host memory. Every rank calls it.
  void read(const Parameter& parameter, const View& to);

  double exposed_seconds() const {
    return exposed_seconds_;
  }  // spent waiting for reductions, in all

 private:
  void issue_ready();

  Context& context_;
  ProcessGroup& group_;
  DataParallelOptions options_;
  std::vector<std::unique_ptr<FlatUnit>> units_;
  std::vector<OptimShard> shards_;
  bool reducing_ = false;
  std::vector<FlatUnit*> order_;  // in which units are reduced
  size_t issued_ = 0;             // units reduced or in flight in this step
  std::vector<Work> in_flight_;
  double exposed_seconds_ = 0;
};

}  // namespace shale::comm
