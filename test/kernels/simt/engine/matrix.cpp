#include "shale/kernels/simt/simt.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"
#include "shale/test/support/numbers.h"

namespace shale::kernels::emu {
namespace {

// Computes d [16, 8] = a [16, kDepth] b + c. In shared memory, a is row-major, and b is [kDepth, 8]
// or [8, kDepth]. This code does not use the kernels' headers, so that it does not repeat their
// mistakes: it numbers elements as the PTX manual does.
template <typename T, bool kColumnMajorB>
__global__ void mma_16_kernel(const T* a, const T* b, const float* c, float* d) {
  struct Tiles {
    alignas(16) T a[16 * 16];
    alignas(16) T b[16 * 8];
  };
  Tiles& tiles = shared<Tiles>();
  const int lane = threadIdx.x;
  for (int i = lane; i < 16 * 16; i += kWarpSize) tiles.a[i] = a[i];
  for (int i = lane; i < 16 * 8; i += kWarpSize) tiles.b[i] = b[i];
  __syncwarp();
  uint32_t fragment_a[4], fragment_b[2];
  ldmatrix<4>(fragment_a, tiles.a + lane % 16 * 16 + lane / 16 * 8);
  if constexpr (kColumnMajorB) {
    ldmatrix<2>(fragment_b, tiles.b + lane % 8 * 16 + lane / 8 % 2 * 8);
  } else {
    ldmatrix<2, true>(fragment_b, tiles.b + lane % 16 * 8);
  }
  float sum[4];
  const auto row = [&](int i) { return lane / 4 + (i >= 2 ? 8 : 0); };
  const auto column = [&](int i) { return lane % 4 * 2 + (i & 1); };
  for (int i = 0; i < 4; ++i) sum[i] = c[row(i) * 8 + column(i)];
  mma_m16n8k16<T>(sum, fragment_a, fragment_b);
  for (int i = 0; i < 4; ++i) d[row(i) * 8 + column(i)] = sum[i];
}

template <bool kTF32>
__global__ void mma_8_kernel(const float* a, const float* b, const float* c, float* d) {
  const int lane = threadIdx.x, group = lane / 4, in_group = lane % 4;
  float fragment_a[4], fragment_b[2], sum[4];
  for (int i = 0; i < 4; ++i) {
    fragment_a[i] = a[(group + (i == 1 || i == 3 ? 8 : 0)) * 8 + in_group + (i >= 2 ? 4 : 0)];
    sum[i] = c[(group + (i >= 2 ? 8 : 0)) * 8 + in_group * 2 + (i & 1)];
  }
  for (int i = 0; i < 2; ++i) fragment_b[i] = b[(in_group + 4 * i) * 8 + group];
  if constexpr (kTF32) {
    uint32_t bits_a[4], bits_b[2];
    for (int i = 0; i < 4; ++i) bits_a[i] = to_tf32(fragment_a[i]);
    for (int i = 0; i < 2; ++i) bits_b[i] = to_tf32(fragment_b[i]);
    mma_m16n8k8_tf32(sum, bits_a, bits_b);
  } else {
    mma_m16n8k8_f32(sum, fragment_a, fragment_b);
  }
  for (int i = 0; i < 4; ++i) d[(group + (i >= 2 ? 8 : 0)) * 8 + in_group * 2 + (i & 1)] = sum[i];
}

// Loads kCount matrices into registers and stores them. Loading transposes them if kIn, storing if
// kOut.
template <int kCount, bool kIn, bool kOut>
__global__ void matrix_copy_kernel(const uint16_t* in, uint16_t* out) {
  struct Tiles {
    alignas(16) uint16_t in[4 * 64];
    alignas(16) uint16_t out[4 * 64];
  };
  Tiles& tiles = shared<Tiles>();
  const int lane = threadIdx.x;
  for (int i = lane; i < kCount * 64; i += kWarpSize) tiles.in[i] = in[i];
  __syncwarp();
  uint32_t registers[kCount];
  ldmatrix<kCount, kIn>(registers, tiles.in + lane * 8);
  stmatrix<kCount, kOut>(tiles.out + lane * 8, registers);
  __syncwarp();
  for (int i = lane; i < kCount * 64; i += kWarpSize) out[i] = tiles.out[i];
}

using test::Emulator;

// Operands are small integers, so that every order and width of accumulation gives the same result.
template <typename T>
struct Product {
  int depth;
  std::vector<T> a = test::rand_int<T>(16 * depth, 1, -8, 8),
                 b = test::rand_int<T>(depth * 8, 2, -8, 8);
  std::vector<float> c = test::rand_int<float>(16 * 8, 3, -100, 100);

  std::vector<float> reference() const {
    std::vector<float> d = c;
    for (int i = 0; i < 16; ++i) {
      for (int j = 0; j < 8; ++j) {
        for (int k = 0; k < depth; ++k) {
          d[size_t(i * 8 + j)] += to_f32(a[size_t(i * depth + k)]) * to_f32(b[size_t(k * 8 + j)]);
        }
      }
    }
    return d;
  }
  std::vector<T> column_major_b() const {
    std::vector<T> turned(b.size());
    for (int k = 0; k < depth; ++k) {
      for (int j = 0; j < 8; ++j) turned[size_t(j * depth + k)] = b[size_t(k * 8 + j)];
    }
    return turned;
  }
};

template <typename T, typename Kernel>
std::vector<float> run_mma(const emulator::Options& options, Kernel kernel, const Product<T>& p,
                           const std::vector<T>& b) {
  std::vector<float> d(16 * 8);
  Emulator emulator(options);
  simt::launch(kernel, {.grid = 1, .block = 32}, emulator.exec(), p.a.data(), b.data(), p.c.data(),
               d.data());
  emulator.finish();
  return d;
}

template <int kCount, bool kIn, bool kOut>
std::vector<uint16_t> copy_matrices(const std::vector<uint16_t>& in) {
  std::vector<uint16_t> out(in.size());
  Emulator emulator;
  simt::launch(matrix_copy_kernel<kCount, kIn, kOut>, {.grid = 1, .block = 32}, emulator.exec(),
               in.data(), out.data());
  emulator.finish();
  return out;
}

template <int kCount>
void check_matrix_copies() {
  std::vector<uint16_t> in(kCount * 64), turned(kCount * 64);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint16_t>(1000 + i);
  for (size_t i = 0; i < in.size(); ++i) {
    const size_t matrix = i / 64, row = i / 8 % 8, column = i % 8;
    turned[matrix * 64 + column * 8 + row] = in[i];
  }
  CHECK(copy_matrices<kCount, false, false>(in) == in);
  CHECK(copy_matrices<kCount, true, true>(in) == in);
  CHECK(copy_matrices<kCount, true, false>(in) == turned);
  CHECK(copy_matrices<kCount, false, true>(in) == turned);
}

}  // namespace

TEMPLATE_TEST_CASE("ldmatrix and mma multiply matrices", "[kernels][emulator]", bf16, f16) {
  const Product<TestType> p{16};
  for (const auto& options : test::emulator_orders()) {
    CAPTURE(test::describe(options));
    CHECK(run_mma(options, mma_16_kernel<TestType, false>, p, p.b) == p.reference());
    CHECK(run_mma(options, mma_16_kernel<TestType, true>, p, p.column_major_b()) == p.reference());
  }
}

TEST_CASE("mma in tf32 and in f32 multiplies matrices", "[kernels][emulator]") {
  Product<float> p{8};
  CHECK(run_mma({}, mma_8_kernel<true>, p, p.b) == p.reference());
  CHECK(run_mma({}, mma_8_kernel<false>, p, p.b) == p.reference());
  // tf32 has 10 mantissa bits and rounds 1 + 2^-20 to 1. f32 keeps it.
  for (float& x : p.a) x = 1 + 0x1p-20f;
  for (float& x : p.b) x = 1;
  for (float& x : p.c) x = 0;
  CHECK(run_mma({}, mma_8_kernel<true>, p, p.b)[0] == 8);
  CHECK(run_mma({}, mma_8_kernel<false>, p, p.b)[0] == 8 + 0x1p-17f);
}

TEST_CASE("ldmatrix and stmatrix are each other's inverse, transposed or not", "[kernels][emulator]") {
  check_matrix_copies<1>();
  check_matrix_copies<2>();
  check_matrix_copies<4>();
}

}  // namespace shale::kernels::emu
