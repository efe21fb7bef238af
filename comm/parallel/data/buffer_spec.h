#pragma once

#include <string>

#include "shale/comm/parallel/data/flat_layout.h"
#include "shale/comm/parallel/data/sharding.h"
#include "shale/runtime/ops/linear.h"
#include "shale/runtime/optim/shard.h"

namespace shale {
struct LeafState;
}

namespace shale::comm {

// How the tables of a buffer are used, which an embedding and the output layer may share.
enum class TableUse : uint8_t {
  kOnly,   // there is no other use, or its gradient goes to the same place
  kTied,   // the gradient of another use, which is elsewhere, is added in the end
  kApart,  // that other use: a gradient, for values that another buffer has
};

// Traits by which the parameters of a unit share a buffer: those that are kept alike do.
struct BufferTraits {
  DType compute = DType::kF32;
  DType reduce = DType::kF32;
  bool trainable = true;
  bool persistent = false;  // stage 3 keeps them whole
  TableUse use = TableUse::kOnly;
  bool repeated = false;     // on every leaf of a model that is cut (nn/sharding.h)
  bool of_experts = false;   // of which ranks have different ones (ShardGroups::experts)
  UnitOffload offload = {};  // of trainable parameters
  bool in_codes = false;     // what ShardingOptions says of codes is for these
  // Of products of fp8 that alone read these, which are gathered as their numbers; else kPlain.
  Operands operands = Operands::kPlain;
  friend auto operator<=>(const BufferTraits&, const BufferTraits&) = default;
};

// What the parts of a flat buffer know of it: its parameters, where they lie, and which ranks share
// it in which stage.
struct BufferSpec {
  BufferSpec(ShardingContext& shared, std::string name, const BufferTraits& traits,
             const std::vector<Parameter*>& parameters);

  ShardingContext& shared;
  const std::string name;
  const BufferTraits traits;
  const FlatLayout layout;

  ProcessGroup& ranks() const { return shared.shard(traits.of_experts); }  // that share it
  bool offloaded() const { return traits.offload.tier != nullptr; }
  bool shards_values() const { return shared.options.stage >= 3 && !traits.persistent; }
  bool shards_gradients() const { return shared.options.stage >= 2; }
  bool is_sharded() const {  // the masters, or the values of frozen parameters
    return traits.trainable ? shared.options.stage >= 1 : shards_values();
  }
  bool gathers_codes() const {
    return traits.in_codes && shared.options.gather_code.has_value() && !layout.owner;
  }
  bool gathers_fp8() const { return traits.operands != Operands::kPlain && !layout.owner; }
  bool reduces_codes() const {
    return traits.in_codes && shared.options.reduce_code.has_value() && !layout.owner;
  }
  // Whether a reduction leaves the sum of all elements on every rank, not of this rank's part.
  bool sums_everywhere() const { return !is_sharded() && !shared.options.reproducible; }

  // The parameter's elements [first, first + count), as rank `rank` of the shard group holds them.
  OptimSpan span_of(const FlatEntry& entry, int rank) const;
  Tensor own_part(const Tensor& whole) const;  // this rank's
  // Of the gradients that arrive in `row_parts` parts (Parameter::copies).
  LeafState& leaf(const FlatEntry& entry, size_t part = 0) const;
  size_t row_parts() const;
  // Padding is zero in every buffer and stays so: its gradient is zero.
  Tensor zeroed(Context& memory, int64_t numel, DType dtype, MemoryTag tag) const;
};

void set_to_zero(const Tensor& x);

}  // namespace shale::comm
