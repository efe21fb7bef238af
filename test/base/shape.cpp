#include "shale/base/shape.h"

#include <limits>
#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale {

TEST_CASE("a shape keeps its sizes and counts negative indices from the end", "[shape]") {
  const Shape shape = {2, 3, 4};
  CHECK(shape.ndim() == 3);
  CHECK(shape[1] == 3);
  CHECK(shape.at(0) == 2);
  CHECK(shape.at(-1) == 4);
  CHECK(shape.at(-3) == 2);
  CHECK_THROWS_AS(shape.at(3), ShapeError);
  CHECK_THROWS_AS(shape.at(-4), ShapeError);
  CHECK_THROWS_AS(Shape{}.at(0), ShapeError);
}

TEST_CASE("numel multiplies; a scalar has one element, a zero makes none", "[shape]") {
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{7}.numel() == 7);
  CHECK(Shape{2, 3, 4}.numel() == 24);
  CHECK(Shape{2, 0, 4}.numel() == 0);
}

TEST_CASE("numel throws instead of overflowing or multiplying negative sizes", "[shape]") {
  constexpr int64_t kHalf = int64_t{1} << 32;
  CHECK_THROWS_AS((Shape{kHalf, kHalf}.numel()), ShapeError);
  CHECK((Shape{kHalf, kHalf / 4}.numel()) == int64_t{1} << 62);
  CHECK_THROWS_AS((Shape{-1, 2}.numel()), ShapeError);
  CHECK_THROWS_AS((Shape{std::numeric_limits<int64_t>::max(), 2}.numel()), ShapeError);
}

TEST_CASE("a shape holds kMaxDims sizes and refuses one more", "[shape]") {
  std::vector<int64_t> sizes(kMaxDims, 2);
  Shape shape{std::span<const int64_t>(sizes)};
  CHECK(shape.ndim() == kMaxDims);
  CHECK(shape.numel() == int64_t{1} << kMaxDims);
  CHECK_THROWS_AS(shape.push_back(2), ShapeError);
  sizes.push_back(2);
  CHECK_THROWS_AS(Shape{std::span<const int64_t>(sizes)}, ShapeError);
}

TEST_CASE("shapes are equal when their sizes are, and of one rank", "[shape]") {
  CHECK(Shape{2, 3} == Shape{2, 3});
  CHECK_FALSE(Shape{2, 3} == Shape{3, 2});
  CHECK_FALSE(Shape{2} == Shape{2, 1});
  CHECK_FALSE(Shape{} == Shape{0});
  CHECK(Shape{} == Shape{});
}

TEST_CASE("contiguous strides count elements from the last dimension", "[shape]") {
  CHECK(contiguous_strides({2, 3, 4}) == Shape{12, 4, 1});
  CHECK(contiguous_strides({5}) == Shape{1});
  CHECK(contiguous_strides({}) == Shape{});
}

TEST_CASE("shapes print as lists", "[shape]") {
  CHECK(to_string(Shape{2, 3}) == "[2,3]");
  CHECK(to_string(Shape{}) == "[]");
}

}  // namespace shale
