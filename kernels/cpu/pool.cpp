#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/pool.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/pool.h"

// Max pooling. A thread owns rows of pixels; vectors run along channels, which are contiguous.
// In backward each pixel reads the windows that contain it.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

// Position in a window, in as many bits as a value.
using PlaceTag = hn::RebindToSigned<F32Tag>;
using PlaceByteTag = hn::Rebind<uint8_t, F32Tag>;  // position as stored in memory

HWY_INLINE auto load_places(const uint8_t* from, Whole) {
  return hn::PromoteTo(PlaceTag(), hn::LoadU(PlaceByteTag(), from));
}
HWY_INLINE auto load_places(const uint8_t* from, Part part) {
  uint8_t bytes[kF32Lanes] = {};
  for (int64_t i = 0; i < kF32Lanes; ++i) {
    if (i < part.count) bytes[i] = from[i];
  }
  return load_places(bytes, Whole());
}
template <class V>
HWY_INLINE void store_places(V places, uint8_t* to, Whole) {
  hn::StoreU(hn::DemoteTo(PlaceByteTag(), places), PlaceByteTag(), to);
}
template <class V>
HWY_INLINE void store_places(V places, uint8_t* to, Part part) {
  uint8_t bytes[kF32Lanes];
  store_places(places, bytes, Whole());
  for (int64_t i = 0; i < kF32Lanes; ++i) {
    if (i < part.count) to[i] = bytes[i];
  }
}

inline constexpr int64_t kPoolGrain = 4;  // rows of pixels per chunk of work

// Range of pixels [begin, end) of a window that are inside an image, along one axis.
struct Cells {
  Cells(int64_t window, int64_t kernel, int64_t size, const Windows& windows)
      : first(window * windows.stride - windows.padding),
        begin(std::max<int64_t>(first, 0)),
        end(std::min(first + kernel, size)) {}
  int64_t first, begin, end;
};

// Range of windows [begin, end) that contain a pixel, along one axis.
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
  for (int64_t row = first_row; row < end_row; ++row) {
    const int64_t image = row / rows;
    const Cells down(row % rows, a.kernel, H, a.windows);
    for (int64_t j = 0; j < cols; ++j) {
      const Cells across(j, a.kernel, W, a.windows);
      uint8_t* const place = a.place.as<uint8_t>() + (row * cols + j) * C;
      T* const y = a.y.as<T>() + (row * cols + j) * C;
      for_vectors(C, [&](int64_t c, auto part) HWY_ATTR {
        auto best = hn::Zero(F32Tag());
        auto best_cell = hn::Zero(PlaceTag());
        bool is_first = true;
        for (int64_t h = down.begin; h < down.end; ++h) {
          for (int64_t w = across.begin; w < across.end; ++w) {
            const auto value = load(x + ((image * H + h) * W + w) * C + c, part);
            const auto cell = hn::Set(
                PlaceTag(), static_cast<int32_t>((h - down.first) * a.kernel + (w - across.first)));
            // The first NaN replaces any number, and nothing replaces it.
            const auto is_nan = hn::AndNot(hn::IsNaN(best), hn::IsNaN(value));
            const auto wins = hn::Or(hn::Gt(value, best), is_nan);
            best = is_first ? value : hn::IfThenElse(wins, value, best);
            best_cell =
                is_first ? cell : hn::IfThenElse(hn::RebindMask(PlaceTag(), wins), cell, best_cell);
            is_first = false;
          }
        }
        store(best, y + c, part);
        store_places(best_cell, place + c, part);
      });
    }
  }
}

template <typename T>
void max_pool_grad_rows(const MaxPoolGradArgs& a, int64_t first_row, int64_t end_row) {
  const int64_t H = a.dx.size(1), W = a.dx.size(2), C = a.dx.size(3);
  const int64_t rows = a.dy.size(1), cols = a.dy.size(2);
  const T* dy = a.dy.as<T>();
  const uint8_t* place = a.place.as<uint8_t>();
  for (int64_t row = first_row; row < end_row; ++row) {
    const int64_t image = row / H, h = row % H;
    const Holders down(h, a.kernel, rows, a.windows);
    for (int64_t w = 0; w < W; ++w) {
      const Holders across(w, a.kernel, cols, a.windows);
      T* const dx = a.dx.as<T>() + (row * W + w) * C;
      for_vectors(C, [&](int64_t c, auto part) HWY_ATTR {
        auto sum = hn::Zero(F32Tag());
        for (int64_t i = down.begin; i < down.end; ++i) {
          for (int64_t j = across.begin; j < across.end; ++j) {
            const int64_t at = ((image * rows + i) * cols + j) * C + c;
            const int64_t u = h - (i * a.windows.stride - a.windows.padding);
            const int64_t v = w - (j * a.windows.stride - a.windows.padding);
            const auto cell = hn::Set(PlaceTag(), static_cast<int32_t>(u * a.kernel + v));
            const auto won = hn::Eq(load_places(place + at, part), cell);
            sum = hn::Add(sum,
                          hn::IfThenElseZero(hn::RebindMask(F32Tag(), won), load(dy + at, part)));
          }
        }
        store(sum, dx + c, part);
      });
    }
  }
}

void max_pool_target(const Exec& exec, const MaxPoolArgs& a) {
  dispatch_float(a.x.dtype, [&]<typename T>() {
    parallel_for(exec, a.y.size(0) * a.y.size(1), kPoolGrain,
                 [&](int64_t begin, int64_t end) { max_pool_rows<T>(a, begin, end); });
  });
}

void max_pool_grad_target(const Exec& exec, const MaxPoolGradArgs& a) {
  dispatch_float(a.dx.dtype, [&]<typename T>() {
    parallel_for(exec, a.dx.size(0) * a.dx.size(1), kPoolGrain,
                 [&](int64_t begin, int64_t end) { max_pool_grad_rows<T>(a, begin, end); });
  });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(max_pool_target);
HWY_EXPORT(max_pool_grad_target);

template <>
void cpu::run(const Exec& exec, const MaxPoolArgs& a) {
  HWY_DYNAMIC_DISPATCH(max_pool_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const MaxPoolGradArgs& a) {
  HWY_DYNAMIC_DISPATCH(max_pool_grad_target)(exec, a);
}

}  // namespace shale::kernels
#endif
