#include "shale/kernels/index.h"

#include <algorithm>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/run.h"

// gather: a thread owns rows y[o, k, :]. scatter_add: a thread owns columns y[o, :, i], so no other
// thread adds to them. Both kernels process all of `inner` at once if the index does not depend on
// i.

namespace shale::kernels {
namespace {

constexpr int64_t kGrain = 16384;  // elements per chunk of work

int64_t checked(const char* op, int32_t index, int64_t count) {
  if (index >= 0 && index < count) return index;
  throw DataError(cat(op, ": index ", index, ", expected 0 to ", count - 1));
}

template <typename T>
void gather_typed(const Exec& exec, const GatherArgs& a) {
  const int64_t count = a.x.size(1), inner = a.x.size(2), picks = a.y.size(1);
  const T* x = a.x.as<T>();
  const int32_t* index = a.index.as<int32_t>();
  T* y = a.y.as<T>();
  const int64_t grain = std::max<int64_t>(1, kGrain / inner);
  parallel_for(exec, a.y.size(0) * picks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t o = row / picks, k = row % picks;
      const int32_t* at = index + o * a.index.stride(0) + k * a.index.stride(1);
      const T* from = x + o * count * inner;
      if (a.index.stride(2) == 0) {
        std::copy_n(from + checked("gather", *at, count) * inner, inner, y + row * inner);
        continue;
      }
      for (int64_t i = 0; i < inner; ++i) {
        const int64_t pick = checked("gather", at[i * a.index.stride(2)], count);
        y[row * inner + i] = from[pick * inner + i];
      }
    }
  });
}

// put(to, x) adds x to an element of y, or overwrites the element with x.
template <typename T, class Put>
void scatter_typed(const Exec& exec, const ScatterAddArgs& a, const Put& put) {
  const int64_t count = a.y.size(1), inner = a.y.size(2), picks = a.x.size(1);
  const T* x = a.x.as<T>();
  const int32_t* index = a.index.as<int32_t>();
  float* y = a.y.as<float>();
  // number of columns y[o, :, i] with the same o in a chunk of work
  const int64_t width = std::min(inner, std::max<int64_t>(256, kGrain / picks));
  const int64_t chunks = (inner + width - 1) / width;
  parallel_for(exec, a.y.size(0) * chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t o = chunk / chunks, first = chunk % chunks * width;
      const int64_t last = std::min(inner, first + width);
      for (int64_t k = 0; k < picks; ++k) {
        const int32_t* at = index + o * a.index.stride(0) + k * a.index.stride(1);
        const T* from = x + (o * picks + k) * inner;
        float* lines = y + o * count * inner;
        if (a.index.stride(2) == 0) {
          float* to = lines + checked("scatter_add", *at, count) * inner;
          for (int64_t i = first; i < last; ++i) put(to[i], to_f32(from[i]));
          continue;
        }
        for (int64_t i = first; i < last; ++i) {
          const int64_t pick = checked("scatter_add", at[i * a.index.stride(2)], count);
          put(lines[pick * inner + i], to_f32(from[i]));
        }
      }
    }
  });
}

}  // namespace

template <>
void cpu::run(const Exec& exec, const GatherArgs& a) {
  if (a.y.numel() == 0) return;
  dispatch_float(a.x.dtype, [&]<typename T>() { gather_typed<T>(exec, a); });
}

template <>
void cpu::run(const Exec& exec, const ScatterAddArgs& a) {
  if (a.x.numel() == 0) return;
  dispatch_float(a.x.dtype, [&]<typename T>() {
    if (a.replace) return scatter_typed<T>(exec, a, [](float& to, float x) { to = x; });
    scatter_typed<T>(exec, a, [](float& to, float x) { to += x; });
  });
}

}  // namespace shale::kernels
