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

// Options of single parameters that override those of the optimizer (set_parameter_options()).
struct ParameterOptions {
  float lr_factor = 1;  // factor by which the optimizer's learning rate is multiplied
  // replaces the optimizer's weight decay; ignores Parameter::decay
  std::optional<float> weight_decay = {};
};

// A range of one parameter's elements within an OptimShard. It is empty if the shard has nothing of
// a parameter of its unit.
struct OptimSpan {
  Parameter* parameter = nullptr;
  int64_t first = 0;   // index of the first element in the parameter
  int64_t offset = 0;  // offset of the first element in the shard's buffers
  int64_t count = 0;
  ParameterOptions options = {};
};

// Synchronises the owner of a shard with code that steps it on another stream or on the CPU
// (runtime/offload).
class StepFence {
 public:
  // Callbacks to the code that steps the shard.
  struct Stepper {
    std::function<void(void* stream)> wait;
    std::function<void(const Event& arrived)> gradient_complete;
  };
  void set(Stepper stepper) { stepper_ = std::move(stepper); }
  bool has_stepper() const { return stepper_.wait != nullptr; }

  // If a step of the shard is unfinished, makes work queued on `stream` from now on wait for it.
  // Call it before parameters are read or all-gathered on `stream`, and before gradients are
  // written again.
  void wait(void* stream) const {
    if (stepper_.wait != nullptr) stepper_.wait(stream);
  }
  // Announces, once per step, that the shard's gradient is final after `arrived` and after the work
  // now queued on the compute stream. Optional; it lets the step begin earlier.
  void gradient_complete(const Event& arrived) const {
    if (stepper_.gradient_complete != nullptr) stepper_.gradient_complete(arrived);
  }

 private:
  Stepper stepper_;
};

// Collectives over the ranks that hold parts of the same buffers. They work on device vectors and
// are queued on the compute stream.
struct ShardPeers {
  const void* ranks = nullptr;  // identifies the group of ranks: equal for the same ranks
  int rank = 0, size = 1;       // index of this rank in the group; number of ranks
  // True: each expert exists once on these ranks together. False: each rank holds some whole
  // experts.
  bool have_all_experts = true;
  std::function<void(const Tensor& x)> sum;       // adds f32 vectors over the ranks, in place
  // all-gather; returns the concatenated vectors of all ranks
  std::function<Tensor(const Tensor& x)> gather;
  // All-to-all. Starts to send `in`, which has a section for each rank, and to receive `out`, which
  // has a section from each rank. Returns a function; work queued after calling that function sees
  // `out` complete. The counts may be freed when exchange() returns; the tensors are kept alive.
  std::function<std::function<void()>(const Tensor& in, const std::vector<int64_t>& in_counts,
                                      const Tensor& out, const std::vector<int64_t>& out_counts)>
      exchange;
};

// State of the gradients in a buffer. All OptimShard copies for this buffer share it, also copies
// with only some of its spans.
struct ShardGradient {
  size_t parameters = 0;  // number of parameters in the buffer; 0: as many as in the shard
  // True if `grad` holds a gradient. False if the next gradient overwrites it. nullopt if backward
  // writes into `grad` directly; then each parameter has a separate flag (LeafState::has_value).
  std::optional<bool> has_value = {};
  // parameters whose gradient is zero, although has_value is true
  std::set<const Parameter*> zeroed = {};
  // Results of clip_grad_norm(): the last fields of StepState, as bytes on the device. Undefined if
  // it was not called since zero_grad(). clipped_apart: results of those parameters that were
  // clipped separately from the rest of the buffer.
  Tensor clipped = {};
  std::map<const Parameter*, Tensor> clipped_apart = {};
  // Throws ConfigError if `grad` still lacks contributions of other ranks. Null: that cannot
  // happen.
  std::function<void()> check = {};
  // Reads `grad` into memory if it is on disk, calls `use`, and releases it. Null: gradients are
  // always in memory.
  std::function<void(const std::function<void()>& use)> in_memory = {};
};

// What an optimizer steps: a rank's part of one flat parameter buffer, in device or host memory.
// The part is the whole buffer or a shard of it. All tensors are vectors of the same length.
// Elements outside the buffer's spans are padding, which is zero. A copy may have only some of the
// spans, for an optimizer that steps only these (select_parameters()).
//
// The step runs in the master's context, which may differ from the gradient's (runtime/offload).
// Then `compute`, f32 or narrower, is copied from the master if it is defined; otherwise code that
// reads the parameters copies the master.
struct OptimShard {
  std::string name = {};  // name in messages, such as "h.3"
  Tensor master;          // f32 masters; the parameters themselves if they are f32
  Tensor grad;            // f32 or bf16
  // bf16 or f16 parameters, rounded from the master. Undefined if `master` is the parameters.
  Tensor compute = {};
  std::vector<OptimSpan> spans;
  // False if the gradient norm must not include this shard. For example, a table that two pipeline
  // stages hold counts on only one of them.
  bool counts = true;
  // null: the step runs on the compute stream, which orders it
  std::shared_ptr<StepFence> fence = {};
  std::shared_ptr<ShardGradient> gradient = std::make_shared<ShardGradient>();
  // ranks with the other shards of the buffer; null: this rank has the whole buffer
  std::shared_ptr<const ShardPeers> peers = {};
  // Peers for statistics of whole parameters, if the ranks in `peers` hold only some experts. The
  // ranks in `all_peers` hold each expert once, but most other parameters several times. Those
  // parameters count only in shards with `repeats` false. null: use `peers`.
  std::shared_ptr<const ShardPeers> all_peers = {};
  bool repeats = false;
  // ranks with copies of this shard; null: there are none
  std::shared_ptr<const ShardReplicas> replicas = {};
  // changing() is called before master and compute change, so that code that reads them can finish.
  // changed() is called after the change, so that they can be sent to other ranks. null: not
  // needed.
  std::function<void()> changing = {};
  std::function<void()> changed = {};

  // Calls `use` while `grad` is in memory. `use` may read and write `grad`.
  void with_gradient(const std::function<void()>& use) const {
    gradient->in_memory != nullptr ? gradient->in_memory(use) : use();
  }
  // True if the shard has all spans of its buffer.
  bool is_whole() const {
    return gradient->parameters == 0 || gradient->parameters == spans.size();
  }
};

// Returns a view of elements [begin, begin + count) of a vector.
Tensor vector_slice(const Tensor& vector, int64_t begin, int64_t count);

// Returns the shards of a module that was materialised on one device without data parallelism: one
// per trainable parameter. Allocates gradients and, for bf16 parameters, f32 masters. Throws
// InternalError while shards of an earlier call exist, and for a sharded model (use
// comm::optim_shards()).
std::vector<OptimShard> local_shards(Module& module, Context& context);

// Returns copies of the shards with only those parameters for which `wanted` returns true, for an
// optimizer that updates only these. Omits shards without such parameters. Throws ConfigError if no
// parameter is left. It must select the same parameters on all ranks.
std::vector<OptimShard> select_parameters(const std::vector<OptimShard>& shards,
                                          const std::function<bool(const Parameter&)>& wanted);
// Selects the parameters whose full name matches the pattern. `*` matches any characters, as in
// "h.*.bias".
std::vector<OptimShard> select_parameters(const std::vector<OptimShard>& shards,
                                          std::string_view pattern);
// Sets options for the parameters whose full name matches the pattern. The optimizer of these
// shards uses them. Replaces earlier options. Throws ConfigError if no parameter matches.
void set_parameter_options(std::vector<OptimShard>& shards, std::string_view pattern,
                           const ParameterOptions& options);

// Returns the common peers of the shards; null if they have none. Throws ConfigError, which begins
// with `what`, if shards have different peers.
const ShardPeers* peers_of(std::string_view what, const std::vector<OptimShard>& shards);
// Returns the common peers of the shards for statistics of whole parameters
// (OptimShard::all_peers).
const ShardPeers* all_peers_of(std::string_view what, const std::vector<OptimShard>& shards);
// True if some parts of the span's parameter (elements, tensor-parallel shards or experts) are
// neither on this rank nor at the peers. Then an optimizer that needs whole parameters cannot step
// it.
bool lacks_parts(const OptimSpan& span, const ShardPeers* peers);

// Zeroes the gradients of parameters that no backward has reached since zero_grad().
void complete_gradients(const std::vector<OptimShard>& shards);
// Makes the next gradient overwrite the present one, and discards results of clipping. Does not
// write to memory.
void zero_grad(const std::vector<OptimShard>& shards);

}  // namespace shale
