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

// How a buffer's tables are used. An embedding and an output layer may share a table (tying).
enum class TableUse : uint8_t {
  kOnly,   // the table has one use, or both its uses add to one gradient
  kTied,   // values, and the gradient of one use; the gradient of kApart is added to it at the end
  kApart,  // only the gradient of the other use; the values are in the kTied buffer
};

// Traits of a parameter. The parameters of a unit with equal traits share a buffer.
struct BufferTraits {
  DType compute = DType::kF32;
  DType reduce = DType::kF32;
  bool trainable = true;
  bool persistent = false;  // stage 3 keeps the parameters whole
  TableUse use = TableUse::kOnly;
  bool repeated = false;     // every tensor rank has the parameters (nn/sharding.h)
  bool of_experts = false;   // parameters of distributed experts (ShardGroups::experts)
  UnitOffload offload = {};  // host tier, for trainable parameters only
  bool in_codes = false;     // sent as quantization codes (ShardingOptions)
  // fp8 format in which the values are gathered if only fp8 GEMMs read them; otherwise kPlain.
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

  // Group of the ranks that share the buffer.
  ProcessGroup& ranks() const { return shared.shard(traits.of_experts); }
  bool offloaded() const { return traits.offload.tier != nullptr; }
  bool shards_values() const { return shared.options.stage >= 3 && !traits.persistent; }
  bool shards_gradients() const { return shared.options.stage >= 2; }
  bool is_sharded() const {  // true: the masters, or the values if they are frozen, are sharded
    return traits.trainable ? shared.options.stage >= 1 : shards_values();
  }
  bool gathers_codes() const {
    return traits.in_codes && shared.options.gather_code.has_value() && !layout.owner;
  }
  bool gathers_fp8() const { return traits.operands != Operands::kPlain && !layout.owner; }
  bool reduces_codes() const {
    return traits.in_codes && shared.options.reduce_code.has_value() && !layout.owner;
  }
  // True if a reduction leaves the whole sum on every rank; false if only each rank's part.
  bool sums_everywhere() const { return !is_sharded() && !shared.options.reproducible; }

  // Returns the elements of the parameter that rank `rank` of the shard group holds.
  OptimSpan span_of(const FlatEntry& entry, int rank) const;
  Tensor own_part(const Tensor& whole) const;  // this rank's part of `whole`
  // Autograd state of a parameter. Parameter::copies splits the rows of a batch into row_parts()
  // parts, each of which has its own state.
  LeafState& leaf(const FlatEntry& entry, size_t part = 0) const;
  size_t row_parts() const;
  // Allocates zeros. Padding must be zero in every buffer, and stays zero like its gradient.
  Tensor zeroed(Context& memory, int64_t numel, DType dtype, MemoryTag tag) const;
};

void set_to_zero(const Tensor& x);

}  // namespace shale::comm
