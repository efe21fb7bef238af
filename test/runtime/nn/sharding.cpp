#include "shale/runtime/nn/sharding.h"

#include <vector>

#include "shale/base/error.h"
#include "shale/runtime/nn/module.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale {
namespace {

struct Case {
  Shape whole;
  Sharding sharding;
};

std::vector<Case> cases() {
  return {{{12, 5}, {.share = Share::kShard, .dim = 0, .ranks = 4}},
          {{24, 5}, {.share = Share::kShard, .dim = 0, .groups = 3, .ranks = 4}},
          {{24}, {.share = Share::kShard, .dim = 0, .groups = 3, .ranks = 2}},
          {{7, 8}, {.share = Share::kShard, .dim = 1, .ranks = 4}},
          {{3, 4, 6}, {.share = Share::kShard, .dim = 1, .ranks = 2}},
          {{3, 4, 6}, {.share = Share::kShard, .dim = 2, .ranks = 3}}};
}

// Returns the index in the whole tensor of each element of a rank's shard.
std::vector<int64_t> places(const Case& c, int rank) {
  Sharding sharding = c.sharding;
  sharding.rank = rank;
  std::vector<int64_t> all;
  const int64_t numel = part_shape(c.whole, sharding).numel();
  for_each_rows(c.whole, sharding, 0, numel, [&](const PartRows& rows) {
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

TEST_CASE("the parts of all ranks fill a parameter exactly once", "[nn]") {
  for (const Case& c : cases()) {
    CAPTURE(to_string(c.whole), c.sharding.dim, c.sharding.groups);
    std::vector<int> filled(static_cast<size_t>(c.whole.numel()));
    for (int rank = 0; rank < c.sharding.ranks; ++rank) {
      for (const int64_t place : places(c, rank)) ++filled.at(static_cast<size_t>(place));
    }
    CHECK(filled == std::vector<int>(filled.size(), 1));
  }
}

TEST_CASE("boxes lie in a part one after another, row by row", "[nn]") {
  for (const Case& c : cases()) {
    Sharding sharding = c.sharding;
    sharding.rank = sharding.ranks - 1;
    std::vector<int64_t> want;
    const Shape strides = contiguous_strides(c.whole);
    for (const TensorBox& box : boxes_of(c.whole, sharding)) {
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
    CHECK(places(c, sharding.rank) == want);
  }
}

TEST_CASE("any range of a part is the same range of its rows", "[nn]") {
  for (const Case& c : cases()) {
    const std::vector<int64_t> all = places(c, 1);
    Sharding sharding = c.sharding;
    sharding.rank = 1;
    for (int64_t first = 0; first < std::ssize(all); ++first) {
      for (const int64_t count : {int64_t{1}, int64_t{3}, int64_t{8}, std::ssize(all) - first}) {
        if (first + count > std::ssize(all)) continue;
        std::vector<int64_t> got;
        for_each_rows(c.whole, sharding, first, count, [&](const PartRows& rows) {
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

TEST_CASE("a rank begins with the values that the whole has there", "[nn]") {
  Context context(test::small_context(1));
  OneParameter whole;
  materialize(whole, context, DType::kF32, 7);
  const auto values = to_host<float>(whole.weight.value);
  for (const Sharding& sharding :
       {Sharding{.share = Share::kShard, .dim = 0, .groups = 3, .ranks = 4, .rank = 2},
        Sharding{.share = Share::kShard, .dim = 1, .ranks = 4, .rank = 1}}) {
    OneParameter cut;
    cut.weight.shard(sharding);
    materialize(cut, context, DType::kF32, 7);
    const Case c{.whole = {24, 20}, .sharding = sharding};
    const auto got = to_host<float>(cut.weight.value);
    const auto at = places(c, sharding.rank);
    REQUIRE(got.size() == at.size());
    for (size_t i = 0; i < got.size(); ++i) {
      CHECK(got[i] == values[static_cast<size_t>(at[i])]);
    }
  }
}

TEST_CASE("a part that is not whole says what fits", "[nn]") {
  const Sharding sharding{.share = Share::kShard, .dim = 0, .groups = 3, .ranks = 4};
  CHECK_NOTHROW(check_sharding("w", {24, 5}, sharding, 2));
  CHECK_THROWS_WITH(
      check_sharding("w", {24, 5}, sharding, 4),
      "sharding: w[24,5] cannot be split into 4 parts along dimension 0, which has 2 "
      "units of 4 elements in each of 3 groups; expected a number of parts that divides 2");
  CHECK_THROWS_AS(check_sharding("w", {24, 5}, {.share = Share::kShard, .dim = 2, .ranks = 2}),
                  ConfigError);
}

}  // namespace shale
