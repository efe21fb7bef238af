#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "shale/base/shape.h"

namespace shale {

// Of a tensor that nobody cut, per dimension the first index and how many.
struct TensorBox {
  std::vector<int64_t> begin;
  std::vector<int64_t> size;

  int64_t numel() const;
  friend bool operator==(const TensorBox&, const TensorBox&) = default;
};

// What a leaf of a model has of a parameter.
enum class LeafShare : uint8_t {
  kWhole,     // nobody cut the model
  kCut,       // its part
  kRepeated,  // all of it, as every leaf has, with the gradient of its own share of the rows
  kFirst,     // all of it if it is the first leaf, else nothing
};

// How a parameter lies over the leaves of a model, the parts into which its layers are cut. A rank
// has some of the leaves; the runtime knows no ranks. A part is dense and in row-major order, box
// after box.
struct Partition {
  LeafShare share = LeafShare::kWhole;
  int dim = 0;         // that is cut
  int64_t groups = 1;  // along dim 0: equal parts that are each cut, such as 3 of fused q, k, v
  int leaves = 1;      // in all
  int leaf = 0;        // this one

  // Whether this leaf's gradient and state stand for all leaves', where they are counted or
  // written once.
  bool counts() const { return share != LeafShare::kRepeated || leaf == 0; }
};

// Throws ConfigError that names the parameter and what fits, unless the parts are equal and of
// whole multiples of `unit` along the dimension that is cut.
void check_partition(std::string_view name, const Shape& whole, const Partition& partition,
                     int64_t unit = 1);

// The shape of a leaf's part; of nothing, that of no elements.
Shape part_shape(const Shape& whole, const Partition& partition);

// The boxes of `whole` that the part has, in the order in which they lie in it.
std::vector<TensorBox> boxes_of(const Shape& whole, const Partition& partition);

// Elements of a part that lie in rows: `rows` times `run` of them, one after another in the part
// and every `stride` elements in the whole.
struct PartRows {
  int64_t in_part = 0;   // of the first
  int64_t in_whole = 0;  // of the first
  int64_t run = 0, stride = 0, rows = 1;
};

// Calls visit for what elements [first, first + count) of a part are, in order.
void for_each_rows(const Shape& whole, const Partition& partition, int64_t first, int64_t count,
                   const std::function<void(const PartRows&)>& visit);

}  // namespace shale
