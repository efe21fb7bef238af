#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "shale/base/shape.h"

namespace shale {

// A box of a whole tensor: first index and size per dimension.
struct TensorBox {
  std::vector<int64_t> begin;
  std::vector<int64_t> size;

  int64_t numel() const;
  friend bool operator==(const TensorBox&, const TensorBox&) = default;
};

// How much of a parameter a tensor-parallel rank holds.
enum class Share : uint8_t {
  kWhole,      // the model is not sharded
  kShard,      // a shard of the parameter
  kReplicate,  // the whole parameter; its gradient covers this rank's rows only
  kFirst,      // the first rank has the whole parameter, others nothing
};

// How tensor-parallel ranks may shard a parameter, declared by its layer.
struct Split {
  Share share = Share::kWhole;  // kWhole: the layer does not support sharding it
  int dim = 0;                  // the sharded dimension
  int64_t groups = 1;           // equal parts along dim 0 that are each sharded: 3 for fused QKV
  int64_t unit = 1;             // indices along dim that stay together: those of a head
  bool by_expert = false;  // dim 0 is the experts of an MoE layer: ranks may hold different experts
};

// The part of a parameter that a rank holds. A part is dense and row-major, box after box.
struct Sharding {
  Share share = Share::kWhole;
  int dim = 0;                 // number of the sharded dimension
  int64_t groups = 1;          // see Split::groups
  int ranks = 1;               // number of ranks that have parts
  int rank = 0;                // index of this rank among them
  bool is_of_experts = false;  // ranks hold different experts of an MoE layer

  // True if this rank holds a shard, or is the first rank with a copy of the whole parameter: of
  // several copies, only the gradient and state of the first are counted and written.
  bool counts() const { return share != Share::kReplicate || rank == 0; }
};

// Throws ConfigError, with the parameter's name and the sizes that fit, unless the parts are equal
// and multiples of `unit` along the sharded dimension.
void check_sharding(std::string_view name, const Shape& whole, const Sharding& sharding,
                    int64_t unit = 1);

// Shape of a rank's part; a shape without elements if it holds nothing.
Shape part_shape(const Shape& whole, const Sharding& sharding);

// Returns the boxes of `whole` that the part consists of, in the order of their memory.
std::vector<TensorBox> boxes_of(const Shape& whole, const Sharding& sharding);

// Block of elements of a part: `rows` runs of `run` elements each. The runs are contiguous in the
// part, and begin `stride` elements apart in the whole tensor.
struct PartRows {
  int64_t in_part = 0;   // offset of the block's first element in the part
  int64_t in_whole = 0;  // offset of the block's first element in the whole tensor
  int64_t run = 0, stride = 0, rows = 1;
};

// Calls visit, in order, for the blocks that make up elements [first, first + count) of a part.
void for_each_rows(const Shape& whole, const Sharding& sharding, int64_t first, int64_t count,
                   const std::function<void(const PartRows&)>& visit);

}  // namespace shale
