#include "shale/kernels/check.h"
#include "shale/kernels/cuda/norm/norm_rows.cuh"
#include "shale/kernels/cuda/reduce/column_blocks.cuh"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/norm.h"

// Every large tensor is read or written once: dy, s, d_sum and dx. The sums over rows (dgain,
// dbias) stay in registers while a warp or block processes its rows; a second kernel adds the sums
// of all blocks. For rows too wide for registers the sums are in shared memory, like the row
// itself, or in global memory if there is no space. Rows that are not aligned to packs, or too wide
// for shared memory, are read again for each pass, from the caches.

namespace shale::kernels::SHALE_BACKEND {
namespace {

template <typename T>
struct NormBwd {
  RowOperands<T, 3> in;  // dy; s: forward's input, or its sum with the residual; d_sum: added to dx
  const T* gain;
  const float* mean;  // null for RMSNorm
  const float* rstd;
  T* dx;
  float* partial;  // [blocks, 2, cols]: dgain and dbias of each block; or null
};

template <typename T>
__device__ __forceinline__ RowStats stats_of(const NormBwd<T>& a, int64_t row) {
  if (row >= a.in.rows) return {};
  return {a.mean != nullptr ? a.mean[row] : 0.f, a.rstd[row]};
}

// Means over a row's columns of g and of g n, where g = dy gain and n = (s - mean) rstd.
struct RowMeans {
  float g, gn;
};

// RMSNorm does not subtract the mean, so its mean of g is 0.
template <bool kCentered>
__device__ __forceinline__ RowMeans row_means(const float (&sums)[2], int cols) {
  const auto count = static_cast<float>(cols);
  return {kCentered ? sums[0] / count : 0.f, sums[1] / count};
}

// Computes dx = rstd (g - mean(g) - n mean(g n)) + d_sum, with g and n of RowMeans.
template <int kCount>
__device__ __forceinline__ Floats<kCount> dx_of(const Floats<kCount>& dy, const Floats<kCount>& s,
                                                const Floats<kCount>& gain,
                                                const Floats<kCount>& d_sum, const RowStats& stats,
                                                const RowMeans& means) {
  Floats<kCount> dx;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float normed = (s.at[i] - stats.mean) * stats.rstd;
    const float inner = fmaf(-normed, means.gn, dy.at[i] * gain.at[i] - means.g);
    dx.at[i] = fmaf(stats.rstd, inner, d_sum.at[i]);
  }
  return dx;
}

template <int kCount>
struct ColumnSums {
  Floats<kCount> dgain, dbias;
};

// Adds dy and s of some columns to the row's sums of g and g n, and to the column sums of dgain and
// dbias.
template <int kCount>
__device__ __forceinline__ void add_columns(const Floats<kCount>& dy, const Floats<kCount>& s,
                                            const Floats<kCount>& gain, const RowStats& stats,
                                            float (&sums)[2], ColumnSums<kCount>& columns) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float normed = (s.at[i] - stats.mean) * stats.rstd, g = dy.at[i] * gain.at[i];
    sums[0] += g;
    sums[1] = fmaf(g, normed, sums[1]);
    columns.dgain.at[i] = fmaf(dy.at[i], normed, columns.dgain.at[i]);
    columns.dbias.at[i] += dy.at[i];
  }
}

// Adds the sums of a block's warps, which have processed different rows, in the order of the warps.
template <typename T, int kPacks>
__device__ __forceinline__ void write_sums_of_warps(
    const NormBwd<T>& a, const ColumnSums<kPackSize<T>> (&columns)[kPacks]) {
  auto* sums = dynamic_shared<float>();  // [2, cols], in the memory of the row queue
  const RowThreads<true> threads;
  const int cols = a.in.cols, warps = static_cast<int>(blockDim.x) / kWarpSize;
  for (int warp = 0; warp < warps; ++warp) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) / kWarpSize != warp) continue;
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int c = threads.template column<T>(k);
      if (c >= cols) continue;
#pragma unroll
      for (int i = 0; i < kPackSize<T>; ++i) {
        float &dgain = sums[c + i], &dbias = sums[cols + c + i];
        dgain = warp == 0 ? columns[k].dgain.at[i] : dgain + columns[k].dgain.at[i];
        dbias = warp == 0 ? columns[k].dbias.at[i] : dbias + columns[k].dbias.at[i];
      }
    }
  }
  __syncthreads();
  float* partial = a.partial + int64_t{blockIdx.x} * 2 * cols;
  for (int c = threadIdx.x; c < 2 * cols; c += static_cast<int>(blockDim.x)) partial[c] = sums[c];
}

template <int kCount>
__device__ __forceinline__ Pack<float> pack_at(const Floats<kCount>& floats, int first) {
  return {{floats.at[first], floats.at[first + 1], floats.at[first + 2], floats.at[first + 3]}};
}

template <typename T, int kPacks>
__device__ __forceinline__ void write_sums_of_block(
    const NormBwd<T>& a, const ColumnSums<kPackSize<T>> (&columns)[kPacks]) {
  const RowThreads<false> threads;
  float* partial = a.partial + int64_t{blockIdx.x} * 2 * a.in.cols;
#pragma unroll
  for (int k = 0; k < kPacks; ++k) {
    const int c = threads.template column<T>(k);
    if (c >= a.in.cols) continue;
#pragma unroll
    for (int i = 0; i < kPackSize<T>; i += kPackSize<float>) {
      store_pack(partial + c + i, pack_at(columns[k].dgain, i));
      store_pack(partial + a.in.cols + c + i, pack_at(columns[k].dbias, i));
    }
  }
}

// Threads per multiprocessor that the grid is sized for: their registers hold the column sums.
template <bool kWarpPerRow>
constexpr int kThreadsOfProcessor = kWarpPerRow ? 3 * kWarpThreads : kMaxRowThreads;

template <typename T, int kPacks, bool kWarpPerRow, bool kCentered>
__global__ void __launch_bounds__(kWarpPerRow ? kWarpThreads : kMaxRowThreads,
                                  kWarpPerRow ? kThreadsOfProcessor<true> / kWarpThreads : 1)
    norm_bwd_kernel(NormBwd<T> a) {
  await_previous_grid();
  const RowThreads<kWarpPerRow> threads;
  const int cols = a.in.cols;
  // With more packs the column sums fill the registers, so that the row's packs are read again from
  // the queue, and gains from the caches.
  constexpr bool kKeeps = kPacks <= kKeptPacks;
  Pack<T> gains[kKeeps ? kPacks : 1] = {};
  ColumnSums<kPackSize<T>> columns[kPacks] = {};
  if constexpr (kKeeps) {
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int c = threads.template column<T>(k);
      if (c < cols) gains[k] = load_pack(a.gain + c);
    }
  }
  const auto gain = [&](int k) {
    if constexpr (kKeeps) return to_floats(gains[k]);
    return to_floats(load_pack(a.gain + opaque(threads.template column<T>(k))));
  };
  RowQueue<T, kPacks, kWarpPerRow, 3> queue(a.in, threads);
  RowStats stats = stats_of(a, threads.first);
  int turn = 0;
  for (int64_t row = threads.first; row < a.in.rows; row += threads.stride) {
    queue.wait(row);
    const RowStats next = stats_of(a, row + threads.stride);
    Pack<T> kept[2][kKeeps ? kPacks : 1] = {};
    float sums[2] = {0.f, 0.f};
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      if (threads.template column<T>(k) >= cols) continue;
      const Pack<T> dy = queue.pack(0, k), s = queue.pack(1, k);
      if constexpr (kKeeps) kept[0][k] = dy, kept[1][k] = s;
      add_columns(to_floats(dy), to_floats(s), gain(k), stats, sums, columns[k]);
    }
    row_sums<kWarpPerRow>(sums, turn);
    turn ^= 1;
    const RowMeans means = row_means<kCentered>(sums, cols);
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const int c = threads.template column<T>(k);
      if (c >= cols) continue;
      Floats<kPackSize<T>> d_sum{};
      if (a.in.at[2] != nullptr) d_sum = to_floats(queue.pack(2, k));
      const Pack<T> dy = kKeeps ? kept[0][kKeeps ? k : 0] : queue.pack(0, k);
      const Pack<T> s = kKeeps ? kept[1][kKeeps ? k : 0] : queue.pack(1, k);
      store_floats(a.dx + row * cols + c,
                   dx_of(to_floats(dy), to_floats(s), gain(k), d_sum, stats, means));
    }
    queue.taken();
    stats = next;
  }
  cp_async_wait<0>();
  if (a.partial == nullptr) return;
  if constexpr (kWarpPerRow) {
    write_sums_of_warps(a, columns);
  } else {
    write_sums_of_block(a, columns);
  }
}

// Place of a row and of the column sums in the kernel for wide rows.
enum class Room {
  kNone,  // row and column sums in global memory; any width and alignment; the row is read twice
  kRow,   // the row, of whole packs, in shared memory
  kSums,  // the row and the column sums in shared memory
};

constexpr int threads_with(Room room) {
  return room == Room::kNone ? kGeneralThreads : kMaxRowThreads;
}
template <typename T>
constexpr int64_t bytes_with(Room room, int64_t cols) {
  if (room == Room::kNone) return 0;
  const int64_t row = 2 * cols * int64_t{sizeof(T)};
  return room == Room::kSums ? row + 2 * cols * int64_t{sizeof(float)} : row;
}

// Loads the sums of neighbouring columns, in packs if kCount is above 1.
template <int kCount>
__device__ __forceinline__ Floats<kCount> load_sums(const float* sums) {
  if constexpr (kCount == 1) {
    return load_floats<1>(sums);
  } else {
    Floats<kCount> loaded;
#pragma unroll
    for (int i = 0; i < kCount; i += kPackSize<float>) {
      const Pack<float> pack = load_pack(sums + i);
#pragma unroll
      for (int j = 0; j < kPackSize<float>; ++j) loaded.at[i + j] = pack.at[j];
    }
    return loaded;
  }
}
template <bool kShared, int kCount>
__device__ __forceinline__ void store_sums(float* sums, const Floats<kCount>& floats) {
  if constexpr (kCount == 1) {
    store_floats(sums, floats);
  } else {
#pragma unroll
    for (int i = 0; i < kCount; i += kPackSize<float>) {
      if constexpr (kShared) {
        store_shared_pack(sums + i, pack_at(floats, i));
      } else {
        store_pack(sums + i, pack_at(floats, i));
      }
    }
  }
}

// Kernel for wide rows. Row r belongs to block r mod gridDim.x. Each column belongs to one thread.
template <typename T, Room kRoom, bool kCentered>
__global__ void __launch_bounds__(threads_with(kRoom), 1) norm_bwd_block_kernel(NormBwd<T> a) {
  await_previous_grid();
  constexpr bool kWide = kRoom != Room::kNone, kSumsShared = kRoom == Room::kSums;
  constexpr int kCount = kWide ? kPackSize<T> : 1, kStep = threads_with(kRoom) * kCount;
  const int cols = a.in.cols, first = static_cast<int>(threadIdx.x) * kCount;
  T* const kept = dynamic_shared<T>();  // the row's dy, then its s
  float* partial = a.partial;           // this block's sums for dgain, dbias
  if (partial != nullptr) partial += int64_t{blockIdx.x} * 2 * cols;
  float* sums_of = partial;
  if constexpr (kSumsShared) sums_of = reinterpret_cast<float*>(kept + 2 * cols);
  int turn = 0;
  for (int64_t row = blockIdx.x; row < a.in.rows; row += gridDim.x) {
    const int64_t at = row * cols;
    const T *dy = a.in.at[0] + at, *s = a.in.at[1] + at;
    const RowStats stats = stats_of(a, row);
    float sums[2] = {0.f, 0.f};
#pragma unroll 2
    for (int c = first; c < cols; c += kStep) {
      const Pack<T, kCount> dy_pack = load_pack<kCount>(dy + c), s_pack = load_pack<kCount>(s + c);
      if constexpr (kWide) {
        store_shared_pack(kept + c, dy_pack);
        store_shared_pack(kept + cols + c, s_pack);
      }
      ColumnSums<kCount> columns{};
      if (partial != nullptr && row >= gridDim.x) {
        columns = {load_sums<kCount>(sums_of + c), load_sums<kCount>(sums_of + cols + c)};
      }
      add_columns(to_floats(dy_pack), to_floats(s_pack), load_floats<kCount>(a.gain + c), stats,
                  sums, columns);
      if (partial != nullptr) {
        store_sums<kSumsShared>(sums_of + c, columns.dgain);
        store_sums<kSumsShared>(sums_of + cols + c, columns.dbias);
      }
    }
    row_sums<false>(sums, turn);
    turn ^= 1;
    const RowMeans means = row_means<kCentered>(sums, cols);
    if constexpr (kWide) dy = kept, s = kept + cols;
    for (int c = first; c < cols; c += kStep) {
      Floats<kCount> added{};
      if (a.in.at[2] != nullptr) added = load_floats<kCount>(a.in.at[2] + at + c);
      store_floats(a.dx + at + c,
                   dx_of(load_floats<kCount>(dy + c), load_floats<kCount>(s + c),
                         load_floats<kCount>(a.gain + c), added, stats, means));
    }
  }
  if constexpr (kSumsShared) {  // kSums is only used if sums are requested
    for (int c = first; c < cols; c += kStep) {
      store_sums<false>(partial + c, load_sums<kCount>(sums_of + c));
      store_sums<false>(partial + cols + c, load_sums<kCount>(sums_of + cols + c));
    }
  }
}

// Returns the number of blocks that process all rows: as many as run concurrently, but at most one
// per four rows, because each block writes two rows of sums.
template <bool kWarpPerRow>
int64_t blocks_for(const Exec& exec, int64_t rows, int64_t threads) {
  const int64_t rows_of_block = kWarpPerRow ? threads / kWarpSize : 1;
  const int64_t resident =
      multiprocessors(exec) * std::clamp<int64_t>(kThreadsOfProcessor<kWarpPerRow> / threads, 1, 4);
  return std::min(resident, ceil_div(rows, 4 * rows_of_block));
}

// Launches the kernel and returns its number of blocks. Sets a.partial, if the sums are requested.
template <typename T, bool kCentered>
int64_t launch_rows(const Exec& exec, NormBwd<T>& a, bool want_sums) {
  constexpr const char* kOp = kCentered ? "layer_norm_bwd" : "rms_norm_bwd";
  int64_t blocks = 0;
  const auto reserve = [&](int64_t count) {
    blocks = count;
    if (want_sums) a.partial = scratch<float>(kOp, exec, blocks * 2 * a.in.cols);
  };
  const auto launch = [&]<int kPacks, bool kWarpPerRow>(int64_t threads) {
    reserve(blocks_for<kWarpPerRow>(exec, a.in.rows, threads));
    int64_t bytes = row_queue_bytes<kPacks, 3>(threads);
    if (kWarpPerRow) bytes = std::max<int64_t>(bytes, 2 * a.in.cols * int64_t{sizeof(float)});
    simt::launch(norm_bwd_kernel<T, kPacks, kWarpPerRow, kCentered>,
                 {.grid = blocks, .block = threads, .smem_bytes = static_cast<size_t>(bytes)}, exec,
                 a);
  };
  const bool packed =
      rows_are_packed<T>(a.in.cols, {a.in.at[0], a.in.at[1], a.in.at[2], a.gain, a.dx});
  if (packed && with_row_mapping<3>(exec, a.in.cols / kPackSize<T>, launch)) return blocks;
  const auto launch_blocks = [&]<Room kRoom>() {
    constexpr int kThreads = threads_with(kRoom);
    reserve(blocks_for<false>(exec, a.in.rows, kThreads));
    simt::launch(norm_bwd_block_kernel<T, kRoom, kCentered>,
                 {.grid = blocks,
                  .block = kThreads,
                  .smem_bytes = static_cast<size_t>(bytes_with<T>(kRoom, a.in.cols))},
                 exec, a);
  };
  const auto has = [&](Room room) {
    return packed && block_has_room(exec, bytes_with<T>(room, a.in.cols));
  };
  if (want_sums && has(Room::kSums)) {
    launch_blocks.template operator()<Room::kSums>();
  } else if (has(Room::kRow)) {
    launch_blocks.template operator()<Room::kRow>();
  } else {
    launch_blocks.template operator()<Room::kNone>();
  }
  return blocks;
}

template <typename T, bool kCentered>
void launch_bwd(const Exec& exec, NormBwd<T> a, const ColumnSumTarget& dgain,
                const ColumnSumTarget& dbias) {
  const bool want_sums = dgain.out != nullptr || dbias.out != nullptr;
  const int64_t blocks = a.in.rows > 0 ? launch_rows<T, kCentered>(exec, a, want_sums) : 0;
  if (!want_sums) return;
  combine_blocks(exec, {.partial = a.partial,
                        .blocks = blocks,
                        .vectors = 2,
                        .cols = a.in.cols,
                        .targets = {dgain, dbias}});
}

}  // namespace

template <>
void run(const Exec& exec, const LayerNormBwdArgs& args) {
  dispatch_float(args.dy.dtype, [&]<typename T>() {
    launch_bwd<T, true>(exec,
                        {.in = {{args.dy.as<T>(), args.s.as<T>(), data_of<T>(args.d_sum)},
                                args.dy.rows(),
                                static_cast<int>(args.dy.cols())},
                         .gain = args.gain.as<T>(),
                         .mean = args.mean.as<float>(),
                         .rstd = args.rstd.as<float>(),
                         .dx = args.dx.as<T>(),
                         .partial = nullptr},
                        column_sum_target(args.dgain, args.accumulate_dgain),
                        column_sum_target(args.dbias, args.accumulate_dbias));
  });
}

template <>
void run(const Exec& exec, const RmsNormBwdArgs& args) {
  dispatch_float(args.dy.dtype, [&]<typename T>() {
    launch_bwd<T, false>(exec,
                         {.in = {{args.dy.as<T>(), args.s.as<T>(), data_of<T>(args.d_sum)},
                                 args.dy.rows(),
                                 static_cast<int>(args.dy.cols())},
                          .gain = args.gain.as<T>(),
                          .mean = nullptr,
                          .rstd = args.rstd.as<float>(),
                          .dx = args.dx.as<T>(),
                          .partial = nullptr},
                         column_sum_target(args.dgain, args.accumulate_dgain), {});
  });
}

}  // namespace shale::kernels::SHALE_BACKEND
