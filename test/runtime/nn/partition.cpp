#include "shale/runtime/nn/partition.h"

#include <vector>

#include "shale/base/error.h"
#include "shale/runtime/nn/module.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale {
namespace {

struct Case {
  Shape whole;
  Partition partition;
};

std::vector<Case> cases() {
  return {{{12, 5}, {.share = LeafShare::kCut, .dim = 0, .leaves = 4}},
          {{24, 5}, {.share = LeafShare::kCut, .dim = 0, .groups = 3, .leaves = 4}},
          {{24}, {.share = LeafShare::kCut, .dim = 0, .groups = 3, .leaves = 2}},
          {{7, 8}, {.share = LeafShare::kCut, .dim = 1, .leaves = 4}},
          {{3, 4, 6}, {.share = LeafShare::kCut, .dim = 1, .leaves = 2}},
          {{3, 4, 6}, {.share = LeafShare::kCut, .dim = 2, .leaves = 3}}};
}

// For each element of a leaf's part, its place in the whole.
std::vector<int64_t> places(const Case& c, int leaf) {
  Partition partition = c.partition;
  partition.leaf = leaf;
  std::vector<int64_t> all;
  const int64_t numel = part_shape(c.whole, partition).numel();
  for_each_rows(c.whole, partition, 0, numel, [&](const PartRows& rows) {
    CHECK(rows.in_part == std::ssize(all));
    for (int64_t r = 0; r < rows.rows; ++r) {
      for (int64_t i = 0; i < rows.run; ++i) all.push_back(rows.in_whole + r * rows.stride + i);
    }
  });
  CHECK(std::ssize(all) == numel);
  return all;
}

struct OneParameter : Module {
  OneParameter() : weight(declare("weight", {24, 20}, Init::normal(1))) {}
  Parameter& weight;
};

}  // namespace

TEST_CASE("the parts of all leaves fill a parameter exactly once", "[nn]") {
  for (const Case& c : cases()) {
    CAPTURE(to_string(c.whole), c.partition.dim, c.partition.groups);
    std::vector<int> filled(static_cast<size_t>(c.whole.numel()));
    for (int leaf = 0; leaf < c.partition.leaves; ++leaf) {
      for (const int64_t place : places(c, leaf)) ++filled.at(static_cast<size_t>(place));
    }
    CHECK(filled == std::vector<int>(filled.size(), 1));
  }
}

TEST_CASE("boxes lie in a part one after another, row by row", "[nn]") {
  for (const Case& c : cases()) {
    Partition partition = c.partition;
    partition.leaf = partition.leaves - 1;
    std::vector<int64_t> want;
    const Shape strides = contiguous_strides(c.whole);
    for (const TensorBox& box : boxes_of(c.whole, partition)) {
      for (int64_t i = 0; i < box.numel(); ++i) {
        int64_t rest = i, place = 0;
        for (int d = c.whole.ndim() - 1; d >= 0; --d) {
          const auto dim = static_cast<size_t>(d);
          place += (box.begin[dim] + rest % box.size[dim]) * strides[d];
          rest /= box.size[dim];
        }
        want.push_back(place);
      }
    }
    CHECK(places(c, partition.leaf) == want);
  }
}

TEST_CASE("any range of a part is the same range of its rows", "[nn]") {
  for (const Case& c : cases()) {
    const std::vector<int64_t> all = places(c, 1);
    Partition partition = c.partition;
    partition.leaf = 1;
    for (int64_t first = 0; first < std::ssize(all); ++first) {
      for (const int64_t count : {int64_t{1}, int64_t{3}, int64_t{8}, std::ssize(all) - first}) {
        if (first + count > std::ssize(all)) continue;
        std::vector<int64_t> got;
        for_each_rows(c.whole, partition, first, count, [&](const PartRows& rows) {
          for (int64_t r = 0; r < rows.rows; ++r) {
            for (int64_t i = 0; i < rows.run; ++i) {
              got.push_back(rows.in_whole + r * rows.stride + i);
            }
          }
        });
        const auto begin = all.begin() + first;
        CHECK(got == std::vector<int64_t>(begin, begin + count));
      }
    }
  }
}

TEST_CASE("a leaf begins with the values that the whole has there", "[nn]") {
  Context context(test::small_context(1));
  OneParameter whole;
  materialize(whole, context, DType::kF32, 7);
  const auto values = to_host<float>(whole.weight.value);
  for (const Partition& partition :
       {Partition{.share = LeafShare::kCut, .dim = 0, .groups = 3, .leaves = 4, .leaf = 2},
        Partition{.share = LeafShare::kCut, .dim = 1, .leaves = 4, .leaf = 1}}) {
    OneParameter cut;
    cut.cut(cut.weight, partition);
    materialize(cut, context, DType::kF32, 7);
    const Case c{.whole = {24, 20}, .partition = partition};
    const auto got = to_host<float>(cut.weight.value);
    const auto at = places(c, partition.leaf);
    REQUIRE(got.size() == at.size());
    for (size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i] == values[static_cast<size_t>(at[i])]);
    }
  }
}

TEST_CASE("a part that is not whole says what fits", "[nn]") {
  const Partition partition{.share = LeafShare::kCut, .dim = 0, .groups = 3, .leaves = 4};
  CHECK_NOTHROW(check_partition("w", {24, 5}, partition, 2));
  CHECK_THROWS_WITH(check_partition("w", {24, 5}, partition, 4),
                    "partition: w[24,5] is to be cut into 4 parts along dimension 0, of 2 times 4 "
                    "elements in each of 3 groups; want a divisor of 2");
  CHECK_THROWS_AS(check_partition("w", {24, 5}, {.share = LeafShare::kCut, .dim = 2, .leaves = 2}),
                  ConfigError);
}

}  // namespace shale
