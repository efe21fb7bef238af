#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "shale/comm/work.h"
#include "shale/runtime/offload/host_tier.h"
#include "shale/runtime/optim/shard.h"

namespace shale::comm {

class DataParallel;
class FlatBuffer;

struct LocalStepsOptions {
  int64_t every = 1;      // steps between two outer steps of a parameter; at least 1
  int64_t start = 0;      // number of first steps that use the gradients of all replicas
  float lr = 0.7f;        // learning rate of the outer step
  float momentum = 0.9f;  // Nesterov momentum of the outer step: [0, 1)
  // True: the outer steps of buffers are spread over the steps, so that each step sends about the
  // same amount (arXiv:2501.18512, section 2.2). False: all buffers have their outer steps in the
  // same step.
  bool in_turn = false;
};

// Local steps of replicas with hybrid sharding (DiLoCo, arXiv:2311.08105, algorithm 1). Each
// replica steps with the gradients of its own samples. An outer step follows after every `every`
// steps. It updates an anchor a, which is equal on all replicas, from the masters w_k of the r
// replicas:
//
//   d = mean over k of (a - w_k);  m = momentum m + d;  a -= lr (d + momentum m);  w_k = a
//
// a and m are f32, sharded like the masters, in host memory, where the outer step runs. Replicas
// exchange only a sum of d: 2 (r - 1) / r * 4 bytes per element of the shard.
//
// Between two outer steps, masters and optimizer states differ between replicas. The anchors are
// equal on all replicas; evaluation, export and checkpoints use them as the values of the
// parameters. Calls are collective over ShardGroups::replicate.
class LocalSteps {
 public:
  // Covers the shards that `parallel` has now. Both arguments must outlive this object. Throws
  // ConfigError for a group without replicas, for options outside their ranges, and for masters
  // that are not on the device.
  LocalSteps(DataParallel& parallel, offload::HostTier& tier, const LocalStepsOptions& options);

  // True if each replica uses only its own gradient in `step`, counted from 0.
  bool is_local(int64_t step) const { return step >= options_.start; }
  // Call before the optimizer's step.
  void begin_step(int64_t step);
  // Call after the optimizer's step. `done`: number of steps so far. Runs outer steps that are due.
  void end_step(int64_t done);
  // Call after a run's last step. Runs the outer steps of buffers that have changed since their
  // last.
  void finish(int64_t done);
  // Makes the anchors valid. Until the first local step they equal the masters and have no copy.
  void settle();
  // Call after loading a state with anchors.
  void loaded() { stale_ = false; }
  // Calls `use` while the masters are replaced by the anchors; restores both afterwards.
  void with_anchors(const std::function<void()>& use);

  // Anchor a and momentum m of a buffer: f32, as many elements as the master, in host memory.
  // find() returns null for frozen parameters.
  struct Outer {
    Tensor anchor, momentum;
  };
  const Outer* find(const FlatBuffer& buffer) const;

 private:
  struct Unit {
    FlatBuffer* buffer;
    OptimShard shard;
    int64_t turn;  // delay of the outer step after a multiple of `every`: 0 to every - 1
    Outer outer;
  };
  bool is_due(const Unit& unit, int64_t done) const;
  void synchronise(const std::vector<Unit*>& units);
  Work send(const Unit& unit, const Tensor& delta);
  void step(const Unit& unit, const Tensor& delta);
  void swap();
  void download(const Unit& unit, const Tensor& to);
  void upload(const Unit& unit);

  DataParallel& parallel_;
  offload::HostTier& tier_;
  LocalStepsOptions options_;
  std::vector<Unit> units_;
  std::array<Tensor, 2> staged_;  // as large as the largest unit: one is sent, one is filled
  bool stale_ = true;  // the anchors are out of date; they stand for the masters
};

}  // namespace shale::comm
