#include "shale/test/kernels/simt/primitives.h"

#include "shale/kernels/simt/simt.h"

// Each kernel runs in one warp. in[32 * i + lane] is word i of a lane, and `out` has the same
// layout. A "tile" is memory that all lanes see, word by word.
namespace shale::kernels::SHALE_BACKEND {
namespace {

__device__ __forceinline__ int lane_id() {
  return static_cast<int>(threadIdx.x);
}
__device__ __forceinline__ float as_float(uint32_t word) {
  return std::bit_cast<float>(word);
}
__device__ __forceinline__ uint32_t as_word(float value) {
  return std::bit_cast<uint32_t>(value);
}

struct MatrixTile {
  alignas(16) uint32_t words[4 * 32];  // four row-major 8x8 matrices of halves
};

// Tests ldmatrix: `in` has the tile, and word m of `out` is register m.
template <int kCount, bool kTransposed>
__global__ void ldmatrix_kernel(const uint32_t* in, uint32_t* out) {
  await_previous_grid();
  MatrixTile& tile = shared<MatrixTile>();
  for (int i = 0; i < kCount; ++i) tile.words[32 * i + lane_id()] = in[32 * i + lane_id()];
  __syncwarp();
  uint32_t registers[kCount];
  ldmatrix<kCount, kTransposed>(registers, tile.words + 4 * (lane_id() % (8 * kCount)));
  for (int m = 0; m < kCount; ++m) out[32 * m + lane_id()] = registers[m];
}

// Tests stmatrix: word m of `in` is register m, and `out` has the tile.
template <int kCount, bool kTransposed>
__global__ void stmatrix_kernel(const uint32_t* in, uint32_t* out) {
  await_previous_grid();
  MatrixTile& tile = shared<MatrixTile>();
  uint32_t registers[kCount];
  for (int m = 0; m < kCount; ++m) registers[m] = in[32 * m + lane_id()];
  stmatrix<kCount, kTransposed>(tile.words + 4 * (lane_id() % (8 * kCount)), registers);
  __syncwarp();
  for (int i = 0; i < kCount; ++i) out[32 * i + lane_id()] = tile.words[32 * i + lane_id()];
}

// Tests mma with 16-bit operands. in: words 0 to 3 are d, 4 to 7 a, 8 and 9 b. out: d.
template <typename T>
__global__ void mma_16_kernel(const uint32_t* in, uint32_t* out) {
  await_previous_grid();
  float d[4];
  uint32_t a[4], b[2];
  for (int i = 0; i < 4; ++i) d[i] = as_float(in[32 * i + lane_id()]);
  for (int i = 0; i < 4; ++i) a[i] = in[32 * (4 + i) + lane_id()];
  for (int i = 0; i < 2; ++i) b[i] = in[32 * (8 + i) + lane_id()];
  mma_m16n8k16<T>(d, a, b);
  for (int i = 0; i < 4; ++i) out[32 * i + lane_id()] = as_word(d[i]);
}

template <bool kTF32>
__global__ void mma_8_kernel(const uint32_t* in, uint32_t* out) {
  await_previous_grid();
  float d[4];
  for (int i = 0; i < 4; ++i) d[i] = as_float(in[32 * i + lane_id()]);
  if constexpr (kTF32) {
    uint32_t a[4], b[2];
    for (int i = 0; i < 4; ++i) a[i] = to_tf32(as_float(in[32 * (4 + i) + lane_id()]));
    for (int i = 0; i < 2; ++i) b[i] = to_tf32(as_float(in[32 * (8 + i) + lane_id()]));
    mma_m16n8k8_tf32(d, a, b);
  } else {
    float a[4], b[2];
    for (int i = 0; i < 4; ++i) a[i] = as_float(in[32 * (4 + i) + lane_id()]);
    for (int i = 0; i < 2; ++i) b[i] = as_float(in[32 * (8 + i) + lane_id()]);
    mma_m16n8k8_f32(d, a, b);
  }
  for (int i = 0; i < 4; ++i) out[32 * i + lane_id()] = as_word(d[i]);
}

// Tests cp_async. in: kBytes / 4 words per lane; odd lanes copy none of them. out: what the
// adjacent lane reads from shared memory after the copy.
template <int kBytes>
__global__ void cp_async_kernel(const uint32_t* in, uint32_t* out) {
  await_previous_grid();
  constexpr int kWords = kBytes / 4;
  struct Tile {
    alignas(16) uint32_t words[32 * kWords];
  };
  Tile& tile = shared<Tile>();
  const int mine = lane_id() * kWords, other = (lane_id() ^ 1) * kWords;
  cp_async<kBytes>(tile.words + mine, in + mine, lane_id() % 2 == 0);
  cp_async_commit();
  cp_async_wait<0>();
  __syncwarp();
  for (int i = 0; i < kWords; ++i) out[other + i] = tile.words[other + i];
}

// Tests conversions to narrower formats. in: word 0 is an f32 x. out: x as bf16, as f16 and as
// tf32; x and the next lane's x, packed as bf16 and as f16.
__global__ void narrow_kernel(const uint32_t* in, uint32_t* out) {
  await_previous_grid();
  const float x = as_float(in[lane_id()]), next = as_float(in[(lane_id() + 1) % 32]);
  out[lane_id()] = from_float<bf16>(x).bits;
  out[32 + lane_id()] = from_float<f16>(x).bits;
  out[64 + lane_id()] = to_tf32(x);
  out[96 + lane_id()] = pack_pair<bf16>(x, next);
  out[128 + lane_id()] = pack_pair<f16>(x, next);
}

// Tests conversions to f32. in: word 0 has two halves. out: the lower half, read as bf16 and as
// f16; the upper half, read as bf16 and as f16.
__global__ void widen_kernel(const uint32_t* in, uint32_t* out) {
  await_previous_grid();
  for (int half = 0; half < 2; ++half) {
    const auto bits = static_cast<uint16_t>(in[lane_id()] >> (16 * half));
    bf16 brain;
    f16 ieee;
    brain.bits = ieee.bits = bits;
    out[64 * half + lane_id()] = as_word(to_float(brain));
    out[64 * half + 32 + lane_id()] = as_word(to_float(ieee));
  }
}

// Tests multiplication with addition. in: a, b, c. out: a b + c with two roundings, and with one.
__global__ void multiply_add_kernel(const uint32_t* in, uint32_t* out) {
  await_previous_grid();
  const float a = as_float(in[lane_id()]), b = as_float(in[32 + lane_id()]);
  const float c = as_float(in[64 + lane_id()]);
  out[lane_id()] = as_word(a * b + c);
  out[32 + lane_id()] = as_word(fmaf(a, b, c));
}

// Tests shuffles. in: word 0 is any word. out: the word of lane 5, of lane ^ 9, of lane + 3, of
// lane - 3; two words of lane ^ 16, moved as 64 bits; the word of lane ^ 2, exchanged among the
// lower 16 lanes only.
__global__ void shuffle_kernel(const uint32_t* in, uint32_t* out) {
  await_previous_grid();
  const uint32_t x = in[lane_id()];
  out[lane_id()] = shfl(x, 5);
  out[32 + lane_id()] = shfl_xor(x, 9);
  out[64 + lane_id()] = shfl_down(x, 3);
  out[96 + lane_id()] = shfl_up(x, 3);
  const uint64_t wide = shfl_xor(uint64_t{x} << 32 | ~x, 16);
  out[128 + lane_id()] = static_cast<uint32_t>(wide >> 32);
  out[160 + lane_id()] = static_cast<uint32_t>(wide);
  out[192 + lane_id()] = lane_id() < 16 ? shfl_xor(x, 2, 0x0000ffffu) : 0;
}

// Tests votes on the lowest bit of a word. in: word 0 is any word. out: ballot, any, all, and the
// ballot of lanes 16 to 31.
__global__ void vote_kernel(const uint32_t* in, uint32_t* out) {
  await_previous_grid();
  const bool odd = in[lane_id()] % 2 == 1;
  out[lane_id()] = ballot(odd);
  out[32 + lane_id()] = any(odd);
  out[64 + lane_id()] = all(odd);
  out[96 + lane_id()] = lane_id() >= 16 ? ballot(odd, 0xffff0000u) : 0;
}

// Tests atomics. in: word 0 is a small integer n. out: ten words that all lanes update:
// - 0: sum of n as f32
// - 1: sum of -n as i32
// - 2: sum of n as u32
// - 3: number of lanes modulo 5, by atomic increments
// - 4 and 5: sum of n << 20 as u64
// - 6 and 7: largest n as i32 and as u32
// - 8: 0 again, after each lane has tried to exchange the 0 with its number
// - 9: whether exactly one lane succeeded in that
__global__ void atomic_kernel(const uint32_t* in, uint32_t* out) {
  await_previous_grid();
  const uint32_t n = in[lane_id()];
  if (lane_id() < 10) out[lane_id()] = 0;
  __syncwarp();
  atomic_add(reinterpret_cast<float*>(out), static_cast<float>(n));
  atomic_add(reinterpret_cast<int32_t*>(out + 1), -static_cast<int32_t>(n));
  atomic_add(out + 2, n);
  atomic_increment(out + 3, 4);
  atomic_add(reinterpret_cast<uint64_t*>(out + 4), uint64_t{n} << 20);
  atomic_max(reinterpret_cast<int32_t*>(out + 6), static_cast<int32_t>(n));
  atomic_max(out + 7, n);
  const bool first = atomic_cas(out + 8, 0u, static_cast<uint32_t>(lane_id() + 1)) == 0;
  const uint32_t winners = ballot(first);
  if (first) atomic_exchange(out + 9, static_cast<uint32_t>((winners & (winners - 1)) == 0));
  __syncwarp();
  if (lane_id() == 0) atomic_exchange(out + 8, 0u);
}

// Tests fast approximations. in word 0: f32. out words: 2^x, 1/x, 1/sqrt(x), each to within a few
// ulp.
__global__ void approximate_kernel(const uint32_t* in, uint32_t* out) {
  await_previous_grid();
  const float x = as_float(in[lane_id()]);
  out[lane_id()] = as_word(fast_exp2(x));
  out[32 + lane_id()] = as_word(fast_rcp(x));
  out[64 + lane_id()] = as_word(fast_rsqrt(x));
}

template <auto kKernel>
void run(const Exec& exec, const uint32_t* in, uint32_t* out) {
  simt::launch(kKernel, {.grid = 1, .block = kWarpSize}, exec, in, out);
}

struct Entry {
  const char* name;
  test::RunPrimitive run;
};

constexpr Entry kEntries[] = {
    {"ldmatrix x1", run<ldmatrix_kernel<1, false>>},
    {"ldmatrix x2", run<ldmatrix_kernel<2, false>>},
    {"ldmatrix x4", run<ldmatrix_kernel<4, false>>},
    {"ldmatrix x1 transposed", run<ldmatrix_kernel<1, true>>},
    {"ldmatrix x2 transposed", run<ldmatrix_kernel<2, true>>},
    {"ldmatrix x4 transposed", run<ldmatrix_kernel<4, true>>},
    {"stmatrix x1", run<stmatrix_kernel<1, false>>},
    {"stmatrix x2", run<stmatrix_kernel<2, false>>},
    {"stmatrix x4", run<stmatrix_kernel<4, false>>},
    {"stmatrix x1 transposed", run<stmatrix_kernel<1, true>>},
    {"stmatrix x2 transposed", run<stmatrix_kernel<2, true>>},
    {"stmatrix x4 transposed", run<stmatrix_kernel<4, true>>},
    {"mma m16n8k16 bf16", run<mma_16_kernel<bf16>>},
    {"mma m16n8k16 f16", run<mma_16_kernel<f16>>},
    {"mma m16n8k8 tf32", run<mma_8_kernel<true>>},
    {"mma m16n8k8 f32", run<mma_8_kernel<false>>},
    {"cp.async 4", run<cp_async_kernel<4>>},
    {"cp.async 8", run<cp_async_kernel<8>>},
    {"cp.async 16", run<cp_async_kernel<16>>},
    {"narrow", run<narrow_kernel>},
    {"widen", run<widen_kernel>},
    {"multiply and add", run<multiply_add_kernel>},
    {"shuffle", run<shuffle_kernel>},
    {"vote", run<vote_kernel>},
    {"atomic", run<atomic_kernel>},
    {"approximate", run<approximate_kernel>},
};

}  // namespace

test::RunPrimitive find_primitive(std::string_view name) {
  for (const Entry& entry : kEntries) {
    if (name == entry.name) return entry.run;
  }
  return nullptr;
}

}  // namespace shale::kernels::SHALE_BACKEND
