#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shale/runtime/nn/module.h"
#include "shale/runtime/tensor/stream.h"

namespace shale {

struct ShardReplicas;

// How an optimizer treats a parameter, where that is not what its options say
// (set_parameter_options()).
struct ParameterOptions {
  float lr_factor = 1;                     // of the optimizer's learning rate
  std::optional<float> weight_decay = {};  // in place of the optimizer's, whatever is declared
};

// A run of elements of one parameter inside an OptimShard. It may be empty: the parameter is one of
// the shard's unit, and this rank has no part of it.
struct OptimSpan {
  Parameter* parameter = nullptr;
  int64_t first = 0;   // index of the first element in the parameter
  int64_t offset = 0;  // of the first element in the shard's buffers
  int64_t count = 0;
  ParameterOptions options = {};
};

// Where who owns a shard and who steps it off the compute stream (runtime/offload) meet.
class StepFence {
 public:
  // Calls of whoever steps it.
  struct Stepper {
    std::function<void(void* stream)> wait;
    std::function<void(const Event& arrived)> gradient_complete;
  };
  void set(Stepper stepper) { stepper_ = std::move(stepper); }
  bool has_stepper() const { return stepper_.wait != nullptr; }

  // Before parameters are read or gathered on `stream`, and before gradients are written again:
  // what is queued there from now on comes after a step that is still under way.
  void wait(void* stream) const {
    if (stepper_.wait != nullptr) stepper_.wait(stream);
  }
  // Once a step: the shard's gradient is what the step will see, when `arrived` and what is queued
  // on the compute stream have come to pass. Need not be called, but saves time.
  void gradient_complete(const Event& arrived) const {
    if (stepper_.gradient_complete != nullptr) stepper_.gradient_complete(arrived);
  }

 private:
  Stepper stepper_;
};

// What the ranks that hold the parts of buffers do together, on vectors on the compute stream.
// Collective.
struct ShardPeers {
  const void* ranks = nullptr;                    // equal for equal ranks
  int rank = 0, size = 1;                         // of them
  bool have_all_experts = true;  // each of mixtures once; false: each rank has some, whole
  std::function<void(const Tensor& x)> sum;       // adds f32 vectors over the ranks, in place
  std::function<Tensor(const Tensor& x)> gather;  // all ranks' vectors, one after another
  // Elements for, and from, each rank, one after another, on their way: `out` has them for what is
  // queued after calling what is returned. The counts are gone by then, the tensors are kept.
  std::function<std::function<void()>(const Tensor& in, const std::vector<int64_t>& in_counts,
                                      const Tensor& out, const std::vector<int64_t>& out_counts)>
      exchange;
};

// What is known of the gradients in a buffer. Copies of its shard share it, also those with some of
// its spans only.
struct ShardGradient {
  size_t parameters = 0;  // of the buffer; 0: those of the shard
  // Whether `grad` holds a gradient; if not, the next one overwrites it. Nothing where backward
  // writes into `grad` itself: then each parameter says so of its part (LeafState::has_value).
  std::optional<bool> has_value = {};
  std::set<const Parameter*> zeroed = {};  // count as zero nevertheless
  // What clip_grad_norm() has found, the end of StepState as bytes on the device; undefined: it was
  // not called since zero_grad(). Of the buffer, and of parameters for which that is different.
  Tensor clipped = {};
  std::map<const Parameter*, Tensor> clipped_apart = {};
  // Throws ConfigError while `grad` lacks what other ranks have; null: it never does.
  std::function<void()> check = {};
  // Calls `use` while `grad` is in memory, for gradients on a disk; null: it always is.
  std::function<void(const std::function<void()>& use)> in_memory = {};
};

// What a rank steps of one flat buffer: a whole buffer, or its part under sharding, in device or
// host memory. All tensors are vectors of one length; elements between the buffer's spans are
// padding and are zero. A copy may have some of the spans only, for an optimizer that steps these
// (select_parameters()).
//
// A master in another context than the gradient asks to be stepped there (runtime/offload);
// compute, f32 or less, then follows the master across, if it is defined: else readers fetch the
// master.
struct OptimShard {
  std::string name = {};  // for messages: "h.3"
  Tensor master;          // f32; the parameters themselves when they are f32
  Tensor grad;            // f32 or bf16
  Tensor compute = {};    // bf16 or f16 parameters that follow the master; undefined when master is
                          // the parameter
  std::vector<OptimSpan> spans;
  // Whether the gradient's norm counts it: not, of a table that two stages of a pipeline have, on
  // one of them.
  bool counts = true;
  std::shared_ptr<StepFence> fence = {};  // null: steps are over when later work on the stream runs
  std::shared_ptr<ShardGradient> gradient = std::make_shared<ShardGradient>();
  std::shared_ptr<const ShardPeers> peers = {};        // null: every rank has all of the buffer
  // Of statistics of whole parameters, where the peers have some experts only: ranks that have all,
  // and most of the rest several times, of which it counts where `repeats` is not set. null: peers.
  std::shared_ptr<const ShardPeers> all_peers = {};
  bool repeats = false;
  std::shared_ptr<const ShardReplicas> replicas = {};  // null: no other rank has a copy of it
  // Called before master and compute are changed, so that nobody reads them meanwhile, and when
  // they have been, so that they can be sent to other ranks; null: nobody wants to know.
  std::function<void()> changing = {};
  std::function<void()> changed = {};

  // Calls `use`, which may read and write `grad`, wherever that lies.
  void with_gradient(const std::function<void()>& use) const {
    gradient->in_memory != nullptr ? gradient->in_memory(use) : use();
  }
  // Whether it has all spans of its buffer.
  bool is_whole() const {
    return gradient->parameters == 0 || gradient->parameters == spans.size();
  }
};

// Part of a vector.
Tensor vector_slice(const Tensor& vector, int64_t begin, int64_t count);

// The shards of a module materialised on one device without data parallelism: one per trainable
// parameter. Makes the gradient memory and, for bf16, the f32 masters. Throws InternalError while
// shards of an earlier call are there, and for a sharded model, which has comm::optim_shards().
std::vector<OptimShard> local_shards(Module& module, Context& context);

// The same shards with those parameters only whose full name `wanted` takes, for an optimizer that
// steps these; shards without any are left out. Throws ConfigError if there are none. All ranks get
// the same parameters.
std::vector<OptimShard> select_parameters(const std::vector<OptimShard>& shards,
                                          const std::function<bool(const Parameter&)>& wanted);
// Those whose full name the pattern fits: `*` stands for any characters, "h.*.bias".
std::vector<OptimShard> select_parameters(const std::vector<OptimShard>& shards,
                                          std::string_view pattern);
// Sets how the optimizer that is made of these shards treats the parameters whose full name the
// pattern fits, whatever was set before. Throws ConfigError if there are none.
void set_parameter_options(std::vector<OptimShard>& shards, std::string_view pattern,
                           const ParameterOptions& options);

// The ranks that hold the other parts; null: there are none. Throws ConfigError, naming `what`, for
// shards that are cut over different ranks.
const ShardPeers* peers_of(std::string_view what, const std::vector<OptimShard>& shards);
// The same for statistics of whole parameters (OptimShard::all_peers).
const ShardPeers* all_peers_of(std::string_view what, const std::vector<OptimShard>& shards);
// Whether parts of the span's parameter are neither here nor at the peers: elements, leaves,
// experts. An optimizer of whole parameters cannot step it then.
bool lacks_parts(const OptimSpan& span, const ShardPeers* peers);

// Sets the gradients of parameters that no backward has reached since zero_grad() to zero.
void complete_gradients(const std::vector<OptimShard>& shards);
// The next gradient overwrites instead of adding, and is not clipped. Moves no memory.
void zero_grad(const std::vector<OptimShard>& shards);

}  // namespace shale
