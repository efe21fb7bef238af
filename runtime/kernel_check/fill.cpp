#include "shale/runtime/kernel_check/fill.h"

#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/kernels/cpu/parallel.h"

namespace shale::kernel_check {
namespace {

// The mixing function of splitmix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number
// Generators", OOPSLA 2014): random enough for realistic GEMMs, and fast.
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr int64_t kGrain = 1 << 16;  // elements per chunk of work

template <typename T, typename Value>
void fill(const View& view, const Value& value) {
  T* const data = view.as<T>();
  const int64_t count = view.numel();
  kernels::parallel_for({.threads = cpu_counts().bound}, count, kGrain,
                        [&](int64_t begin, int64_t end) {
                          for (int64_t i = begin; i < end; ++i) data[i] = T(value(uint64_t(i)));
                        });
}

}  // namespace

void fill_uniform(const View& view, double scale, uint64_t seed) {
  const auto value = [&](uint64_t i) {
    const double unit = double(mixed(seed * 0x2545f4914f6cdd1du + i) >> 11) * 0x1p-53;
    return float(scale * (2 * unit - 1));
  };
  switch (view.dtype) {
    case DType::kF32: return fill<float>(view, value);
    case DType::kBF16: return fill<bf16>(view, value);
    case DType::kF16: return fill<f16>(view, value);
    default: throw DTypeError(cat("fill_uniform: view is ", view, ", expected fp32, bf16 or fp16"));
  }
}

void fill_integers(const View& view, int64_t bound, uint64_t seed) {
  fill<int32_t>(view, [&](uint64_t i) {
    return int32_t(mixed(seed * 0x2545f4914f6cdd1du + i) % uint64_t(bound));
  });
}

}  // namespace shale::kernel_check
