#include "shale/runtime/nn/sharding.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "shale/base/error.h"

namespace shale {

int64_t TensorBox::numel() const {
  return std::accumulate(size.begin(), size.end(), int64_t{1}, std::multiplies<>());
}

void check_sharding(std::string_view name, const Shape& whole, const Sharding& sharding,
                    int64_t unit) {
  if (sharding.share != Share::kShard) return;
  const auto [share, dim, groups, ranks, rank, is_of_experts] = sharding;
  if (dim < 0 || dim >= whole.ndim() || (groups > 1 && dim != 0)) {
    throw ConfigError(cat("sharding: ", name, whole, " cannot be split along dimension ", dim,
                          ", expected a dimension below ", whole.ndim(),
                          " (with groups: dimension 0)"));
  }
  const int64_t units = whole[dim] / (groups * unit);
  if (units * groups * unit == whole[dim] && units % ranks == 0) return;
  throw ConfigError(cat("sharding: ", name, whole, " cannot be split into ", ranks,
                        " parts along dimension ", dim, ", which has ", units,
                        unit > 1 ? cat(" units of ", unit) : std::string(), " elements",
                        groups > 1 ? cat(" in each of ", groups, " groups") : std::string(),
                        "; expected a number of parts that divides ", units));
}

Shape part_shape(const Shape& whole, const Sharding& sharding) {
  Shape shape = whole;
  if (sharding.share == Share::kShard) shape[sharding.dim] /= sharding.ranks;
  if (sharding.share == Share::kFirst && sharding.rank > 0) shape[0] = 0;
  return shape;
}

std::vector<TensorBox> boxes_of(const Shape& whole, const Sharding& sharding) {
  const TensorBox all{.begin = std::vector<int64_t>(static_cast<size_t>(whole.ndim()), 0),
                      .size = {whole.begin(), whole.end()}};
  if (part_shape(whole, sharding).numel() == 0) return {};
  if (sharding.share != Share::kShard) return {all};
  const auto dim = static_cast<size_t>(sharding.dim);
  const int64_t group = all.size[dim] / sharding.groups, part = group / sharding.ranks;
  std::vector<TensorBox> boxes;
  for (int64_t g = 0; g < sharding.groups; ++g) {
    TensorBox box = all;
    box.begin[dim] = g * group + sharding.rank * part;
    box.size[dim] = part;
    boxes.push_back(box);
  }
  return boxes;
}

void for_each_rows(const Shape& whole, const Sharding& sharding, int64_t first, int64_t count,
                   const std::function<void(const PartRows&)>& visit) {
  // Only one dimension is sharded. So a box consists of rows of `run` elements, with a stride of
  // `stride` elements in the whole tensor.
  const int dim = sharding.dim;
  int64_t stride = 1;
  for (int i = dim; i < whole.ndim(); ++i) stride *= whole[i];
  int64_t in_part = 0;  // offset of the current box in the part
  const int64_t last = first + count;
  for (const TensorBox& box : boxes_of(whole, sharding)) {
    const bool is_cut = sharding.share == Share::kShard && whole.ndim() > 0;
    const int64_t numel = box.numel();
    const int64_t step = is_cut ? stride : numel;
    const int64_t run = is_cut ? stride / whole[dim] * box.size[static_cast<size_t>(dim)] : numel;
    const int64_t offset = is_cut ? stride / whole[dim] * box.begin[static_cast<size_t>(dim)] : 0;
    // Visits the rest of the first row, then whole rows, then the beginning of the last row.
    int64_t at = std::max(first - in_part, int64_t{0});
    const int64_t end = std::min(last - in_part, numel);
    while (at < end) {
      const int64_t row = at / run, column = at % run;
      const int64_t rows = column == 0 ? std::max<int64_t>((end - at) / run, 1) : 1;
      const int64_t length = std::min(run - column, end - at);
      visit({.in_part = in_part + at,
             .in_whole = offset + row * step + column,
             .run = length,
             .stride = step,
             .rows = rows});
      at += length * rows;
    }
    in_part += numel;
  }
}

}  // namespace shale
