#pragma once

#include "shale/kernels/adafactor.h"
#include "shale/runtime/optim/optimizer.h"

namespace shale::optim {

// The names are those of the paper below.
struct AdafactorOptions {
  float eps = 1e-30f;           // added to squared gradients
  float clip_rms = 1;           // of a parameter's update, at most
  double decay_exponent = 0.8;  // the newest gradient has weight t^-decay_exponent in the means
  float weight_decay = 0;       // decoupled; as AdamW's
};

// Adafactor (arXiv:1804.04235, algorithm 4) without momentum and with the schedule's learning rate:
// of a matrix it keeps a mean squared gradient per row and per column (all dimensions but the last
// are rows), of other parameters per element. Some bytes per thousand parameters.
//
// Its statistics are of whole parameters, so that ranks add what they find in their shards
// (ShardPeers; steps are collective then), in an order that depends on how parameters are cut:
// results are the same only for the same number of ranks and shards. Throws ConfigError for a shard
// with a fence (runtime/offload), for shards that are cut over different ranks or were clipped
// apart, and for a part of a parameter without peers that have the rest.
class Adafactor : public Optimizer {
 public:
  Adafactor(std::vector<OptimShard> shards, const AdafactorOptions& options);

  bool needs_all_gradients() const override { return true; }
  void begin_step() override;

 private:
  void update(size_t shard, const Tensor& compute) override;
  std::vector<StatePart> own_state_parts() const override;
  void set_corrections(StepState& values, int64_t done) const override;
  // A parameter's part in a shard, and its statistics.
  struct Part {
    size_t shard = 0;
    OptimSpan span{};
    kernels::MatrixRange matrix{};
    bool factored = false;
    int64_t means_offset = 0;  // rows, then columns, in means_
    Tensor v{};                // if not factored
  };
  View row(const Tensor& means, const Part& part) const;
  View col(const Tensor& means, const Part& part) const;
  View square(size_t part) const;
  View grad(const Part& part) const;

  AdafactorOptions options_;
  const ShardPeers* peers_;
  std::vector<Part> parts_;
  Tensor means_;    // of all matrices
  Tensor newest_;   // the same, of this step's gradient
  Tensor squares_;  // of each part's parameter: the sum of squares of its update
};

}  // namespace shale::optim
