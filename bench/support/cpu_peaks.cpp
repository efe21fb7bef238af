#include "shale/bench/support/cpu_peaks.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "shale/base/error.h"
#include "shale/bench/support/buffer.h"
#include "shale/bench/support/timing.h"
#include "shale/bench/support/vendor_matmul.h"

namespace shale::bench {
namespace {

// Bytes per array; three arrays exceed the caches.
constexpr size_t kStreamBytes = size_t{64} << 20;
constexpr int kFewestRuns = 3;

// Returns the shortest time of fn() among the runs in `seconds`. Does not count the first run,
// which maps memory.
template <typename Fn>
double best_seconds(double seconds, Fn fn) {
  fn();
  const Clock::time_point start = Clock::now();
  Samples samples;
  while (samples.seconds.size() < kFewestRuns || seconds_since(start) < seconds) {
    samples.add(time_once(fn));
  }
  return samples.min();
}

// Calls fn(begin, end) on every thread, with the thread's part of [0, count).
template <typename Fn>
void on_all_threads(int64_t count, Fn fn) {
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    fn(count * thread / threads, count * (thread + 1) / threads);
  }
}

// Computes a = b + s c, which is limited by memory bandwidth, whatever the vector width.
void triad(float* a, const float* b, const float* c, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) a[i] = b[i] + 0.5f * c[i];
}

void update(float* a, const float* b, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) a[i] += 1e-6f * b[i];
}

// Sums integers, because compilers may not vectorize a float sum.
uint32_t sum(const uint32_t* a, int64_t count) {
  uint32_t total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < count; ++i) total += a[i];
  return total;
}

void measure_streams(double seconds, Peaks& peaks) {
  const Buffer buffers[3] = {Buffer(kStreamBytes), Buffer(kStreamBytes), Buffer(kStreamBytes)};
  constexpr int64_t kCount = kStreamBytes / sizeof(float);
  float* array[3];
  for (int i = 0; i < 3; ++i) {
    array[i] = reinterpret_cast<float*>(buffers[i].data());
    fill_uniform(make_view(array[i], {kCount}), 1, uint64_t(i));
  }
  const auto [a, b, c] = array;
  // Returns the bytes moved by one run of `body`, divided by its time.
  const auto speed = [&](double arrays, auto body) {
    return arrays * double(kStreamBytes) /
           best_seconds(seconds, [&] { on_all_threads(kCount, body); });
  };
  peaks.copy = speed(2, [=](int64_t begin, int64_t end) {
    std::memcpy(a + begin, b + begin, size_t(end - begin) * sizeof(float));
  });
  peaks.triad = speed(
      3, [=](int64_t begin, int64_t end) { triad(a + begin, b + begin, c + begin, end - begin); });
  peaks.update =
      speed(3, [=](int64_t begin, int64_t end) { update(a + begin, b + begin, end - begin); });
  std::atomic<uint32_t> total = 0;  // prevents compilers from dropping the sums
  peaks.read =
      speed(1, [&, words = reinterpret_cast<const uint32_t*>(b)](int64_t begin, int64_t end) {
        total += sum(words + begin, end - begin);
      });
}

// Returns the best of two GEMM shapes, because oneDNN has no single best one: a square one, and a
// wide one with a transposed operand as in a linear layer.
double measure_gemm(DType dtype, double seconds) {
  const std::vector<MatmulSpec> specs = {
      {.m = 2048, .n = 2048, .k = 2048, .lda = 2048, .ldb = 2048, .ldc = 2048},
      {.m = 2048,
       .n = 2048,
       .k = 2048,
       .lda = 2048,
       .ldb = 2048,
       .ldc = 2048,
       .b_transposed = true},
      {.m = 2048, .n = 6144, .k = 768, .lda = 768, .ldb = 768, .ldc = 6144, .b_transposed = true}};
  double best = 0;
  for (MatmulSpec spec : specs) {
    spec.in = spec.out = dtype;
    const VendorMatmul matmul(spec);
    const Buffer a(size_t(spec.a_bytes())), b(size_t(spec.b_bytes())), c(size_t(spec.c_bytes()));
    const Buffer scratch(matmul.scratch_bytes());
    fill_uniform(make_view(a.data(), dtype, {spec.m * spec.k}), 1, 1);
    fill_uniform(make_view(b.data(), dtype, {spec.n * spec.k}), 1, 2);
    const double time = best_seconds(seconds / double(specs.size()), [&] {
      matmul.run(a.data(), b.data(), c.data(), scratch.data());
    });
    best = std::max(best, spec.flops() / time);
  }
  return best;
}

}  // namespace

Peaks measure_cpu_peaks(double seconds) {
  Peaks peaks;
  measure_streams(seconds, peaks);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    try {
      peaks.gemm[dtype] = measure_gemm(dtype, seconds);
    } catch (const UnavailableError&) {
      // This CPU does not support the dtype, so there is no peak for it.
    }
  }
  return peaks;
}

}  // namespace shale::bench
