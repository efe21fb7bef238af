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

// Deviations from the optimizer's options for a parameter (set_parameter_options()).
struct ParameterOptions {
  float lr_factor = 1;                     // factor of the optimizer's learning rate
  std::optional<float> weight_decay = {};  // replaces the optimizer's and ignores Parameter::decay
};

// A range of one parameter's elements within an OptimShard. May be empty if this rank has no part
// of a parameter of the shard's unit.
struct OptimSpan {
  Parameter* parameter = nullptr;
  int64_t first = 0;   // index of the first element in the parameter
  int64_t offset = 0;  // offset of the first element in the shard's buffers
  int64_t count = 0;
  ParameterOptions options = {};
};

// Synchronises a shard's owner with code that steps it off the compute stream (runtime/offload).
class StepFence {
 public:
  // Callbacks to the code that steps the shard.
  struct Stepper {
    std::function<void(void* stream)> wait;
    std::function<void(const Event& arrived)> gradient_complete;
  };
  void set(Stepper stepper) { stepper_ = std::move(stepper); }
  bool has_stepper() const { return stepper_.wait != nullptr; }

  // Makes work queued on `stream` from now on wait for an unfinished step. Call it before
  // parameters are read or all-gathered on `stream`, and before gradients are written again.
  void wait(void* stream) const {
    if (stepper_.wait != nullptr) stepper_.wait(stream);
  }
  // Announces, once per step, that the shard's gradient is final after `arrived` and the work
  // queued on the compute stream. Optional; it lets the step begin earlier.
  void gradient_complete(const Event& arrived) const {
    if (stepper_.gradient_complete != nullptr) stepper_.gradient_complete(arrived);
  }

 private:
  Stepper stepper_;
};

// Collectives on device vectors, queued on the compute stream, over the ranks with parts of
// buffers.
struct ShardPeers {
  const void* ranks = nullptr;                    // compares equal for the same ranks
  int rank = 0, size = 1;                         // index of this rank in `ranks`, and their number
  // True: the ranks together hold each expert once; false: each rank holds some whole experts.
  bool have_all_experts = true;
  std::function<void(const Tensor& x)> sum;       // adds f32 vectors over the ranks, in place
  std::function<Tensor(const Tensor& x)> gather;  // all-gather: all ranks' vectors, concatenated
  // All-to-all: starts sending `in`, with sections for each rank, and receiving `out`, with
  // sections from each rank. Work queued after the returned function has been called sees `out`
  // complete. The counts may be freed after the first call; the tensors are kept alive.
  std::function<std::function<void()>(const Tensor& in, const std::vector<int64_t>& in_counts,
                                      const Tensor& out, const std::vector<int64_t>& out_counts)>
      exchange;
};

// State of the gradients in a buffer. All copies of the buffer's shard share it, also copies with
// only some of the spans.
struct ShardGradient {
  size_t parameters = 0;  // parameters in the buffer; 0: as many as in the shard
  // True if `grad` holds a gradient; false: the next one overwrites it. nullopt if backward writes
  // into `grad` directly: then each parameter has a separate flag (LeafState::has_value).
  std::optional<bool> has_value = {};
  std::set<const Parameter*> zeroed = {};  // parameters whose gradient is zero despite has_value
  // Results of clip_grad_norm(): the last fields of StepState, as bytes on the device. Undefined if
  // it was not called since zero_grad(). clipped_apart has the parameters whose results differ from
  // the buffer's.
  Tensor clipped = {};
  std::map<const Parameter*, Tensor> clipped_apart = {};
  // Throws ConfigError while `grad` lacks contributions of other ranks; null: it never does.
  std::function<void()> check = {};
  // Calls `use` while `grad` is in memory, if gradients are stored on disk; null: always in memory.
  std::function<void(const std::function<void()>& use)> in_memory = {};
};

// A rank's part of one flat buffer, to be stepped by an optimizer: the whole buffer or its shard,
// in device or host memory. All tensors are vectors of the same length; elements outside the
// buffer's spans are padding and zero. A copy may have only some of the spans, for an optimizer
// that steps only these (select_parameters()).
//
// The step runs in the master's context, which may not be the gradient's (runtime/offload). Then
// `compute`, f32 or narrower, is copied from the master if it is defined; otherwise readers copy
// the master.
struct OptimShard {
  std::string name = {};  // name in messages: "h.3"
  Tensor master;          // f32 masters; for f32 parameters, the parameters
  Tensor grad;            // f32 or bf16
  // Bf16 or f16 parameters, rounded from the master; undefined if master is the parameter.
  Tensor compute = {};
  std::vector<OptimSpan> spans;
  // False if the gradient norm must not count this shard: a table that two pipeline stages hold is
  // counted on only one of them.
  bool counts = true;
  std::shared_ptr<StepFence> fence = {};  // null: steps are ordered by the compute stream
  std::shared_ptr<ShardGradient> gradient = std::make_shared<ShardGradient>();
  std::shared_ptr<const ShardPeers> peers = {};        // null: every rank has the whole buffer
  // Peers for statistics of whole parameters, if `peers` hold only some experts: ranks that
  // together hold all experts, but hold most other parameters several times. Those parameters count
  // only in shards with `repeats` false. null: use `peers`.
  std::shared_ptr<const ShardPeers> all_peers = {};
  bool repeats = false;
  std::shared_ptr<const ShardReplicas> replicas = {};  // null: no other rank has a copy
  // changing() is called before master and compute change, so that readers can finish; changed()
  // after it, so that they can be sent to other ranks. null: not needed.
  std::function<void()> changing = {};
  std::function<void()> changed = {};

  // Calls `use`, which may read and write `grad`, while `grad` is in memory.
  void with_gradient(const std::function<void()>& use) const {
    gradient->in_memory != nullptr ? gradient->in_memory(use) : use();
  }
  // True if the shard has all spans of its buffer.
  bool is_whole() const {
    return gradient->parameters == 0 || gradient->parameters == spans.size();
  }
};

// View of a contiguous part of a vector.
Tensor vector_slice(const Tensor& vector, int64_t begin, int64_t count);

// Shards of a module materialised on one device without data parallelism: one per trainable
// parameter. Allocates gradients and, for bf16 parameters, f32 masters. Throws InternalError while
// shards of an earlier call exist, and for a sharded model (use comm::optim_shards()).
std::vector<OptimShard> local_shards(Module& module, Context& context);

// Copies of the shards that contain only the parameters whose full name `wanted` accepts, for an
// optimizer that updates only these parameters; omits shards without such parameters. Throws
// ConfigError if there are none. Must select the same parameters on all ranks.
std::vector<OptimShard> select_parameters(const std::vector<OptimShard>& shards,
                                          const std::function<bool(const Parameter&)>& wanted);
// Selects parameters whose full name matches the pattern; `*` matches any characters, as in
// "h.*.bias".
std::vector<OptimShard> select_parameters(const std::vector<OptimShard>& shards,
                                          std::string_view pattern);
// Sets the options with which the optimizer of these shards steps the parameters whose full name
// matches the pattern; replaces earlier options. Throws ConfigError if no parameter matches.
void set_parameter_options(std::vector<OptimShard>& shards, std::string_view pattern,
                           const ParameterOptions& options);

// Peers of the shards; null: there are none. Throws ConfigError, which begins with `what`, if the
// shards have different peers.
const ShardPeers* peers_of(std::string_view what, const std::vector<OptimShard>& shards);
// Peers for statistics of whole parameters (OptimShard::all_peers).
const ShardPeers* all_peers_of(std::string_view what, const std::vector<OptimShard>& shards);
// True if some parts of the span's parameter (elements, tensor-parallel shards or experts) are
// neither here nor at the peers. An optimizer that needs whole parameters cannot step it then.
bool lacks_parts(const OptimSpan& span, const ShardPeers* peers);

// Zeroes the gradients of parameters that no backward has reached since zero_grad().
void complete_gradients(const std::vector<OptimShard>& shards);
// Makes the next gradient overwrite instead of add, and forgets clipping. Does not write to memory.
void zero_grad(const std::vector<OptimShard>& shards);

}  // namespace shale
