#include "shale/kernels/embedding.h"

#include <initializer_list>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/embedding/sort_ids.h"
#include "shale/kernels/cuda/run.h"
#include "shale/kernels/simt/simt.h"

// Forward: a warp owns a row of y; table and position rows are read once, y is written once.
// Backward: ids are sorted stably first (sort_ids.h). Then a warp owns some columns of one row of
// the gradient and adds up the rows of dy that belong to it, in order. dy is read once; gradient
// rows that an id selects are written once (all rows without accumulate).
//
// B, T, C: batch, positions of a sample, width; V: rows of the table.

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kWarps = 4;  // warps per block
constexpr int kThreads = kWarps * kWarpSize;

// ---- Forward ----

template <typename T>
struct EmbeddingFwd {
  const int32_t* ids;
  const T* table;
  const T* positions;  // row of the first position, or null
  T* y;
  int64_t rows, length, C;
  int64_t first_row, V;  // rows of this shard of the table
  int64_t whole_rows;    // rows of the whole table
  bool is_part;
};

template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads, 8) embedding_fwd_kernel(EmbeddingFwd<T> a) {
  await_previous_grid();
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize;
  if (row >= a.rows) return;
  const int64_t id = a.ids[row];
  // The GPU cannot report an id out of range. Its row becomes NaN, which makes the loss NaN.
  const bool valid = id >= 0 && id < a.whole_rows;
  const int64_t own = id - a.first_row;
  const bool is_here = own >= 0 && own < a.V;
  const T* from = a.table + (is_here ? own : 0) * a.C;
  const T* position = a.positions == nullptr ? nullptr : a.positions + row % a.length * a.C;
#pragma unroll 4
  for (int64_t c = threadIdx.x % kWarpSize * kCount; c < a.C; c += kWarpSize * kCount) {
    Floats<kCount> values = load_floats<kCount>(from + c);
    if (a.is_part) {  // a sharded table: adds 0, so that -0 becomes 0 as in the sum of all shards
#pragma unroll
      for (int i = 0; i < kCount; ++i) values.at[i] = is_here ? values.at[i] + 0.f : 0.f;
    }
    if (position != nullptr) {
      const Floats<kCount> added = load_floats<kCount>(position + c);
#pragma unroll
      for (int i = 0; i < kCount; ++i) values.at[i] += added.at[i];
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) values.at[i] = valid ? values.at[i] : NAN;
    store_floats(a.y + row * a.C + c, values);
  }
}

// ---- Backward ----

// Gradient elements per access, of kCount that a thread has: as many as fit 16 bytes.
template <int kCount, typename TGrad>
constexpr int kGradWord = kCount < kPackSize<TGrad> ? kCount : kPackSize<TGrad>;

template <int kCount, typename TGrad>
__device__ __forceinline__ Floats<kCount> load_grad(const TGrad* p) {
  constexpr int kWord = kGradWord<kCount, TGrad>;
  Floats<kCount> values;
#pragma unroll
  for (int i = 0; i < kCount; i += kWord) {
    const Floats<kWord> word = load_floats<kWord>(p + i);
#pragma unroll
    for (int k = 0; k < kWord; ++k) values.at[i + k] = word.at[k];
  }
  return values;
}
template <int kCount, typename TGrad>
__device__ __forceinline__ void store_grad(TGrad* p, const Floats<kCount>& values) {
  constexpr int kWord = kGradWord<kCount, TGrad>;
#pragma unroll
  for (int i = 0; i < kCount; i += kWord) {
    Floats<kWord> word;
#pragma unroll
    for (int k = 0; k < kWord; ++k) word.at[k] = values.at[i + k];
    store_floats(p + i, word);
  }
}

// Arguments for summing rows of dy into rows of a gradient.
template <typename T, typename TGrad>
struct RowSum {
  const T* dy;
  TGrad* out;  // [rows, C]: the gradient
  int64_t rows, C;
  bool accumulate;
};

// The row of the gradient that this thread's warp owns, and the first column in it.
struct OwnColumns {
  int64_t row, c;
};

template <int kCount>
__device__ __forceinline__ OwnColumns own_columns(int64_t C) {
  const int64_t chunks = ceil_div(C, kWarpSize * kCount);
  const int64_t warp = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize;
  const int lane = threadIdx.x % kWarpSize;
  return {warp / chunks, (warp % chunks * kWarpSize + lane) * kCount};
}

template <int kCount>
int64_t blocks_for(int64_t rows, int64_t C) {
  return ceil_div(rows * ceil_div(C, kWarpSize * kCount), kWarps);
}

// Computes out[row] (+)= dy[row_of(0)] + dy[row_of(1)] + ... for `count` rows, rounded once.
template <int kCount, typename T, typename TGrad, class RowOf>
__device__ __forceinline__ void sum_rows(const RowSum<T, TGrad>& a, const OwnColumns& own,
                                         int64_t count, const RowOf& row_of) {
  if (count == 0 && a.accumulate) return;
  TGrad* out = a.out + own.row * a.C + own.c;
  Floats<kCount> sum{};
  if (a.accumulate) sum = load_grad<kCount>(out);
#pragma unroll 4
  for (int64_t k = 0; k < count; ++k) {
    const Floats<kCount> values = load_floats<kCount>(a.dy + row_of(k) * a.C + own.c);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum.at[i] += values.at[i];
  }
  store_grad(out, sum);
}

template <typename T, typename TGrad, int kCount>
__global__ void __launch_bounds__(kThreads, 8)
    d_table_kernel(RowSum<T, TGrad> a, SortedIds sorted) {
  await_previous_grid();
  const OwnColumns own = own_columns<kCount>(a.C);
  if (own.row >= a.rows || own.c >= a.C) return;
  const int32_t begin = sorted.offsets[own.row], end = sorted.offsets[own.row + 1];
  sum_rows<kCount>(a, own, end - begin,
                   [&](int64_t k) { return int64_t{sorted.order[begin + k]}; });
}

template <typename T, typename TGrad, int kCount>
__global__ void __launch_bounds__(kThreads, 8)
    d_positions_kernel(RowSum<T, TGrad> a, int64_t first_position, int64_t B, int64_t length) {
  await_previous_grid();
  const OwnColumns own = own_columns<kCount>(a.C);
  if (own.row >= a.rows || own.c >= a.C) return;
  const int64_t t = own.row - first_position;
  const bool used = t >= 0 && t < length;
  sum_rows<kCount>(a, own, used ? B : 0, [&](int64_t b) { return b * length + t; });
}

// ---- Host ----

// Calls fn.template operator()<kCount>() with the largest pack kCount that C and the addresses
// allow.
template <typename T, class Fn>
void dispatch_columns(int64_t C, std::initializer_list<const void*> operands, const Fn& fn) {
  bool packed = C % kPackSize<T> == 0;
  for (const void* operand : operands) packed &= reinterpret_cast<uintptr_t>(operand) % 16 == 0;
  if (packed) {
    fn.template operator()<kPackSize<T>>();
  } else {
    fn.template operator()<1>();
  }
}

template <typename T>
void fwd_typed(const Exec& exec, const EmbeddingFwdArgs& args) {
  const int64_t C = args.table.size(1);
  const T* positions = nullptr;
  if (args.positions.defined()) positions = args.positions.as<T>() + args.first_position * C;
  const EmbeddingFwd<T> a = {
      .ids = args.ids.as<int32_t>(),
      .table = args.table.as<T>(),
      .positions = positions,
      .y = args.y.as<T>(),
      .rows = args.ids.numel(),
      .length = args.ids.size(1),
      .C = C,
      .first_row = args.first_row,
      .V = args.table.size(0),
      .whole_rows = args.whole_rows > 0 ? args.whole_rows : args.table.size(0),
      .is_part = args.whole_rows > 0};
  dispatch_columns<T>(C, {a.table, a.positions, a.y}, [&]<int kCount>() {
    simt::launch(embedding_fwd_kernel<T, kCount>,
                 {.grid = ceil_div(a.rows, kWarps), .block = kThreads}, exec, a);
  });
}

template <typename T, typename TGrad>
void d_table_typed(const Exec& exec, const EmbeddingBwdArgs& args) {
  const RowSum<T, TGrad> a = {.dy = args.dy.as<T>(),
                              .out = args.d_table.as<TGrad>(),
                              .rows = args.d_table.size(0),
                              .C = args.dy.size(2),
                              .accumulate = args.accumulate_table};
  const SortedIds sorted = sort_ids("embedding_bwd", exec, args.ids, args.first_row, a.rows);
  dispatch_columns<T>(a.C, {a.dy, a.out}, [&]<int kCount>() {
    simt::launch(d_table_kernel<T, TGrad, kCount>,
                 {.grid = blocks_for<kCount>(a.rows, a.C), .block = kThreads}, exec, a, sorted);
  });
}

template <typename T, typename TGrad>
void d_positions_typed(const Exec& exec, const EmbeddingBwdArgs& args) {
  const RowSum<T, TGrad> a = {.dy = args.dy.as<T>(),
                              .out = args.d_positions.as<TGrad>(),
                              .rows = args.d_positions.size(0),
                              .C = args.dy.size(2),
                              .accumulate = args.accumulate_positions};
  dispatch_columns<T>(a.C, {a.dy, a.out}, [&]<int kCount>() {
    simt::launch(d_positions_kernel<T, TGrad, kCount>,
                 {.grid = blocks_for<kCount>(a.rows, a.C), .block = kThreads}, exec, a,
                 args.first_position, args.ids.size(0), args.ids.size(1));
  });
}

template <typename T>
void bwd_typed(const Exec& exec, const EmbeddingBwdArgs& args) {
  if (args.d_table.defined() && args.d_table.numel() > 0) {
    dispatch_gradient(args.d_table.dtype,
                      [&]<typename TGrad>() { d_table_typed<T, TGrad>(exec, args); });
  }
  if (args.d_positions.defined() && args.d_positions.numel() > 0) {
    dispatch_gradient(args.d_positions.dtype,
                      [&]<typename TGrad>() { d_positions_typed<T, TGrad>(exec, args); });
  }
}

}  // namespace

template <>
void run(const Exec& exec, const EmbeddingFwdArgs& args) {
  if (args.y.numel() == 0) return;
  dispatch_float(args.table.dtype, [&]<typename T>() { fwd_typed<T>(exec, args); });
}

template <>
void run(const Exec& exec, const EmbeddingBwdArgs& args) {
  dispatch_float(args.dy.dtype, [&]<typename T>() { bwd_typed<T>(exec, args); });
}

}  // namespace shale::kernels::SHALE_BACKEND
