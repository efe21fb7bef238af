#include "shale/kernels/simt/hopper.h"

#include "shale/test/kernels/simt/primitives90.h"

// Each kernel runs in one warpgroup. primitives90.cpp describes the words that kernels read and
// write.
namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ int thread_id() {
  return static_cast<int>(threadIdx.x);
}

struct OneBarrier {
  MBarrier full;
};

// Creates a barrier; afterwards every thread may wait for it.
__device__ __forceinline__ MBarrier& make_barrier() {
  MBarrier& full = shared<OneBarrier>().full;
  if (thread_id() == 0) {
    mbarrier_init(full, 1);
    fence_mbarrier_init();
  }
  __syncthreads();
  return full;
}

// ---- Copies ----

struct Place {
  int x, y, z, w;
};

// Tests tma_load. Loads the box at one position after the other. out: shared memory after each
// load.
template <int kDims>
__global__ void load_boxes_kernel(const __grid_constant__ TensorMap map, const Place first,
                                  const Place second, const Place third, int bytes, uint32_t* out) {
  await_previous_grid();
  MBarrier& full = make_barrier();
  auto* const words = dynamic_shared<uint32_t>();
  const int count = bytes / 4;
  for (int turn = 0; turn < 3; ++turn) {
    const Place at = turn == 0 ? first : turn == 1 ? second : third;
    if (thread_id() == 0) {
      prefetch_tensor_map(map);
      mbarrier_arrive_expect(full, bytes);
      if constexpr (kDims == 2) {
        tma_load(words, map, full, at.x, at.y);
      } else if constexpr (kDims == 3) {
        tma_load(words, map, full, at.x, at.y, at.z);
      } else {
        tma_load(words, map, full, at.x, at.y, at.z, at.w);
      }
    }
    mbarrier_wait(full, turn % 2);
    for (int i = thread_id(); i < count; i += kThreads) out[turn * count + i] = words[i];
    __syncthreads();  // all threads have read before the next box arrives
  }
}

// Tests tma_store. in: shared memory, which is stored as the box at each position.
template <int kDims>
__global__ void store_boxes_kernel(const uint32_t* in, const __grid_constant__ TensorMap map,
                                   const Place first, const Place second, int bytes) {
  await_previous_grid();
  auto* const words = dynamic_shared<uint32_t>();
  for (int i = thread_id(); i < bytes / 4; i += kThreads) words[i] = in[i];
  fence_proxy_async();
  __syncthreads();
  if (thread_id() > 0) return;
  for (int turn = 0; turn < 2; ++turn) {
    const Place at = turn == 0 ? first : second;
    if constexpr (kDims == 2) {
      tma_store(map, words, at.x, at.y);
    } else if constexpr (kDims == 3) {
      tma_store(map, words, at.x, at.y, at.z);
    } else {
      tma_store(map, words, at.x, at.y, at.z, at.w);
    }
    bulk_commit();
  }
  bulk_wait<1>();
  bulk_wait_read<0>();
}

__global__ void fill_words_kernel(uint32_t* out, int count, uint32_t value) {
  await_previous_grid();
  for (int i = thread_id(); i < count; i += kThreads) out[i] = value;
}

// Copies `in` to shared memory in two runs of bytes, and from there to `out`. If kAdd, adds to
// `out` instead.
template <bool kAdd>
__global__ void copy_runs_kernel(const uint32_t* in, uint32_t* out, int bytes) {
  await_previous_grid();
  MBarrier& full = make_barrier();
  auto* const words = dynamic_shared<uint32_t>();
  if (thread_id() > 0) return;
  const int half = bytes / 8;  // number of words in half of the data
  mbarrier_arrive_expect(full, bytes);
  bulk_load(words, in, bytes / 2, full);
  bulk_load(words + half, in + half, bytes / 2, full);
  mbarrier_wait(full, 0);
  if constexpr (kAdd) {
    bulk_add(reinterpret_cast<float*>(out), reinterpret_cast<const float*>(words), bytes);
  } else {
    bulk_store(out, words, bytes);
  }
  bulk_commit();
  bulk_wait<0>();
}

TensorMapSpec map_spec(const test::HopperBoxes& boxes, const void* data) {
  TensorMapSpec spec = {
      .data = data, .dtype = boxes.dtype, .dims = boxes.dims, .swizzle = boxes.swizzle};
  for (int d = 0; d < boxes.dims; ++d) {
    spec.sizes[d] = boxes.sizes[d];
    spec.strides[d] = boxes.strides[d];
    spec.box[d] = boxes.box[d];
  }
  return spec;
}

Place place_of(const test::HopperBoxes& boxes, int turn) {
  const auto& at = boxes.places[turn];
  return {at[0], at[1], at[2], at[3]};
}

template <int kDims>
void load_boxes(const Exec& exec, const test::HopperBoxes& boxes, const uint32_t* in,
                uint32_t* out) {
  const TensorMapSpec spec = map_spec(boxes, in);
  const auto bytes = static_cast<int>(box_bytes(spec));
  simt::launch(load_boxes_kernel<kDims>,
               {.grid = 1, .block = kThreads, .smem_bytes = static_cast<size_t>(bytes)}, exec,
               make_tensor_map(spec), place_of(boxes, 0), place_of(boxes, 1), place_of(boxes, 2),
               bytes, out);
}

template <int kDims>
void store_boxes(const Exec& exec, const test::HopperBoxes& boxes, const uint32_t* in,
                 uint32_t* out, int out_words) {
  const TensorMapSpec spec = map_spec(boxes, out);
  const auto bytes = static_cast<int>(box_bytes(spec));
  simt::launch(fill_words_kernel, {.grid = 1, .block = kThreads}, exec, out, out_words,
               test::kNotStored);
  simt::launch(store_boxes_kernel<kDims>,
               {.grid = 1, .block = kThreads, .smem_bytes = static_cast<size_t>(bytes)}, exec, in,
               make_tensor_map(spec), place_of(boxes, 0), place_of(boxes, 1), bytes);
}

// ---- wgmma ----

constexpr int kDepth = 64;      // k of the operands: four wgmma steps
constexpr int kBox = 64 * 128;  // bytes of 64 lines

// Issues one wgmma group: d (+)= a [64, 64] b [64, kColumns]. Tiles are k-major or mn-major, or a
// is in registers.
template <typename T, int kColumns, bool kARegisters, bool kAMnMajor, bool kBMnMajor>
__device__ __forceinline__ void multiply_tiles(float (&d)[kColumns / 2],
                                               const uint32_t (&a_registers)[4][4],
                                               const unsigned char* a, const unsigned char* b,
                                               bool onto) {
  wgmma_fence(d);
#pragma unroll
  for (int step = 0; step < 4; ++step) {
    const int k = 16 * step;
    const bool accumulate = onto || step > 0;
    const auto with_b = [&](auto b_tile) {
      if constexpr (kARegisters) {
        wgmma<T, kColumns>(d, a_registers[step], b_tile, accumulate);
      } else if constexpr (kAMnMajor) {
        wgmma<T, kColumns>(d, mn_major(a, k, kBox), b_tile, accumulate);
      } else {
        wgmma<T, kColumns>(d, k_major(a, k), b_tile, accumulate);
      }
    };
    if constexpr (kBMnMajor) {
      with_b(mn_major(b, k, kBox));
    } else {
      with_b(k_major(b, k));
    }
  }
  wgmma_commit();
}

// Writes d to out: register i of thread t of the warpgroup at i * 128 + t.
template <int kColumns>
__device__ __forceinline__ void write_registers(const float (&d)[kColumns / 2], float* out) {
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) out[i * kThreads + thread_id()] = d[i];
}

// Computes d = 2 a b: one group computes a b, and a second group adds it again. Both operands come
// by TMA, or a comes from a_words as registers: register i of thread t for step `step` of 16 along
// k is at (4 step + i) 128 + t.
template <typename T, int kColumns, bool kARegisters, bool kAMnMajor, bool kBMnMajor>
__global__ void wgmma_kernel(const uint32_t* a_words, const __grid_constant__ TensorMap a_map,
                             const __grid_constant__ TensorMap b_map, float* out) {
  await_previous_grid();
  constexpr int kBoxes = (kColumns + 63) / 64;
  MBarrier& full = make_barrier();
  unsigned char* const a = dynamic_shared();
  unsigned char* const b = a + kBox;
  if (thread_id() == 0) {
    constexpr int kBBytes = kBMnMajor ? kBoxes * kBox : kColumns * 128;
    mbarrier_arrive_expect(full, (kARegisters ? 0 : kBox) + kBBytes);
    if constexpr (!kARegisters) tma_load(a, a_map, full, 0, 0);
    if constexpr (kBMnMajor) {
      for (int i = 0; i < kBoxes; ++i) tma_load(b + i * kBox, b_map, full, 64 * i, 0);
    } else {
      tma_load(b, b_map, full, 0, 0);
    }
  }
  uint32_t a_registers[4][4] = {};
  if constexpr (kARegisters) {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        a_registers[step][i] = a_words[(4 * step + i) * kThreads + thread_id()];
      }
    }
  }
  mbarrier_wait(full, 0);
  float d[kColumns / 2];
  multiply_tiles<T, kColumns, kARegisters, kAMnMajor, kBMnMajor>(d, a_registers, a, b, false);
  multiply_tiles<T, kColumns, kARegisters, kAMnMajor, kBMnMajor>(d, a_registers, a, b, true);
  wgmma_wait<0>(d);
  write_registers<kColumns>(d, out);
}

// Tests tiles that threads write to shared memory. in: the bytes of two tiles [64, 64]. out: the
// registers of d = a b.
template <typename T, bool kMnMajor>
__global__ void wgmma_written_kernel(const uint32_t* in, float* out) {
  await_previous_grid();
  auto* const words = dynamic_shared<uint32_t>();
  for (int i = thread_id(); i < 2 * kBox / 4; i += kThreads) words[i] = in[i];
  fence_proxy_async();
  __syncthreads();
  const unsigned char* const a = dynamic_shared();
  const uint32_t none[4][4] = {};
  float d[32];
  multiply_tiles<T, 64, false, kMnMajor, kMnMajor>(d, none, a, a + kBox, false);
  wgmma_wait<0>(d);
  write_registers<64>(d, out);
}

// Tests two tiles [64, 128] of 8-bit operands that threads write to shared memory.
template <typename TA, typename TB>
__global__ void wgmma_bytes_kernel(const uint32_t* in, float* out) {
  await_previous_grid();
  auto* const words = dynamic_shared<uint32_t>();
  for (int i = thread_id(); i < 2 * kBox / 4; i += kThreads) words[i] = in[i];
  fence_proxy_async();
  __syncthreads();
  const unsigned char* const a = dynamic_shared();
  float d[32];
  wgmma_fence(d);
#pragma unroll
  for (int k = 0; k < 128; k += 32) {
    wgmma<TA, TB, 64>(d, k_major<1>(a, k), k_major<1>(a + kBox, k), k > 0);
  }
  wgmma_commit();
  wgmma_wait<0>(d);
  write_registers<64>(d, out);
}

template <typename TA, typename TB>
void multiply_bytes(const Exec& exec, const uint32_t* in, uint32_t* out) {
  simt::launch(wgmma_bytes_kernel<TA, TB>, {.grid = 1, .block = kThreads, .smem_bytes = 2 * kBox},
               exec, in, reinterpret_cast<float*>(out));
}

template <typename T, bool kMnMajor>
void multiply_written(const Exec& exec, const uint32_t* in, uint32_t* out) {
  simt::launch(wgmma_written_kernel<T, kMnMajor>,
               {.grid = 1, .block = kThreads, .smem_bytes = 2 * kBox}, exec, in,
               reinterpret_cast<float*>(out));
}

TensorMap operand_map(DType dtype, const uint32_t* words, int lines, int length, int box_lines) {
  return make_tensor_map({.data = words,
                          .dtype = dtype,
                          .dims = 2,
                          .sizes = {length, lines},
                          .strides = {1, length},
                          .box = {64, box_lines}});
}

// Launches a wgmma kernel. in: a [64, 64], then b [columns, 64], each transposed if it is mn-major;
// or a as its registers.
template <typename T, int kColumns, bool kARegisters, bool kAMnMajor, bool kBMnMajor>
void multiply(const Exec& exec, const uint32_t* in, uint32_t* out) {
  constexpr DType kType = std::is_same_v<T, bf16> ? DType::kBF16 : DType::kF16;
  const uint32_t* const b = in + 64 * kDepth / 2;
  const TensorMap b_map = kBMnMajor ? operand_map(kType, b, kDepth, kColumns, kDepth)
                                    : operand_map(kType, b, kColumns, kDepth, kColumns);
  simt::launch(wgmma_kernel<T, kColumns, kARegisters, kAMnMajor, kBMnMajor>,
               {.grid = 1, .block = kThreads, .smem_bytes = 5 * kBox}, exec, in,
               operand_map(kType, in, 64, 64, 64), b_map, reinterpret_cast<float*>(out));
}

template <typename T, bool kARegisters, bool kAMnMajor, bool kBMnMajor>
test::RunPrimitive product_of(int columns) {
  switch (columns) {
    case 8: return multiply<T, 8, kARegisters, kAMnMajor, kBMnMajor>;
    case 64: return multiply<T, 64, kARegisters, kAMnMajor, kBMnMajor>;
    case 72: return multiply<T, 72, kARegisters, kAMnMajor, kBMnMajor>;
    case 128: return multiply<T, 128, kARegisters, kAMnMajor, kBMnMajor>;
    case 256: return multiply<T, 256, kARegisters, kAMnMajor, kBMnMajor>;
    default: return nullptr;
  }
}

// ---- Barriers ----

struct PhaseData {
  MBarrier turn;
  alignas(16) uint32_t words[4 * test::kPhases];
};

// Runs phases of an mbarrier with 32 arrivals. In phase p, warp p % 4 writes four words. If p % 3
// is 2, a bulk copy brings the words of `in`, and the phase waits for it. Otherwise the words are
// sums of `in` and the previous phase's words. out: the words that every thread sees after the
// phase.
__global__ void phases_kernel(const uint32_t* in, uint32_t* out) {
  await_previous_grid();
  PhaseData& data = shared<PhaseData>();
  const int lane = thread_id() % kWarpSize, warp = thread_id() / kWarpSize;
  if (thread_id() == 0) {
    mbarrier_init(data.turn, kWarpSize);
    fence_mbarrier_init();
  }
  __syncthreads();
  mbarrier_wait(data.turn, 1);  // the phase before the first counts as complete
  __syncthreads();              // keeps every thread within one phase of the others
  for (int p = 0; p < test::kPhases; ++p) {
    if (warp == p % 4) {
      uint32_t* const words = data.words + 4 * p;
      const bool copies = p % 3 == 2;
      if (copies && lane == 0) {
        mbarrier_arrive_expect(data.turn, 16);
        bulk_load(words, in + 4 * p, 16, data.turn);
      } else {
        if (!copies && lane < 4) words[lane] = in[4 * p + lane] + (p > 0 ? words[lane - 4] : 0);
        mbarrier_arrive(data.turn);
      }
    }
    mbarrier_wait(data.turn, p % 2);
    out[p * kThreads + thread_id()] = data.words[4 * p + lane % 4];
    __syncthreads();
  }
}

void run_phases(const Exec& exec, const uint32_t* in, uint32_t* out) {
  simt::launch(phases_kernel, {.grid = 1, .block = kThreads}, exec, in, out);
}

constexpr int kStages = 3;

struct RoleData {
  MBarrier full[kStages], empty[kStages];
  alignas(16) uint32_t stages[kStages][kThreads];
  uint32_t sums[kThreads];
};

// Warpgroup 0 releases registers, and loads rounds of 128 words of `in` into a ring of three
// stages. Warpgroups 1 and 2 get more registers, and process the rounds alternately, by named
// barriers. out: after each round, sums = 3 sums + words.
__global__ void __launch_bounds__(3 * kThreads, 1) roles_kernel(const uint32_t* in, uint32_t* out) {
  await_previous_grid();
  RoleData& data = shared<RoleData>();
  const int thread = thread_id() % kThreads, group = thread_id() / kThreads;
  if (thread_id() == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(data.full[i], 1);
      mbarrier_init(data.empty[i], kThreads);
    }
    fence_mbarrier_init();
  }
  if (group == 0) data.sums[thread] = 0;
  __syncthreads();
  if (group == 0) {
    shrink_registers<40>();
    for (int round = 0; thread == 0 && round < test::kRounds; ++round) {
      const int stage = round % kStages, turn = round / kStages;
      mbarrier_wait(data.empty[stage], turn % 2 ^ 1);
      mbarrier_arrive_expect(data.full[stage], kThreads * 4);
      bulk_load(data.stages[stage], in + round * kThreads, kThreads * 4, data.full[stage]);
    }
  } else {
    grow_registers<232>();
    const int mine = group, other = 3 - group;            // numbers of named barriers
    if (group == 2) barrier_arrive(other, 2 * kThreads);  // warpgroup 1 begins
    for (int round = group - 1; round < test::kRounds; round += 2) {
      const int stage = round % kStages, turn = round / kStages;
      mbarrier_wait(data.full[stage], turn % 2);
      const uint32_t word = data.stages[stage][thread];
      mbarrier_arrive(data.empty[stage]);
      barrier_sync(mine, 2 * kThreads);
      data.sums[thread] = 3 * data.sums[thread] + word;
      out[round * kThreads + thread] = data.sums[thread];
      if (round + 1 < test::kRounds) barrier_arrive(other, 2 * kThreads);
    }
  }
}

void run_roles(const Exec& exec, const uint32_t* in, uint32_t* out) {
  simt::launch(roles_kernel, {.grid = 1, .block = 3 * kThreads}, exec, in, out);
}

}  // namespace

test::RunPrimitive find_hopper_primitive(std::string_view name) {
  if (name == "mbarrier phases") return run_phases;
  if (name == "roles") return run_roles;
  if (name == "wgmma k-major bf16") return multiply_written<bf16, false>;
  if (name == "wgmma mn-major bf16") return multiply_written<bf16, true>;
  if (name == "wgmma k-major fp16") return multiply_written<f16, false>;
  if (name == "wgmma mn-major fp16") return multiply_written<f16, true>;
  if (name == "wgmma e4m3 e4m3") return multiply_bytes<e4m3, e4m3>;
  if (name == "wgmma e4m3 e5m2") return multiply_bytes<e4m3, e5m2>;
  if (name == "wgmma e5m2 e4m3") return multiply_bytes<e5m2, e4m3>;
  if (name == "wgmma e5m2 e5m2") return multiply_bytes<e5m2, e5m2>;
  return nullptr;
}

void run_hopper_boxes(const Exec& exec, const test::HopperBoxes& boxes, bool store,
                      const uint32_t* in, uint32_t* out, int out_words) {
  const auto run = [&]<int kDims>() {
    if (store) return store_boxes<kDims>(exec, boxes, in, out, out_words);
    load_boxes<kDims>(exec, boxes, in, out);
  };
  switch (boxes.dims) {
    case 2: return run.template operator()<2>();
    case 3: return run.template operator()<3>();
    default: return run.template operator()<4>();
  }
}

void run_hopper_runs(const Exec& exec, bool add, const uint32_t* in, uint32_t* out, int bytes) {
  const simt::LaunchConfig config = {
      .grid = 1, .block = kThreads, .smem_bytes = static_cast<size_t>(bytes)};
  simt::launch(fill_words_kernel, {.grid = 1, .block = kThreads}, exec, out, bytes / 4,
               test::kNotStored);
  simt::launch(add ? copy_runs_kernel<true> : copy_runs_kernel<false>, config, exec, in, out,
               bytes);
}

test::RunPrimitive find_wgmma(const test::HopperProduct& p) {
  const auto of_type = [&]<typename T>() -> test::RunPrimitive {
    if (p.a_registers) {
      return p.b_mn_major ? product_of<T, true, false, true>(p.columns)
                          : product_of<T, true, false, false>(p.columns);
    }
    if (p.a_mn_major) {
      return p.b_mn_major ? product_of<T, false, true, true>(p.columns)
                          : product_of<T, false, true, false>(p.columns);
    }
    return p.b_mn_major ? product_of<T, false, false, true>(p.columns)
                        : product_of<T, false, false, false>(p.columns);
  };
  return p.dtype == DType::kBF16 ? of_type.template operator()<bf16>()
                                 : of_type.template operator()<f16>();
}

}  // namespace shale::kernels::SHALE_BACKEND
