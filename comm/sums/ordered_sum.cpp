#include "shale/comm/sums/ordered_sum.h"

#include <bit>
#include <cstring>
#include <string_view>
#include <vector>

#include "shale/base/error.h"

namespace shale::comm {
namespace {

// Adds the leaves as a binary tree, in which the left subtree of n leaves has the largest power of
// two below n, as in ProcessGroup.
double tree(std::span<const double> leaves) {
  if (leaves.empty()) return 0;
  if (leaves.size() == 1) return leaves.front();
  const size_t left = std::bit_floor(leaves.size() - 1);
  return tree(leaves.first(left)) + tree(leaves.subspan(left));
}

}  // namespace

double ordered_sum(ProcessGroup& group, std::span<const double> values, std::span<const int> of) {
  const std::string_view mine(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  const std::vector<std::string> all = group.all_gather_bytes(mine, "ordered_sum");
  std::vector<double> rows(values.size() * all.size());
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].size() != values.size_bytes()) {
      throw CommError(cat("ordered_sum: rank ", rank, " gives ", all[rank].size() / sizeof(double),
                          " values, expected ", values.size(), ", as rank ", group.rank(),
                          " gives"));
    }
    std::memcpy(rows.data() + rank * values.size(), all[rank].data(), values.size_bytes());
  }
  return ordered_sum(rows, all.size(), values.size(), of);
}

double ordered_sum(std::span<const double> rows, size_t ranks, size_t count,
                   std::span<const int> of) {
  const size_t width = rows.size() / ranks, counted = of.empty() ? ranks : of.size();
  std::vector<double> leaves(count * counted);
  for (size_t r = 0; r < counted; ++r) {
    const size_t row = of.empty() ? r : static_cast<size_t>(of[r]);
    for (size_t j = 0; j < count; ++j) leaves[j * counted + r] = rows[row * width + j];
  }
  return tree(leaves);
}

}  // namespace shale::comm
