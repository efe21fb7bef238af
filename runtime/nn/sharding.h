#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "shale/base/shape.h"

namespace shale {

// A rectangular region of a tensor: first index and size in each dimension.
struct TensorBox {
  std::vector<int64_t> begin;
  std::vector<int64_t> size;

  int64_t numel() const;
  friend bool operator==(const TensorBox&, const TensorBox&) = default;
};

// Part of a parameter that a tensor-parallel rank holds.
enum class Share : uint8_t {
  kWhole,      // the whole parameter, because the model is not sharded
  kShard,      // a shard of the parameter
  kReplicate,  // the whole parameter; its gradient covers this rank's rows only
  kFirst,      // the first rank has the whole parameter, others nothing
};

// How tensor-parallel ranks may shard a parameter, declared by its layer.
struct Split {
  Share share = Share::kWhole;  // kWhole: the layer does not support sharding it
  int dim = 0;                  // the sharded dimension
  // number of equal blocks along dim 0 that are sharded one by one: 3 for fused QKV
  int64_t groups = 1;
  // number of consecutive indices along dim that stay on one rank, such as those of a head
  int64_t unit = 1;
  // true: dim 0 is the experts of an MoE layer, and ranks may hold different experts
  bool by_expert = false;
};

// The part of a parameter that a rank holds. In memory it consists of boxes, each dense and
// row-major, one after another.
struct Sharding {
  Share share = Share::kWhole;
  int dim = 0;                 // the sharded dimension
  int64_t groups = 1;          // see Split::groups
  int ranks = 1;               // number of ranks that have parts
  int rank = 0;                // index of this rank among the ranks that have parts
  bool is_of_experts = false;  // true: ranks hold different experts of an MoE layer

  // True if this rank's gradient and state of the parameter are to be counted and written: it holds
  // a shard, or is the first of several ranks with a copy of the whole parameter.
  bool counts() const { return share != Share::kReplicate || rank == 0; }
};

// Throws ConfigError unless all ranks get equal parts, in multiples of `unit` along the sharded
// dimension. The message contains the parameter's name and the sizes that fit.
void check_sharding(std::string_view name, const Shape& whole, const Sharding& sharding,
                    int64_t unit = 1);

// Returns the shape of a rank's part; a shape without elements if the rank holds nothing.
Shape part_shape(const Shape& whole, const Sharding& sharding);

// Returns the boxes of `whole` of which the part consists, in the order of their memory.
std::vector<TensorBox> boxes_of(const Shape& whole, const Sharding& sharding);

// A block of elements of a part: `rows` runs of `run` elements each. The runs are contiguous in the
// part. In the whole tensor, each begins `stride` elements after the previous one.
struct PartRows {
  int64_t in_part = 0;   // offset of the block's first element in the part
  int64_t in_whole = 0;  // offset of the block's first element in the whole tensor
  int64_t run = 0, stride = 0, rows = 1;
};

// Calls visit, in order, for the blocks that make up elements [first, first + count) of a part.
void for_each_rows(const Shape& whole, const Sharding& sharding, int64_t first, int64_t count,
                   const std::function<void(const PartRows&)>& visit);

}  // namespace shale
