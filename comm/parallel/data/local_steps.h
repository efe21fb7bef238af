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
  int64_t start = 0;      // steps with the gradients of all replicas, before the first local one
  float lr = 0.7f;        // of the outer step
  float momentum = 0.9f;  // of the outer step, Nesterov's: [0, 1)
  // Buffers take turns over the steps, so that each step sends about as much as any other
  // (arXiv:2501.18512, section 2.2); false: all have the same turn.
  bool in_turn = false;
};

// Local steps of replicas of hybrid sharding (DiLoCo, arXiv:2311.08105, algorithm 1): each steps by
// the gradients of its own samples, and every so many steps, with an anchor a that all have alike,
// and replicas w_k of r:
//   d = mean over k of (a - w_k);  m = momentum m + d;  a -= lr (d + momentum m);  w_k = a
// Anchors and m, f32, are cut as masters are and lie in host memory, where this happens: what
// travels between replicas is a sum of d, 2 (r - 1) / r 4 bytes of each element of the shard.
//
// Between two outer steps replicas differ, in masters and in their optimizers' states. What all
// have alike then, and what is evaluated, exported and called by the parameters' names on
// checkpoints, are the anchors. Calls are collective over ShardGroups::replicate.
class LocalSteps {
 public:
  // Of what data parallelism has sharded by now; both outlive this. Throws ConfigError for a group
  // without replicas, for options outside their ranges and for masters that are not on the device.
  LocalSteps(DataParallel& parallel, offload::HostTier& tier, const LocalStepsOptions& options);

  // `step` counts from 0. Whether each replica steps by its own gradient in it.
  bool is_local(int64_t step) const { return step >= options_.start; }
  // Before the optimizer's step.
  void begin_step(int64_t step);
  // After it, and `done` steps: the outer steps that are due.
  void end_step(int64_t done);
  // After the last step of a run: the outer steps of what has made local steps since its last one.
  void finish(int64_t done);
  // Anchors are what they are to be: before local steps they are the masters, which nobody copies
  // until somebody asks.
  void settle();
  // The state was loaded, anchors included.
  void loaded() { stale_ = false; }
  // Calls `use` while masters are the anchors, whose bits and theirs are then as before.
  void with_anchors(const std::function<void()>& use);

  // What belongs to a buffer: [master's elements] f32, in host memory. Null for frozen parameters.
  struct Outer {
    Tensor anchor, momentum;
  };
  const Outer* find(const FlatBuffer& buffer) const;

 private:
  struct Unit {
    FlatBuffer* buffer;
    OptimShard shard;
    int64_t turn;  // 0 to every - 1: how many steps later than a multiple of `every`
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
  std::array<Tensor, 2> staged_;  // room for the largest of them: one is sent while one is made
  bool stale_ = true;             // anchors are not the masters, and should be
};

}  // namespace shale::comm
