#include "shale/kernels/check.h"
#include "shale/kernels/cuda/elementwise/operand.cuh"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/rope.h"
#include "shale/kernels/rope_angle.h"

// Rotary position embedding. A thread computes the sines and cosines of some pairs of a token once,
// and rotates these pairs of several heads. Memory traffic is reading x and writing y.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 128;
constexpr int kHeads = 4;  // heads per thread
constexpr int kMaxPairs = kMaxRopeHeadSize / 2;

struct RopeStrides {
  int64_t batch, token, head;
};

template <typename T>
struct RopeParams {
  const T* x;
  T* y;
  const int32_t* positions;  // null: the position is first_position + index
  RopeStrides x_strides, y_strides;
  int64_t tokens;  // tokens of all sequences
  int64_t length;  // tokens per sequence
  int64_t first_position;
  int heads, pairs;
  int head_groups;  // groups of kHeads heads
  float scale, sign;
  uint64_t turns[kMaxPairs];
};

// Computes the same bits as kernels/cpu/rope.cpp.
__device__ __forceinline__ void rope_sin_cos(uint32_t angle, float scale, float sign, float& cos,
                                             float& sin) {
  using P = RopePolynomial;
  const uint32_t quarter = (angle + (1u << 29)) >> 30;
  const float x = static_cast<float>(static_cast<int32_t>(angle - (quarter << 30))) * P::kRadians;
  const float z = x * x;
  const float s = fmaf(fmaf(P::kSin2, z, P::kSin1), z, P::kSin0);
  const float c = fmaf(fmaf(P::kCos2, z, P::kCos1), z, P::kCos0);
  const float sine = fmaf(x * z, s, x);
  const float cosine = fmaf(z * z, c, fmaf(-0.5f, z, 1.f));
  // An additional quarter turn turns sin into cos, and cos into -sin.
  const bool odd = (quarter & 1) != 0, below = (quarter & 2) != 0;
  const float up = odd ? cosine : sine, right = odd ? sine : cosine;
  sin = (below ? -up : up) * (scale * sign);
  cos = (below != odd ? -right : right) * scale;
}

// Rotates the pairs [pair, pair + kCount) of one head.
template <int kCount, bool kInterleaved, typename T>
__device__ __forceinline__ void turn(const T* x, T* y, int pair, int pairs,
                                     const float (&cos)[kCount], const float (&sin)[kCount]) {
  const int first = kInterleaved ? 2 * pair : pair;
  const int second = kInterleaved ? first + kCount : pair + pairs;
  Floats<kCount> parts[] = {load_floats<kCount>(x + first), load_floats<kCount>(x + second)};
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    // The thread has loaded 2 kCount elements; i and j are the indices of the two elements of pair
    // k among them.
    constexpr int kStep = kInterleaved ? 2 : 1, kApart = kInterleaved ? 1 : kCount;
    const int i = k * kStep, j = i + kApart;
    float &a = parts[i / kCount].at[i % kCount], &b = parts[j / kCount].at[j % kCount];
    const float before = a;
    a = fmaf(-b, sin[k], before * cos[k]);
    b = fmaf(b, cos[k], before * sin[k]);
  }
  store_floats(y + first, parts[0]);
  store_floats(y + second, parts[1]);
}

template <typename T, int kCount, bool kInterleaved>
__global__ void __launch_bounds__(kThreads) rope_kernel(RopeParams<T> p) {
  await_previous_grid();
  const uint32_t packs = static_cast<uint32_t>(p.pairs) / kCount;
  int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int pair = static_cast<int>(index % packs) * kCount;
  index /= packs;
  const int first_head = static_cast<int>(index % p.head_groups) * kHeads;
  const int64_t row = index / p.head_groups;
  if (row >= p.tokens) return;
  const int64_t b = row / p.length, t = row % p.length;
  const int64_t position = p.positions != nullptr ? p.positions[row] : p.first_position + t;
  float cos[kCount], sin[kCount];
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    const uint32_t angle = rope_angle(static_cast<uint64_t>(position), p.turns[pair + k]);
    rope_sin_cos(angle, p.scale, p.sign, cos[k], sin[k]);
  }
  const T* x = p.x + b * p.x_strides.batch + t * p.x_strides.token;
  T* y = p.y + b * p.y_strides.batch + t * p.y_strides.token;
  const int end = first_head + kHeads < p.heads ? first_head + kHeads : p.heads;
  for (int h = first_head; h < end; ++h) {
    turn<kCount, kInterleaved>(x + h * p.x_strides.head, y + h * p.y_strides.head, pair, p.pairs,
                               cos, sin);
  }
}

RopeStrides strides_of(const View& view) {
  return {.batch = view.strides[0], .token = view.strides[1], .head = view.strides[2]};
}

template <typename T>
bool allows_rope_packs(const View& view) {
  constexpr int kCount = kPackSize<T>;
  const RopeStrides strides = strides_of(view);
  return allows_packs(Typed<T>(view), kCount) && strides.batch % kCount == 0 &&
         strides.token % kCount == 0 && strides.head % kCount == 0 &&
         view.size(3) / 2 % kCount == 0;
}

template <typename T>
void rope_typed(const Exec& exec, const RopeArgs& a) {
  RopeParams<T> p = {
      .x = a.x.as<T>(),
      .y = a.y.as<T>(),
      .positions = a.positions.defined() ? a.positions.as<int32_t>() : nullptr,
      .x_strides = strides_of(a.x),
      .y_strides = strides_of(a.y),
      .tokens = a.x.size(0) * a.x.size(1),
      .length = a.x.size(1),
      .first_position = a.first_position,
      .heads = static_cast<int>(a.x.size(2)),
      .pairs = static_cast<int>(a.x.size(3) / 2),
      .head_groups = static_cast<int>(ceil_div(a.x.size(2), int64_t{kHeads})),
      .scale = a.scale,
      .sign = a.inverse ? -1.f : 1.f,
      .turns = {},
  };
  for (int i = 0; i < p.pairs; ++i) p.turns[i] = a.turns[i];
  const bool packed = allows_rope_packs<T>(a.x) && allows_rope_packs<T>(a.y);
  const auto launch = [&]<int kCount, bool kInterleaved>() {
    const int64_t threads = p.tokens * p.head_groups * (p.pairs / kCount);
    simt::launch(rope_kernel<T, kCount, kInterleaved>,
                 {.grid = ceil_div(threads, int64_t{kThreads}), .block = kThreads}, exec, p);
  };
  constexpr int kPack = kPackSize<T>;
  if (a.interleaved) {
    packed ? launch.template operator()<kPack, true>() : launch.template operator()<1, true>();
  } else {
    packed ? launch.template operator()<kPack, false>() : launch.template operator()<1, false>();
  }
}

}  // namespace

template <>
void run(const Exec& exec, const RopeArgs& a) {
  if (a.x.numel() == 0) return;
  dispatch_float(a.x.dtype, [&]<typename T>() { rope_typed<T>(exec, a); });
}

}  // namespace shale::kernels::SHALE_BACKEND
