#include "shale/kernels/conv.h"

#include "shale/base/error.h"
#include "shale/kernels/gemm_plan.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/kernels.h"

namespace shale {
namespace {

using kernels::Windows;
using test::DeviceArray;
using Doubles = std::vector<double>;

struct Size {
  int64_t images, rows, cols, channels, out, kernel, stride, padding;

  Windows windows() const { return {.stride = stride, .padding = padding}; }
  int64_t out_rows() const { return windows().count(rows, kernel); }
  int64_t out_cols() const { return windows().count(cols, kernel); }
  Shape x() const { return {images, rows, cols, channels}; }
  Shape weight() const { return {out, channels, kernel, kernel}; }
  Shape y() const { return {images, out_rows(), out_cols(), out}; }
};

// Cases, in this order: no image, one pixel, a window as large as the image, windows that do not
// divide the image, a ResNet's stem and its downsampling, patches of a vision transformer, more
// images than a block, ragged and whole vectors of channels, windows that skip pixels, enough
// pixels for two parts of a weight gradient, a stride beyond the image, a window mostly over
// padding. In the last cases weights are large compared to the pixels: their gradient is computed
// by slices of channels, for all images together or for two halves of them.
const std::vector<Size> kSizes = {
    {0, 4, 4, 3, 8, 3, 1, 1},      {1, 1, 1, 1, 1, 1, 1, 0},   {2, 5, 5, 3, 4, 5, 1, 0},
    {3, 6, 5, 7, 9, 3, 2, 1},      {2, 11, 9, 3, 16, 7, 2, 3}, {2, 7, 8, 16, 32, 1, 2, 0},
    {2, 8, 8, 3, 24, 4, 4, 0},     {3, 4, 4, 16, 16, 3, 1, 1}, {33, 9, 9, 16, 16, 3, 1, 1},
    {19, 16, 16, 64, 64, 3, 1, 1}, {2, 7, 6, 5, 6, 2, 3, 0},   {1, 34, 33, 2, 3, 3, 1, 1},
    {1, 3, 4, 8, 8, 2, 5, 0},      {1, 3, 4, 8, 8, 2, 5, 1},   {4, 8, 8, 32, 256, 3, 1, 1},
    {8, 16, 16, 5, 384, 3, 1, 1}};

// Calls fn(x, weight, y) with the indices of each multiplication that reads a pixel inside the
// image.
template <typename Fn>
void for_each_product(const Size& s, const Fn& fn) {
  for (int64_t n = 0; n < s.images; ++n)
    for (int64_t i = 0; i < s.out_rows(); ++i)
      for (int64_t j = 0; j < s.out_cols(); ++j)
        for (int64_t u = 0; u < s.kernel; ++u)
          for (int64_t v = 0; v < s.kernel; ++v) {
            const int64_t h = i * s.stride + u - s.padding, w = j * s.stride + v - s.padding;
            if (h < 0 || h >= s.rows || w < 0 || w >= s.cols) continue;
            for (int64_t c = 0; c < s.channels; ++c) {
              const auto x = size_t(((n * s.rows + h) * s.cols + w) * s.channels + c);
              for (int64_t o = 0; o < s.out; ++o) {
                const auto y = size_t(((n * s.out_rows() + i) * s.out_cols() + j) * s.out + o);
                const auto weight = size_t(((o * s.channels + c) * s.kernel + u) * s.kernel + v);
                fn(x, weight, y);
              }
            }
          }
}

template <typename T>
Doubles rounded(const Doubles& values) {
  Doubles result;
  for (const double value : values) result.push_back(test::RoundTo<T>()(value));
  return result;
}

// Values are small integers, so that all sums are exact in f32 and are rounded once.
template <typename T>
std::vector<T> integers(int64_t count, uint64_t seed) {
  return test::rand_int<T>(count, seed, -3, 3);
}

template <typename T>
void check_forward(const Exec& exec, const Size& s, bool with_bias,
                   const kernels::GemmTile* tile = nullptr) {
  const auto x = integers<T>(s.x().numel(), 1), weight = integers<T>(s.weight().numel(), 2);
  const auto bias = integers<T>(s.out, 3);
  Doubles want(size_t(s.y().numel()));
  for (size_t i = 0; with_bias && i < want.size(); ++i) {
    want[i] = test::to_f64(bias[i % size_t(s.out)]);
  }
  for_each_product(s, [&](size_t a, size_t b, size_t c) {
    want[c] += test::to_f64(x[a]) * test::to_f64(weight[b]);
  });
  const DeviceArray<T> dx(exec, x), dw(exec, weight), db(exec, bias), y(exec, s.y().numel());
  kernels::conv(exec, {.x = dx.view(s.x()),
                       .weight = dw.view(s.weight()),
                       .bias = with_bias ? db.view() : View(),
                       .y = y.view(s.y()),
                       .windows = s.windows(),
                       .tile = tile});
  CHECK(test::max_error(y.download(), rounded<T>(want)) == 0);
  CHECK(y.margins_intact());
}

template <typename T>
void check_input_grad(const Exec& exec, const Size& s, const kernels::GemmTile* tile = nullptr) {
  const auto dy = integers<T>(s.y().numel(), 4), weight = integers<T>(s.weight().numel(), 2);
  Doubles want(size_t(s.x().numel()));
  for_each_product(s, [&](size_t a, size_t b, size_t c) {
    want[a] += test::to_f64(dy[c]) * test::to_f64(weight[b]);
  });
  const DeviceArray<T> ddy(exec, dy), dw(exec, weight), dx(exec, s.x().numel());
  kernels::conv_input_grad(exec, {.dy = ddy.view(s.y()),
                                  .weight = dw.view(s.weight()),
                                  .dx = dx.view(s.x()),
                                  .windows = s.windows(),
                                  .tile = tile});
  CHECK(test::max_error(dx.download(), rounded<T>(want)) == 0);
  CHECK(dx.margins_intact());
}

template <typename T, typename G>
void check_weight_grad(const Exec& exec, const Size& s, bool accumulate,
                       const kernels::GemmTile* tile = nullptr) {
  const auto dy = integers<T>(s.y().numel(), 4), x = integers<T>(s.x().numel(), 1);
  const std::vector<G> start(size_t(s.weight().numel()), test::make<G>(accumulate ? 7 : 0));
  Doubles want = test::to_f64(start);
  for_each_product(s, [&](size_t a, size_t b, size_t c) {
    want[b] += test::to_f64(x[a]) * test::to_f64(dy[c]);
  });
  const DeviceArray<T> ddy(exec, dy), dx(exec, x);
  const DeviceArray<G> dweight(exec, start);
  kernels::conv_weight_grad(exec, {.dy = ddy.view(s.y()),
                                   .x = dx.view(s.x()),
                                   .dweight = dweight.view(s.weight()),
                                   .accumulate = accumulate,
                                   .windows = s.windows(),
                                   .tile = tile});
  CHECK(test::max_error(dweight.download(), rounded<G>(want)) == 0);
  CHECK(dweight.margins_intact());
}

}  // namespace

TEMPLATE_TEST_CASE("a convolution and its gradients are exact in integers", "[kernels][conv]",
                   float, bf16, f16) {
  const Size size = GENERATE(from_range(kSizes));
  for (const Exec& exec : test::devices_with(
           {&kernels::conv, &kernels::conv_input_grad, &kernels::conv_weight_grad})) {
    // Larger cases are too slow on the emulator.
    constexpr int64_t kEmulated = 1 << 18;
    const int64_t products = size.y().numel() * size.weight().numel() / size.out;
    if (exec.device.type == DeviceType::kEmu && products > kEmulated) continue;
    CAPTURE(exec.device.type, size.images, size.rows, size.cols, size.channels, size.out,
            size.kernel, size.stride);
    for (const bool with_bias : {false, true}) check_forward<TestType>(exec, size, with_bias);
    check_input_grad<TestType>(exec, size);
    for (const bool accumulate : {false, true}) {
      check_weight_grad<TestType, float>(exec, size, accumulate);
      check_weight_grad<TestType, bf16>(exec, size, accumulate);
    }
  }
}

TEMPLATE_TEST_CASE("tiles of a convolution's GPU kernels agree", "[kernels][conv]", float, bf16) {
  // The convolution's GEMMs have more than one tile of rows, of columns and of k, with a remainder
  // in each.
  const Size size = GENERATE(Size{2, 9, 8, 24, 136, 3, 1, 1}, Size{3, 13, 11, 136, 9, 3, 2, 1});
  for (const Exec& exec : test::devices_with({&kernels::conv})) {
    if (exec.device.type == DeviceType::kCpu) continue;
    for (const kernels::GemmTile tile : {kernels::GemmTile::k64x64, kernels::GemmTile::k128x128}) {
      if (!can_run(tile, kernels::gemm_means(exec.device))) continue;
      CAPTURE(kernels::name_of(tile), size.stride);
      check_forward<TestType>(exec, size, /*with_bias=*/true, &tile);
      check_input_grad<TestType>(exec, size, &tile);
      check_weight_grad<TestType, float>(exec, size, /*accumulate=*/true, &tile);
    }
  }
}

TEST_CASE("a convolution's bits do not depend on the number of threads", "[kernels][conv]") {
  const Size s = {13, 12, 12, 24, 40, 3, 1, 1};
  for (const Exec& device : test::devices_with({&kernels::conv})) {
    if (device.device.type != DeviceType::kCpu) continue;
    const DeviceArray<float> x(device, test::randn<float>(s.x().numel(), 1));
    const DeviceArray<float> weight(device, test::randn<float>(s.weight().numel(), 2));
    const DeviceArray<float> dy(device, test::randn<float>(s.y().numel(), 3));
    CHECK(test::same_bits_for_any_threads(device, [&](const Exec& exec) {
      const DeviceArray<float> y(exec, s.y().numel());
      kernels::conv(exec, {.x = x.view(s.x()),
                           .weight = weight.view(s.weight()),
                           .y = y.view(s.y()),
                           .windows = s.windows()});
      return y.download();
    }));
    CHECK(test::same_bits_for_any_threads(device, [&](const Exec& exec) {
      const DeviceArray<float> dweight(exec, s.weight().numel());
      kernels::conv_weight_grad(exec, {.dy = dy.view(s.y()),
                                       .x = x.view(s.x()),
                                       .dweight = dweight.view(s.weight()),
                                       .windows = s.windows()});
      return dweight.download();
    }));
  }
}

TEST_CASE("a convolution refuses shapes that do not fit", "[kernels][conv]") {
  for (const Exec& exec : test::devices_with({&kernels::conv})) {
    const DeviceArray<float> x(exec, 2 * 4 * 4 * 3), weight(exec, 8 * 3 * 3 * 3);
    const DeviceArray<float> y(exec, 2 * 4 * 4 * 8);
    const auto message = [&](const kernels::ConvArgs& args) {
      return test::message_of<ShapeError>([&] { kernels::conv(exec, args); });
    };
    kernels::ConvArgs args{.x = x.view({2, 4, 4, 3}),
                           .weight = weight.view({8, 3, 3, 3}),
                           .y = y.view({2, 4, 4, 8}),
                           .windows = {.stride = 1, .padding = 1}};
    args.windows.stride = 0;
    CHECK(test::contains(message(args), "conv: stride is 0"));
    args.windows = {.stride = 1, .padding = 0};
    CHECK(test::contains(message(args), "conv: y is fp32[2,4,4,8], expected"));
    args.weight = weight.view({24, 9, 1, 1});
    CHECK(test::contains(message(args), "conv: x is fp32[2,4,4,3], weights are fp32[24,9,1,1]"));
    args.weight = weight.view({1, 3, 9, 8});
    CHECK(test::contains(message(args), "smaller than a window"));
  }
}

}  // namespace shale
