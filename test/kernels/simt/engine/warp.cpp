#include "shale/kernels/simt/simt.h"

#include <numeric>

#include "shale/test/support/catch.h"
#include "shale/test/support/emulator.h"

namespace shale::kernels::emu {
namespace {

template <typename T>
__global__ void shuffle_kernel(const T* in, T* xors, T* downs, T* ups, T* rotated) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % kWarpSize;
  xors[i] = shfl_xor(in[i], 5);
  downs[i] = shfl_down(in[i], 3);
  ups[i] = shfl_up(in[i], 3);
  rotated[i] = shfl(in[i], (lane + 1) % kWarpSize);
}

// The two halves of a warp vote separately.
__global__ void vote_kernel(uint32_t* ballots, int* anys, int* alls) {
  const int lane = threadIdx.x % kWarpSize;
  const uint32_t half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  if (lane < 16) {
    ballots[threadIdx.x] = ballot(lane % 2 == 0, half);
    anys[threadIdx.x] = any(false, half);
    alls[threadIdx.x] = all(true, half);
  } else {
    ballots[threadIdx.x] = ballot(lane % 4 == 0, half);
    anys[threadIdx.x] = any(lane == 31, half);
    alls[threadIdx.x] = all(lane != 31, half);
  }
}

template <typename T>
__global__ void reduce_kernel(const T* in, T* warp_sums, T* quad_max, T* block_sums,
                              T* block_maxs) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  warp_sums[i] = warp_sum(in[i]);
  quad_max[i] = warp_max<4>(in[i]);
  block_sums[i] = block_sum(in[i]);
  block_maxs[i] = block_max(in[i]);
}

// Each lane stores a value for its neighbour; only __syncwarp is between the store and the read.
__global__ void exchange_kernel(int* out) {
  struct Values {
    int of[64];
  };
  int* values = shared<Values>().of;
  const int lane = threadIdx.x % kWarpSize, base = threadIdx.x - lane;
  for (int round = 0; round < 3; ++round) {
    values[threadIdx.x] = 100 * round + threadIdx.x;
    __syncwarp();
    out[threadIdx.x] = values[base + (lane + 1) % kWarpSize];
    __syncwarp();
  }
}

}  // namespace
}  // namespace shale::kernels::emu

namespace shale {
namespace {

using namespace kernels::emu;
using test::Emulator;

template <typename T>
std::vector<T> counted(size_t n) {
  std::vector<T> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<T>(3 * i % 101) - T(20);
  return values;
}

}  // namespace

TEMPLATE_TEST_CASE("shuffles move values between lanes", "[kernels][emulator]", int, float, double,
                   int64_t) {
  constexpr int kBlocks = 2, kThreads = 96, kCount = kBlocks * kThreads;
  const auto in = counted<TestType>(kCount);
  for (const auto& options : test::emulator_orders()) {
    std::vector<TestType> xors(kCount), downs(kCount), ups(kCount), rotated(kCount);
    Emulator emulator(options);
    simt::launch(shuffle_kernel<TestType>, {.grid = kBlocks, .block = kThreads}, emulator.exec(),
                 in.data(), xors.data(), downs.data(), ups.data(), rotated.data());
    emulator.finish();
    int wrong = 0;
    for (int i = 0; i < kCount; ++i) {
      const int lane = i % 32, base = i - lane;
      const auto at = [&](int source) { return in[size_t(base + source)]; };
      wrong += xors[size_t(i)] != at(lane ^ 5);
      wrong += downs[size_t(i)] != at(lane + 3 < 32 ? lane + 3 : lane);
      wrong += ups[size_t(i)] != at(lane >= 3 ? lane - 3 : lane);
      wrong += rotated[size_t(i)] != at((lane + 1) % 32);
    }
    CAPTURE(test::describe(options));
    CHECK(wrong == 0);
  }
}

TEST_CASE("votes count the lanes of their mask", "[kernels][emulator]") {
  for (const auto& options : test::emulator_orders()) {
    std::vector<uint32_t> ballots(64);
    std::vector<int> anys(64), alls(64);
    Emulator emulator(options);
    simt::launch(vote_kernel, {.grid = 1, .block = 64}, emulator.exec(), ballots.data(),
                 anys.data(), alls.data());
    emulator.finish();
    for (size_t i = 0; i < 64; ++i) {
      const bool low = i % 32 < 16;
      REQUIRE(ballots[i] == (low ? 0x00005555u : 0x11110000u));
      REQUIRE(anys[i] == (low ? 0 : 1));
      REQUIRE(alls[i] == (low ? 1 : 0));
    }
  }
}

TEMPLATE_TEST_CASE("reductions give every thread the result", "[kernels][emulator]", int, float,
                   double) {
  const int threads = GENERATE(32, 96, 256, 1024);
  constexpr int kBlocks = 2;
  const auto in = counted<TestType>(size_t(kBlocks * threads));
  for (const auto& options : test::emulator_orders()) {
    std::vector<TestType> warp_sums(in.size()), quad_max(in.size()), block_sums(in.size()),
        block_maxs(in.size());
    Emulator emulator(options);
    simt::launch(reduce_kernel<TestType>, {.grid = kBlocks, .block = threads}, emulator.exec(),
                 in.data(), warp_sums.data(), quad_max.data(), block_sums.data(),
                 block_maxs.data());
    emulator.finish();
    int wrong = 0;
    const auto from = [&](size_t index) { return in.begin() + static_cast<ptrdiff_t>(index); };
    for (size_t i = 0; i < in.size(); ++i) {
      const size_t warp = i / 32 * 32, quad = i / 4 * 4;
      const size_t block = i / size_t(threads) * size_t(threads);
      const auto end = from(block + size_t(threads));
      // Values are small integers, so every order of addition gives the same result.
      wrong += warp_sums[i] != std::accumulate(from(warp), from(warp + 32), TestType(0));
      wrong += quad_max[i] != *std::max_element(from(quad), from(quad + 4));
      wrong += block_sums[i] != std::accumulate(from(block), end, TestType(0));
      wrong += block_maxs[i] != *std::max_element(from(block), end);
    }
    CAPTURE(test::describe(options), threads);
    CHECK(wrong == 0);
  }
}

TEST_CASE("__syncwarp orders what lanes write to shared memory", "[kernels][emulator]") {
  for (const auto& options : test::emulator_orders()) {
    std::vector<int> out(64);
    Emulator emulator(options);
    simt::launch(exchange_kernel, {.grid = 1, .block = 64}, emulator.exec(), out.data());
    emulator.finish();
    for (int i = 0; i < 64; ++i) REQUIRE(out[size_t(i)] == 200 + i / 32 * 32 + (i + 1) % 32);
  }
}

}  // namespace shale
