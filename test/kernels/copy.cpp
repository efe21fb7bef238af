#include <cmath>
#include <limits>
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
  Shape shape, x, y;  // `x` and `y` are strides
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
    {{3, 5, 7, 2}, {70, 14, 2, 1}, {70, 2, 10, 1}},  // swaps heads and positions
    {{2, 3, 4, 5, 6, 2}, {720, 240, 60, 12, 2, 1}, {720, 2, 6, 24, 120, 1}},
    {{4, 6}, {0, 1}, {6, 1}},                   // repeats one row of x
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

namespace {

template <typename To, typename From>
void check_conversion(const std::vector<From>& from, const std::vector<To>& want) {
  const auto count = int64_t(from.size());
  for (const Exec& exec : test::devices_with({&kernels::copy})) {
    CAPTURE(to_string(exec.device), dtype_name(dtype_of<From>), dtype_name(dtype_of<To>));
    const DeviceArray<From> x(exec, from);
    const DeviceArray<To> y(exec, count);
    kernels::copy(exec, {.x = x.view(), .y = y.view()});
    CHECK(y.margins_intact());
    CHECK(test::same_bits(y.download(), want));
  }
}

}  // namespace

TEST_CASE("copy converts between dtypes", "[kernels][copy]") {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr auto kLeast = std::numeric_limits<int64_t>::min();
  constexpr auto kMost = std::numeric_limits<int64_t>::max();
  const std::vector<double> reals = {0, 2.9, -2.9, 255.5, 65536, -kInf, kInf, std::nan(""), 1e300};
  check_conversion<int64_t>(reals, {0, 2, -2, 255, 65536, kLeast, kMost, 0, kMost});
  check_conversion<int32_t>(reals, {0, 2, -2, 255, 65536, INT32_MIN, INT32_MAX, 0, INT32_MAX});
  check_conversion<uint8_t>(reals, {0, 2, 0, 255, 255, 0, 255, 0, 255});
  check_conversion<uint16_t>(reals, {0, 2, 0, 255, 65535, 0, 65535, 0, 65535});
  check_conversion<uint32_t>(reals, {0, 2, 0, 255, 65536, 0, UINT32_MAX, 0, UINT32_MAX});
  const std::vector<int64_t> whole = {0, -1, 256, 16777217, kMost};
  check_conversion<uint8_t>(whole, {0, 255, 0, 1, 255});
  check_conversion<uint16_t>(whole, {0, 65535, 256, 1, 65535});
  check_conversion<double>(whole, {0, -1, 256, 16777217, 0x1p63});
  check_conversion<float>(whole, {0, -1, 256, 16777216, 0x1p63f});
  check_conversion<bf16>(whole, {bf16(0), bf16(-1.f), bf16(256.f), bf16(0x1p24f), bf16(0x1p63f)});
  check_conversion<f16>(whole, {f16(0), f16(-1.f), f16(256.f), f16(float(kInf)), f16(float(kInf))});
  check_conversion<uint32_t>(std::vector<int32_t>{-1, 7}, {UINT32_MAX, 7});
  check_conversion<int64_t>(std::vector<uint32_t>{UINT32_MAX}, {UINT32_MAX});
  check_conversion<double>(std::vector<bf16>{bf16(1.5f), bf16(-0.f)}, {1.5, -0.0});
  check_conversion<int32_t>(std::vector<f16>{f16(-7.75f)}, {-7});
  check_conversion<float>(std::vector<double>{1 + 0x1p-24, 1 + 0x1.8p-24, 1e300},
                          {1, 1 + 0x1p-23f, float(kInf)});
  std::vector<int32_t> many(100003);
  std::iota(many.begin(), many.end(), -50000);
  check_conversion<int64_t>(many, std::vector<int64_t>(many.begin(), many.end()));
}

TEST_CASE("copy needs one shape, and dense views for two dtypes", "[kernels][copy]") {
  const Exec& exec = test::devices()[0];
  const DeviceArray<float> a(exec, 6);
  const DeviceArray<int32_t> b(exec, 6);
  CHECK(test::message_of<ShapeError>([&] {
          kernels::copy(exec, {.x = a.view({2, 3}), .y = a.view({3, 2})});
        }) == "copy: y is fp32[3,2], expected shape [2,3]");
  CHECK(test::contains(test::message_of<ShapeError>([&] {
                         kernels::copy(exec, {.x = a.view({3, 2}, {1, 3}), .y = b.view({3, 2})});
                       }),
                       "contiguous"));
}

}  // namespace shale
