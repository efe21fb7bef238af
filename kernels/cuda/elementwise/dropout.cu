#include "shale/base/rng.h"
#include "shale/kernels/check.h"
#include "shale/kernels/cuda/elementwise/operand.cuh"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/elementwise.h"

// Dropout reads x and residual once and writes y once; the mask is computed and never stored.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 256;
constexpr int kPacks = 2;  // packs per thread

// Operands for the elements [first, last) of [samples, elements].
template <typename T>
struct DropoutOperands {
  const T* x;
  const T* residual;  // null: no residual
  T* y;
  const StepState* step;
  int64_t elements, first, last;
  uint32_t first_sample;
  uint32_t blocks;  // thread blocks per sample
  uint32_t site;
  float p, scale;
};

// Computes the random words of elements [element, element + kCount) of a sample.
template <int kCount>
__device__ __forceinline__ void dropout_words(PhiloxCounter counter, PhiloxKey key, int64_t element,
                                              uint32_t (&words)[kCount]) {
  if constexpr (kCount == 1) {
    counter[0] = static_cast<uint32_t>(element / 4);
    const PhiloxCounter four = philox(counter, key);
    // The array is not indexed at run time, which would put it into local memory.
    const int word = static_cast<int>(element % 4);
    words[0] = word == 0 ? four[0] : word == 1 ? four[1] : word == 2 ? four[2] : four[3];
  } else {
#pragma unroll
    for (int k = 0; k < kCount; k += 4) {
      counter[0] = static_cast<uint32_t>((element + k) / 4);
      const PhiloxCounter four = philox(counter, key);
#pragma unroll
      for (int j = 0; j < 4; ++j) words[k + j] = four[static_cast<size_t>(j)];
    }
  }
}

template <int kCount, typename T>
__device__ __forceinline__ void drop(const DropoutOperands<T>& o, const PhiloxCounter& counter,
                                     const PhiloxKey& key, int64_t at, int64_t element) {
  Floats<kCount> values = load_floats<kCount>(o.x + at);
  uint32_t words[kCount];
  dropout_words<kCount>(counter, key, element, words);
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    values.at[k] = uniform_f32(words[k]) >= o.p ? values.at[k] * o.scale : 0.f;
  }
  if (o.residual != nullptr) {
    const Floats<kCount> residual = load_floats<kCount>(o.residual + at);
#pragma unroll
    for (int k = 0; k < kCount; ++k) values.at[k] += residual.at[k];
  }
  store_floats(o.y + at, values);
}

// A block processes kThreads * kPacks packs of one sample. The kernel is limited by arithmetic, ten
// rounds of Philox per four elements, not by the number of loads in flight.
template <typename T>
__global__ void __launch_bounds__(kThreads) dropout_kernel(DropoutOperands<T> o, bool packed) {
  await_previous_grid();
  constexpr int kCount = kPackSize<T>;
  constexpr int64_t kBlock = int64_t{kThreads} * kPacks * kCount;
  const uint32_t sample = o.first_sample + blockIdx.x / o.blocks;
  const int64_t base = sample * o.elements - o.first;  // offset of the sample in x
  int64_t begin = (blockIdx.x % o.blocks) * kBlock;
  int64_t end = begin + kBlock < o.elements ? begin + kBlock : o.elements;
  if (base + begin < 0) begin = -base;
  if (o.first + base + end > o.last) end = o.last - o.first - base;
  if (begin >= end) return;
  const PhiloxKey key = rng_key(o.step->seed, RngDomain::kDropout);
  const PhiloxCounter counter = {0, o.site, static_cast<uint32_t>(o.step->sample + sample),
                                 static_cast<uint32_t>(o.step->step)};
  int64_t first = begin;
  if (packed) {
    for (int64_t i = begin + threadIdx.x * kCount; i + kCount <= end; i += kThreads * kCount) {
      drop<kCount>(o, counter, key, base + i, i);
    }
    first = begin + (end - begin) / kCount * kCount;
  }
  for (int64_t i = first + threadIdx.x; i < end; i += kThreads) {
    drop<1>(o, counter, key, base + i, i);
  }
}

template <typename T>
void dropout_typed(const Exec& exec, const DropoutArgs& a) {
  const int64_t elements = a.sample_elements > 0 ? a.sample_elements : a.x.numel() / a.x.size(0);
  const int64_t blocks = ceil_div(elements, int64_t{kThreads} * kPacks * kPackSize<T>);
  const int64_t last = a.first + a.x.numel(), first_sample = a.first / elements;
  const int64_t samples = ceil_div(last, elements) - first_sample;
  const DropoutOperands<T> o = {.x = a.x.as<T>(),
                                .residual = a.residual.defined() ? a.residual.as<T>() : nullptr,
                                .y = a.y.as<T>(),
                                .step = exec.step,
                                .elements = elements,
                                .first = a.first,
                                .last = last,
                                .first_sample = static_cast<uint32_t>(first_sample),
                                .blocks = static_cast<uint32_t>(blocks),
                                .site = a.site,
                                .p = a.p,
                                .scale = 1.f / (1.f - a.p)};
  constexpr int kCount = kPackSize<T>;
  const bool packed = elements % kCount == 0 && a.first % kCount == 0 &&
                      a.x.numel() % kCount == 0 && allows_packs(Typed<T>(a.x), kCount) &&
                      allows_packs(Typed<T>(a.y), kCount) &&
                      (!a.residual.defined() || allows_packs(Typed<T>(a.residual), kCount));
  simt::launch(dropout_kernel<T>, {.grid = samples * blocks, .block = kThreads}, exec, o, packed);
}

}  // namespace

template <>
void run(const Exec& exec, const DropoutArgs& a) {
  step_of("dropout", exec);
  if (a.x.numel() == 0) return;
  dispatch_float(a.x.dtype, [&]<typename T>() { dropout_typed<T>(exec, a); });
}

}  // namespace shale::kernels::SHALE_BACKEND
