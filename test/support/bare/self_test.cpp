// Test cases for test/kernels_only.cmake, which runs each by name and checks how it ends.
#include <catch2/catch.hpp>

#include <cstdio>
#include <stdexcept>

TEST_CASE("passes", "[tagged]") {
  CHECK(1 + 1 == 2);
  CHECK_FALSE(2 < 1);
  CHECK(0.1 + 0.2 == Approx(0.3));
  CHECK_FALSE(1.0 == Approx(1.1));
  CHECK_THROWS_AS(throw std::runtime_error("x"), std::exception);
  CHECK_NOTHROW(1 + 1);
}

TEST_CASE("compares", "[tagged][twice]") {
  const int value = 2;
  CAPTURE(value);
  CHECK(value == 3);
  std::printf("went on\n");
}

TEST_CASE("requires", "") {
  REQUIRE(1 == 2);
  std::printf("went on\n");
}

TEST_CASE("throws", "") {
  throw std::runtime_error("out of order");
}

TEST_CASE("throws nothing", "") {
  CHECK_THROWS_AS(1 + 1, std::exception);
}

TEST_CASE("checks nothing", "") {}

TEST_CASE("is left out", "") {
  SKIP("no "
       << "device");
}

TEST_CASE("combines", "") {
  const int a = GENERATE(1, 2);
  const int b = a == 1 ? 0 : GENERATE(from_range(std::vector<int>{3, 4, 5}));
  const auto [c, d] = GENERATE(table<int, char>({{6, 'x'}, {7, 'y'}}));
  std::printf("%d%d%d%c ", a, b, c, d);
  CHECK(a > 0);
}

TEMPLATE_TEST_CASE("has types", "", char, short) {
  std::printf("size %d ", int(sizeof(TestType)));
  CHECK(true);
}
