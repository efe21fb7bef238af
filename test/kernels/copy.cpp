#include <numeric>

#include "shale/kernels/elementwise.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using test::DeviceArray;

// Returns the offset of the element with row-major number `index`.
int64_t offset_of(int64_t index, const Shape& shape, const Shape& strides) {
  int64_t offset = 0;
  for (int i = shape.ndim() - 1; i >= 0; --i) {
    offset += index % shape[i] * strides[i];
    index /= shape[i];
  }
  return offset;
}

int64_t extent(const Shape& shape, const Shape& strides) {
  int64_t last = 0;
  for (int i = 0; i < shape.ndim(); ++i) last += (shape[i] - 1) * strides[i];
  return shape.numel() == 0 ? 0 : last + 1;
}

struct CopyCase {
  Shape shape, x, y;  // x and y: strides
};

const std::vector<CopyCase> kCases = {
    {{}, {}, {}},
    {{0, 3}, {3, 1}, {3, 1}},
    {{1}, {5}, {9}},
    {{100000}, {1}, {1}},
    {{1000}, {3}, {1}},
    {{1000}, {1}, {2}},
    {{7, 33}, {33, 1}, {1, 7}},  // this case and the next transpose
    {{65, 130}, {1, 65}, {130, 1}},
    {{3, 5, 7, 2}, {70, 14, 2, 1}, {70, 2, 10, 1}},  // heads and positions swapped
    {{2, 3, 4, 5, 6, 2}, {720, 240, 60, 12, 2, 1}, {720, 2, 6, 24, 120, 1}},
    {{4, 6}, {0, 1}, {6, 1}},                   // one row of x, repeated
    {{4, 600, 3}, {5000, 8, 1}, {1800, 3, 1}},  // a slice of x
    {{5, 40, 64}, {64, 320, 1}, {2560, 64, 1}},
};

template <typename T>
std::vector<T> run(const Exec& exec, const CopyCase& c, const std::vector<T>& from) {
  const DeviceArray<T> x(exec, from);
  const DeviceArray<T> y(exec, std::vector<T>(size_t(extent(c.shape, c.y)), T(77)));
  kernels::copy(exec, {.x = x.view(c.shape, c.x), .y = y.view(c.shape, c.y)});
  CHECK(y.margins_intact());
  return y.download();
}

}  // namespace

TEMPLATE_TEST_CASE("copy moves every element and touches nothing between", "[kernels][copy]",
                   uint8_t, uint16_t, float, int64_t) {
  for (const CopyCase& c : kCases) {
    const auto from = test::rand_int<TestType>(extent(c.shape, c.x), 1, 0, 70);
    std::vector<TestType> want(size_t(extent(c.shape, c.y)), TestType(77));
    for (int64_t i = 0; i < c.shape.numel(); ++i) {
      want[size_t(offset_of(i, c.shape, c.y))] = from[size_t(offset_of(i, c.shape, c.x))];
    }
    for (const Exec& exec : test::devices_with({&kernels::copy})) {
      CAPTURE(to_string(c.shape), to_string(c.x), to_string(c.y));
      CHECK(test::same_bits(run(exec, c, from), want));
    }
    CHECK(test::same_bits_for_any_threads(test::devices()[0],
                                          [&](const Exec& e) { return run(e, c, from); }));
  }
}

TEST_CASE("copy needs one shape and dtype", "[kernels][copy]") {
  const Exec& exec = test::devices()[0];
  const DeviceArray<float> a(exec, 6);
  const DeviceArray<int32_t> b(exec, 6);
  CHECK(test::message_of<ShapeError>([&] {
          kernels::copy(exec, {.x = a.view({2, 3}), .y = a.view({3, 2})});
        }) == "copy: y is fp32[3,2], expected shape [2,3]");
  CHECK(test::message_of<DTypeError>([&] {
          kernels::copy(exec, {.x = a.view(), .y = b.view()});
        }) == "copy: y is int32[6], expected fp32");
}

}  // namespace shale
