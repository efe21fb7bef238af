#pragma once

#include <vector>

#include "shale/kernels/zero_one_adam.h"
#include "shale/runtime/optim/one_bit_optimizer.h"

namespace shale::optim {

// Names as in the paper below; in brackets those of DeepSpeed.
struct ZeroOneAdamOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-8f;
  float weight_decay = 0.1f;       // as AdamW's
  int64_t freeze_step = 0;         // steps in which v may change (var_freeze_step); at least 1
  int64_t variance_doubling = 16;  // updates of v before their interval doubles (var_update_scaler)
  int64_t local_doubling = 1000;   // steps before that of exchanges doubles (local_step_scaler)
  int64_t local_most = 16;         // the longest of these, in steps (local_step_clipper)
};

// Whether v is updated in this step: of `doubling` updates one follows the other at once, of the
// next `doubling` every second step has one, then every fourth, and so on, from step 0 on.
bool updates_variance(int64_t step, int64_t doubling);
// Whether replicas exchange at the end of this local step, counted from the freeze: after every
// step of the first `doubling`, every second of the next, and so on up to every `most`.
bool joins_replicas(int64_t local_step, int64_t doubling, int64_t most);

// 0/1 Adam with decoupled weight decay and bias corrections (arXiv:2202.06009, algorithm 1). Until
// step freeze_step replicas, those of hybrid sharding, step alike: in growing intervals by the sum
// of their gradients, which updates v and m; in between by the mean of their gradients at one bit
// an element, which updates m alone. From then on v stays, and each steps by its own gradients; in
// growing intervals the mean of what they have added up since, at one bit an element, is put on
// what they had alike then, their anchor, and m is made of it. What is owed to the first kind of
// mean is dropped at the freeze. Weight decay acts on the anchor. Elements whose v is exactly 0 are
// left alone by one-bit gradients and after the freeze, but for their decay.
//
// States besides OneBitOptimizer's: m; v; per 256 elements what v's updates weigh together; sum and
// its rates, and in memory the anchor. On a checkpoint the parameters' names have the anchor.
// Throws ConfigError as OneBitOptimizer, and for intervals below 1.
class ZeroOneAdam : public OneBitOptimizer {
 public:
  ZeroOneAdam(std::vector<OptimShard> shards, const ZeroOneAdamOptions& options);

  bool needs_replica_sum() const override;
  void begin_step() override;

  bool has_local_steps() const override { return true; }
  Tensor anchor(size_t shard) const override;
  void use_anchors(bool use) override;
  void join_replicas() override;
  void loaded() const override;

 private:
  // Whether replicas exchange in the local step that is prepared.
  bool joins() const;
  void set_corrections(StepState& values, int64_t done) const override;
  void step_run(size_t shard, const OptimRun& run, const View& compute) override;
  void average_sums();
  // Masters from anchors and sums.
  void place(size_t shard) const;
  void call(size_t shard, const OptimRun& run, kernels::ZeroOneStep step, const Exec& exec,
            const View& compute) const;

  ZeroOneAdamOptions options_;
  std::vector<Tensor> anchors_;       // of each shard; before the freeze one-bit gradients
  mutable bool has_anchors_ = false;  // that are ones
  bool is_joined_ = true;             // after the last step
};

}  // namespace shale::optim
