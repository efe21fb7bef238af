#include "shale/kernels/pool.h"

#include <algorithm>
#include <vector>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"

// A thread owns rows of pixels; the channels of a pixel lie behind each other, so that compilers
// make vectors of them. Backward gathers: each pixel asks the windows that hold it.

namespace shale::kernels {
namespace {

constexpr int64_t kPoolGrain = 4;  // rows of pixels

// Pixels [begin, end) of a window that are inside of an image.
struct Cells {
  Cells(int64_t window, int64_t kernel, int64_t size, const Windows& windows)
      : first(window * windows.stride - windows.padding),
        begin(std::max<int64_t>(first, 0)),
        end(std::min(first + kernel, size)) {}
  int64_t first, begin, end;
};

// Windows [begin, end) that hold a pixel.
struct Holders {
  Holders(int64_t pixel, int64_t kernel, int64_t count, const Windows& windows)
      : begin(std::max<int64_t>(
            (pixel + windows.padding - kernel + windows.stride) / windows.stride, 0)),
        end(std::min((pixel + windows.padding) / windows.stride + 1, count)) {
    if (pixel + windows.padding < kernel) begin = 0;
  }
  int64_t begin, end;
};

template <typename T>
void max_pool_rows(const MaxPoolArgs& a, int64_t first_row, int64_t end_row) {
  const int64_t H = a.x.size(1), W = a.x.size(2), C = a.x.size(3);
  const int64_t rows = a.y.size(1), cols = a.y.size(2);
  const T* x = a.x.as<T>();
  std::vector<float> best(static_cast<size_t>(C));
  for (int64_t row = first_row; row < end_row; ++row) {
    const int64_t image = row / rows;
    const Cells down(row % rows, a.kernel, H, a.windows);
    for (int64_t j = 0; j < cols; ++j) {
      const Cells across(j, a.kernel, W, a.windows);
      uint8_t* const place = a.place.as<uint8_t>() + (row * cols + j) * C;
      bool is_first = true;
      for (int64_t h = down.begin; h < down.end; ++h) {
        for (int64_t w = across.begin; w < across.end; ++w) {
          const T* pixel = x + ((image * H + h) * W + w) * C;
          const auto cell = static_cast<uint8_t>((h - down.first) * a.kernel + (w - across.first));
          for (int64_t c = 0; c < C; ++c) {
            const float value = to_f32(pixel[c]);
            const bool is_nan = value != value && best[size_t(c)] == best[size_t(c)];
            const bool wins = is_first || value > best[size_t(c)] || is_nan;
            best[size_t(c)] = wins ? value : best[size_t(c)];
            place[c] = wins ? cell : place[c];
          }
          is_first = false;
        }
      }
      T* y = a.y.as<T>() + (row * cols + j) * C;
      for (int64_t c = 0; c < C; ++c) y[c] = static_cast<T>(best[size_t(c)]);
    }
  }
}

template <typename T>
void max_pool_grad_rows(const MaxPoolGradArgs& a, int64_t first_row, int64_t end_row) {
  const int64_t H = a.dx.size(1), W = a.dx.size(2), C = a.dx.size(3);
  const int64_t rows = a.dy.size(1), cols = a.dy.size(2);
  const T* dy = a.dy.as<T>();
  const uint8_t* place = a.place.as<uint8_t>();
  std::vector<float> sum(static_cast<size_t>(C));
  for (int64_t row = first_row; row < end_row; ++row) {
    const int64_t image = row / H, h = row % H;
    const Holders down(h, a.kernel, rows, a.windows);
    for (int64_t w = 0; w < W; ++w) {
      const Holders across(w, a.kernel, cols, a.windows);
      std::fill(sum.begin(), sum.end(), 0.f);
      for (int64_t i = down.begin; i < down.end; ++i) {
        for (int64_t j = across.begin; j < across.end; ++j) {
          const int64_t at = ((image * rows + i) * cols + j) * C;
          const int64_t u = h - (i * a.windows.stride - a.windows.padding);
          const int64_t v = w - (j * a.windows.stride - a.windows.padding);
          const auto cell = static_cast<uint8_t>(u * a.kernel + v);
          for (int64_t c = 0; c < C; ++c) {
            sum[size_t(c)] += place[at + c] == cell ? to_f32(dy[at + c]) : 0.f;
          }
        }
      }
      T* dx = a.dx.as<T>() + (row * W + w) * C;
      for (int64_t c = 0; c < C; ++c) dx[c] = static_cast<T>(sum[size_t(c)]);
    }
  }
}

}  // namespace

template <>
void cpu::run(const Exec& exec, const MaxPoolArgs& a) {
  dispatch_float(a.x.dtype, [&]<typename T>() {
    parallel_for(exec, a.y.size(0) * a.y.size(1), kPoolGrain,
                 [&](int64_t begin, int64_t end) { max_pool_rows<T>(a, begin, end); });
  });
}

template <>
void cpu::run(const Exec& exec, const MaxPoolGradArgs& a) {
  dispatch_float(a.dx.dtype, [&]<typename T>() {
    parallel_for(exec, a.dx.size(0) * a.dx.size(1), kPoolGrain,
                 [&](int64_t begin, int64_t end) { max_pool_grad_rows<T>(a, begin, end); });
  });
}

}  // namespace shale::kernels
