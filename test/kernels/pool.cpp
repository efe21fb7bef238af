#include "shale/kernels/pool.h"

#include <limits>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using kernels::Windows;
using test::DeviceArray;

struct Size {
  int64_t images, rows, cols, channels, kernel, stride, padding;

  Windows windows() const { return {.stride = stride, .padding = padding}; }
  Shape x() const { return {images, rows, cols, channels}; }
  Shape y() const {
    return {images, windows().count(rows, kernel), windows().count(cols, kernel), channels};
  }
};

// Cases: no image, one pixel, a ResNet's stem, adjacent windows, windows with a remainder and
// ragged channels, windows of 256 positions.
const std::vector<Size> kSizes = {{0, 4, 4, 3, 2, 2, 0},  {1, 1, 1, 1, 1, 1, 0},
                                  {2, 8, 7, 5, 3, 2, 1},  {3, 6, 6, 16, 2, 2, 0},
                                  {1, 5, 9, 33, 3, 3, 0}, {2, 16, 16, 64, 16, 8, 7}};

template <typename T>
struct Pooled {
  std::vector<T> y;
  std::vector<uint8_t> place;
};

template <typename T>
Pooled<T> pool(const Exec& exec, const Size& s, const std::vector<T>& x) {
  const DeviceArray<T> from(exec, x), y(exec, s.y().numel());
  const DeviceArray<uint8_t> place(exec, s.y().numel());
  kernels::max_pool(exec, {.x = from.view(s.x()),
                           .y = y.view(s.y()),
                           .place = place.view(s.y()),
                           .kernel = s.kernel,
                           .windows = s.windows()});
  CHECK((y.margins_intact() && place.margins_intact()));
  return {y.download(), place.download()};
}

// Compares with a reference that applies the definition to each element. dy has integers above 0.
template <typename T>
void check_pool(const Exec& exec, const Size& s) {
  // x has few different values, so that a window has several maxima.
  const auto x = test::rand_int<T>(s.x().numel(), 1, -3, 3);
  const Pooled<T> got = pool(exec, s, x);
  const auto dy = test::rand_int<T>(s.y().numel(), 2, 1, 5);
  std::vector<double> want_dx(x.size());
  size_t at = 0;
  for (int64_t n = 0; n < s.images; ++n)
    for (int64_t i = 0; i < s.y()[1]; ++i)
      for (int64_t j = 0; j < s.y()[2]; ++j)
        for (int64_t c = 0; c < s.channels; ++c, ++at) {
          double best = -std::numeric_limits<double>::infinity();
          size_t best_x = 0;
          int64_t best_place = -1;
          for (int64_t cell = 0; cell < s.kernel * s.kernel; ++cell) {
            const int64_t h = i * s.stride + cell / s.kernel - s.padding;
            const int64_t w = j * s.stride + cell % s.kernel - s.padding;
            if (h < 0 || h >= s.rows || w < 0 || w >= s.cols) continue;
            const auto pixel = size_t(((n * s.rows + h) * s.cols + w) * s.channels + c);
            if (test::to_f64(x[pixel]) <= best) continue;
            best = test::to_f64(x[pixel]);
            best_x = pixel;
            best_place = cell;
          }
          REQUIRE(test::to_f64(got.y[at]) == best);
          REQUIRE(got.place[at] == best_place);
          want_dx[best_x] += test::to_f64(dy[at]);
        }
  const DeviceArray<T> ddy(exec, dy), dx(exec, s.x().numel());
  const DeviceArray<uint8_t> place(exec, got.place);
  kernels::max_pool_grad(exec, {.dy = ddy.view(s.y()),
                                .place = place.view(s.y()),
                                .dx = dx.view(s.x()),
                                .kernel = s.kernel,
                                .windows = s.windows()});
  CHECK(test::max_error(dx.download(), want_dx) == 0);
  CHECK(dx.margins_intact());
}

}  // namespace

TEMPLATE_TEST_CASE("max_pool takes the first of the largest, which gets the gradient",
                   "[kernels][pool]", float, bf16, f16) {
  const Size size = GENERATE(from_range(kSizes));
  for (const Exec& exec : test::devices_with({&kernels::max_pool, &kernels::max_pool_grad})) {
    CAPTURE(size.images, size.rows, size.cols, size.channels, size.kernel, size.stride);
    check_pool<TestType>(exec, size);
  }
}

TEST_CASE("max_pool takes a NaN for the largest, the first of them", "[kernels][pool]") {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const Size s = {1, 2, 2, 1, 2, 2, 0};
  for (const Exec& exec : test::devices_with({&kernels::max_pool})) {
    const Pooled<float> got = pool<float>(exec, s, {1, kNan, 9, kNan});
    CHECK(got.y[0] != got.y[0]);
    CHECK(got.place[0] == 1);
  }
}

TEST_CASE("max_pool refuses windows that can be empty", "[kernels][pool]") {
  for (const Exec& exec : test::devices_with({&kernels::max_pool})) {
    const DeviceArray<float> x(exec, 16), y(exec, 36);
    const DeviceArray<uint8_t> place(exec, 36);
    const std::string message = test::message_of<ShapeError>([&] {
      kernels::max_pool(exec, {.x = x.view({1, 4, 4, 1}),
                               .y = y.view({1, 6, 6, 1}),
                               .place = place.view({1, 6, 6, 1}),
                               .kernel = 1,
                               .windows = {.stride = 1, .padding = 1}});
    });
    CHECK(test::contains(message, "padding is 1"));
  }
}

}  // namespace shale
