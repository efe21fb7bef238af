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

// Use of the tables of a buffer, which an embedding and the output layer may share.
enum class TableUse : uint8_t {
  kOnly,   // no second use, or both gradients go to one place
  kTied,   // the gradient of a second use elsewhere is added in the end
  kApart,  // the second use: a gradient only; another buffer has the values
};

// Traits of parameters. Those of a unit's parameters with equal traits share a buffer.
struct BufferTraits {
  DType compute = DType::kF32;
  DType reduce = DType::kF32;
  bool trainable = true;
  bool persistent = false;  // stage 3 keeps them whole
  TableUse use = TableUse::kOnly;
  bool repeated = false;     // every tensor rank has them (nn/sharding.h)
  bool of_experts = false;   // distributed experts (ShardGroups::experts)
  UnitOffload offload = {};  // trainable parameters only
  bool in_codes = false;     // the codes of ShardingOptions apply
  // fp8 format in which the values are gathered, if only fp8 GEMMs read them; else kPlain.
  Operands operands = Operands::kPlain;
  friend auto operator<=>(const BufferTraits&, const BufferTraits&) = default;
};

// Description of a flat buffer: its parameters, their layout, and its ranks in each stage.
struct BufferSpec {
  BufferSpec(ShardingContext& shared, std::string name, const BufferTraits& traits,
             const std::vector<Parameter*>& parameters);

  ShardingContext& shared;
  const std::string name;
  const BufferTraits traits;
  const FlatLayout layout;

  ProcessGroup& ranks() const { return shared.shard(traits.of_experts); }  // its ranks
  bool offloaded() const { return traits.offload.tier != nullptr; }
  bool shards_values() const { return shared.options.stage >= 3 && !traits.persistent; }
  bool shards_gradients() const { return shared.options.stage >= 2; }
  bool is_sharded() const {  // masters, or the values of frozen parameters
    return traits.trainable ? shared.options.stage >= 1 : shards_values();
  }
  bool gathers_codes() const {
    return traits.in_codes && shared.options.gather_code.has_value() && !layout.owner;
  }
  bool gathers_fp8() const { return traits.operands != Operands::kPlain && !layout.owner; }
  bool reduces_codes() const {
    return traits.in_codes && shared.options.reduce_code.has_value() && !layout.owner;
  }
  // True if a reduction leaves the sum of all elements on every rank, instead of this rank's part.
  bool sums_everywhere() const { return !is_sharded() && !shared.options.reproducible; }

  // Elements of the parameter that rank `rank` of the shard group holds.
  OptimSpan span_of(const FlatEntry& entry, int rank) const;
  Tensor own_part(const Tensor& whole) const;  // this rank's part
  // Autograd state of a parameter. Gradients arrive in `row_parts` parts (Parameter::copies).
  LeafState& leaf(const FlatEntry& entry, size_t part = 0) const;
  size_t row_parts() const;
  // Allocates zeros. Padding is zero in every buffer and stays zero, as its gradient is zero.
  Tensor zeroed(Context& memory, int64_t numel, DType dtype, MemoryTag tag) const;
};

void set_to_zero(const Tensor& x);

}  // namespace shale::comm
