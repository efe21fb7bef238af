#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "shale/base/shape.h"

namespace shale {

// Of a whole tensor, per dimension the first index and how many.
struct TensorBox {
  std::vector<int64_t> begin;
  std::vector<int64_t> size;

  int64_t numel() const;
  friend bool operator==(const TensorBox&, const TensorBox&) = default;
};

// What a tensor rank has of a parameter.
enum class Share : uint8_t {
  kWhole,      // the model is not shared
  kShard,      // its part
  kReplicate,  // all of it, as every rank has, with the gradient of its own share of the rows
  kFirst,      // all of it if it is the first rank, else nothing
};

// How a layer lets tensor ranks share a parameter, said where the layer declares it.
struct Split {
  Share share = Share::kWhole;  // kWhole: the layer has no way of sharing it
  int dim = 0;                  // that is divided
  int64_t groups = 1;      // along dim 0: equal parts that are each divided, 3 of fused q, k, v
  int64_t unit = 1;        // indices along dim that stay together: a head's
  bool by_expert = false;  // dim 0 counts experts of a mixture: ranks may have different ones
};

// What a rank has of a parameter. A part is dense and in row-major order, box after box.
struct Sharding {
  Share share = Share::kWhole;
  int dim = 0;                 // that is divided
  int64_t groups = 1;          // as in Split
  int ranks = 1;               // that have parts
  int rank = 0;                // this one, of those
  bool is_of_experts = false;  // ranks have different experts of a mixture

  // Whether this rank's gradient and state stand for all ranks', where they are counted or written
  // once.
  bool counts() const { return share != Share::kReplicate || rank == 0; }
};

// Throws ConfigError that names the parameter and what fits, unless the parts are equal and of
// whole multiples of `unit` along the dimension that is divided.
void check_sharding(std::string_view name, const Shape& whole, const Sharding& sharding,
                    int64_t unit = 1);

// The shape of a rank's part; of nothing, that of no elements.
Shape part_shape(const Shape& whole, const Sharding& sharding);

// The boxes of `whole` that the part has, in the order in which they lie in it.
std::vector<TensorBox> boxes_of(const Shape& whole, const Sharding& sharding);

// Elements of a part that lie in rows: `rows` times `run` of them, one after another in the part
// and every `stride` elements in the whole.
struct PartRows {
  int64_t in_part = 0;   // of the first
  int64_t in_whole = 0;  // of the first
  int64_t run = 0, stride = 0, rows = 1;
};

// Calls visit for what elements [first, first + count) of a part are, in order.
void for_each_rows(const Shape& whole, const Sharding& sharding, int64_t first, int64_t count,
                   const std::function<void(const PartRows&)>& visit);

}  // namespace shale
