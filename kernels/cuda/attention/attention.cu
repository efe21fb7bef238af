// Prepares attention's arguments for the main kernels (attention_fwd.cuh, attention_bwd_*.cuh,
// attention_f32.cu): copies rows that are not multiples of 16 bytes, computes backward's sums over
// rows, and rounds backward's f32 sums of dQ.

#include "shale/kernels/attention.h"

#include <algorithm>
#include <array>
#include <climits>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/attention/attention90.h"
#include "shale/kernels/cuda/attention/attention_config.h"
#include "shale/kernels/cuda/attention/attention_sequence.cuh"
#include "shale/kernels/cuda/hopper.h"
#include "shale/kernels/cuda/run.h"

namespace shale::kernels::SHALE_BACKEND {
namespace {

constexpr int kThreads = 256;

// ---- Packing rows of any alignment to dense rows of a multiple of 16 bytes ----

// Copies rows to a dense array [batch, rows, heads, row_size]. A thread copies 8 consecutive
// elements of a row; elements beyond head_size become zeros.
__global__ void __launch_bounds__(kThreads)
    attention_pack_rows_kernel(HeadView from, uint16_t* to, int64_t packs, int64_t rows, int heads,
                               int head_size) {
  await_previous_grid();
  const int64_t pack = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const int packs_of_row = (head_size + 7) / 8;
  const int column = static_cast<int>(pack % packs_of_row) * 8;
  const int64_t row = pack / packs_of_row;
  const int head = static_cast<int>(row % heads);
  const int64_t sequence_row = row / heads % rows, batch = row / heads / rows;
  const uint16_t* source = static_cast<const uint16_t*>(from.data) + batch * from.batch_stride +
                           sequence_row * from.row_stride + head * from.head_stride + column;
  Pack<uint16_t> values;
#pragma unroll
  for (int i = 0; i < 8; ++i) values.at[i] = column + i < head_size ? source[i] : uint16_t{0};
  store_pack(to + pack * 8, values);
}

// Returns whether all rows start at multiples of 16 bytes and their size is a multiple of 16 bytes.
bool is_aligned(const HeadView& view, const AttentionProblem& p, int64_t rows, int64_t heads) {
  const auto fits = [](int64_t stride, int64_t count) { return count <= 1 || stride % 8 == 0; };
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && p.head_size % 8 == 0 &&
         fits(view.batch_stride, p.batch) && fits(view.row_stride, rows) &&
         fits(view.head_stride, heads);
}

// ---- Hidden keys ----

// A thread owns one query and one key of a sequence; each sequence has `blocks` blocks. Writes
// first_keys, and end_queries unless it is null. Queries beyond a sequence's end see no key.
__global__ void __launch_bounds__(kThreads)
    attention_hidden_keys_kernel(const __grid_constant__ AttentionParams p, int blocks,
                                 int32_t* first_keys, int32_t* end_queries) {
  await_previous_grid();
  const int block = static_cast<int>(blockIdx.x), batch = block / blocks;
  const int row = block % blocks * kThreads + static_cast<int>(threadIdx.x);
  const Sequence sequence(p, batch);
  const HiddenKeys hidden{
      .queries = sequence.queries,
      .keys = sequence.keys,
      .window = static_cast<int>(p.window),
      .given = p.given_first_keys == nullptr ? nullptr : p.given_first_keys + batch * p.queries,
      .query_places = p.query_places,
      .key_places = p.key_places};
  const int own = static_cast<int>(row);
  if (row < p.queries) {
    first_keys[batch * p.queries + row] =
        own < hidden.queries ? hidden.first_key(own) : hidden.keys;
  }
  if (row < p.keys && end_queries != nullptr) {
    end_queries[batch * p.keys + row] = hidden.end_query(own);
  }
}

// ---- Sums over rows ----

// Computes lse2 and delta of AttentionParams, zeroes dq_sums. 16 lanes own a row, or a padding row.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    attention_bwd_rows_kernel(const __grid_constant__ AttentionParams p, int64_t padded_rows,
                              int row_size) {
  await_previous_grid();
  constexpr int kLanes = 16;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  const int64_t row = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kLanes;
  float sum = 0.f, lse2 = kInfinity;
  if (row < padded_rows) {
    const int query = static_cast<int>(row % p.padded_queries);
    const int head = static_cast<int>(row / p.padded_queries % p.heads);
    const int batch = static_cast<int>(row / p.padded_queries / p.heads);
    float lse = -kInfinity;
    if (query < Sequence(p, batch).queries) {
      lse = p.lse[batch * p.lse_batch_stride + head * p.lse_head_stride + query * p.lse_row_stride];
    }
    if (lse != -kInfinity) {
      lse2 = lse * 1.44269504f;
      const T* out = head_rows<const T>(p.out, batch, head) + query * p.out.row_stride;
      const T* dout = head_rows<const T>(p.dout, batch, head) + query * p.dout.row_stride;
      if (is_packed(out) && is_packed(dout) && p.head_size % kPackSize<T> == 0) {
        for (int c = lane * kPackSize<T>; c < p.head_size; c += kLanes * kPackSize<T>) {
          const auto left = load_floats<kPackSize<T>>(out + c);
          const auto right = load_floats<kPackSize<T>>(dout + c);
#pragma unroll
          for (int i = 0; i < kPackSize<T>; ++i) sum = fmaf(left.at[i], right.at[i], sum);
        }
      } else {
        for (int c = lane; c < p.head_size; c += kLanes) {
          sum = fmaf(to_float(out[c]), to_float(dout[c]), sum);
        }
      }
    }
    if (p.dq_sums != nullptr) {
      for (int c = lane * 4; c < row_size; c += kLanes * 4) {
        store_pack(p.dq_sums + row * row_size + c, Pack<float>{});
      }
    }
  }
  sum = warp_sum<kLanes>(sum);
  if (row < padded_rows && lane == 0) {
    p.lse2[row] = lse2;
    p.delta[row] = sum;
  }
}

// ---- dQ ----

// Multiplies dq_sums by the scale, rounds it and writes it to dq. A warp owns one [16, 8]
// accumulator fragment of dQ.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    attention_bwd_round_kernel(const __grid_constant__ AttentionParams p, int64_t fragments,
                               int row_size) {
  await_previous_grid();
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  const int64_t fragment = (int64_t{blockIdx.x} * kThreads + threadIdx.x) / kWarpSize;
  if (fragment >= fragments) return;
  const int fragments_of_row = row_size / 8;
  const int column = static_cast<int>(fragment % fragments_of_row) * 8 + lane % 4 * 2;
  const int64_t row = fragment / fragments_of_row * 16;
  const int head = static_cast<int>(row / p.padded_queries % p.heads);
  const int batch = static_cast<int>(row / p.padded_queries / p.heads);
  const int query = static_cast<int>(row % p.padded_queries) + lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float* sums = p.dq_sums + fragment * 128 + half * 64 + lane;
    if (query + 8 * half >= p.queries || column >= p.head_size) continue;
    T* target = head_rows<T>(p.dq, batch, head) + (query + 8 * half) * p.dq.row_stride + column;
    const float left = sums[0] * p.scale, right = sums[kWarpSize] * p.scale;
    if (reinterpret_cast<uintptr_t>(target) % 4 == 0 && column + 1 < p.head_size) {
      *reinterpret_cast<uint32_t*>(target) = pack_pair<T>(left, right);
    } else {
      target[0] = from_float<T>(left);
      if (column + 1 < p.head_size) target[1] = from_float<T>(right);
    }
  }
}

// ---- Workspace of a call ----

// Divides the workspace into pieces, each a multiple of 256 bytes. Their addresses are known when
// all sizes have been taken.
class Pieces {
 public:
  int64_t take(int64_t bytes) {
    const int64_t begin = bytes_;
    bytes_ += ceil_div(bytes, 256) * 256;
    return begin;
  }
  void reserve(const char* op, const Exec& exec) {
    memory_ = static_cast<char*>(scratch_bytes(op, exec, bytes_));
  }
  template <typename T>
  T* at(int64_t begin) const {
    return reinterpret_cast<T*>(memory_ + begin);
  }

 private:
  int64_t bytes_ = 0;
  char* memory_ = nullptr;
};

// Workspace for the arrays first_keys and end_queries, if any keys are hidden.
struct HiddenPieces {
  int64_t first_keys = -1, end_queries = -1;  // offsets in the workspace; -1: no array

  HiddenPieces(const AttentionProblem& p, bool backward, Pieces& pieces) {
    if (!p.hides_first_keys()) return;
    first_keys = pieces.take(p.batch * p.queries * 4);
    if (backward) end_queries = pieces.take(p.batch * p.keys * 4);
  }
  void fill(const Exec& exec, AttentionParams& p, const Pieces& pieces) const {
    const int64_t blocks = ceil_div(std::max(p.queries, end_queries < 0 ? 0 : p.keys), kThreads);
    if (first_keys < 0 || p.batch * blocks == 0) return;
    auto* const first = pieces.at<int32_t>(first_keys);
    auto* const end = end_queries < 0 ? nullptr : pieces.at<int32_t>(end_queries);
    simt::launch(attention_hidden_keys_kernel, {.grid = p.batch * blocks, .block = kThreads}, exec,
                 p, static_cast<int>(blocks), first, end);
    p.first_keys = first;
    p.end_queries = end;
  }
};

// An input tensor, and its packed copy if its rows are not aligned.
struct Input {
  HeadView* view;
  int64_t rows, heads;
  int64_t piece = -1;  // offset of the copy in the workspace; -1: not packed

  int64_t packs(const AttentionProblem& p) const {
    return p.batch * rows * heads * ceil_div(p.head_size, 8);
  }
};

void plan_packing(const AttentionProblem& p, Input& input, Pieces& pieces) {
  if (p.dtype == DType::kF32 || is_aligned(*input.view, p, input.rows, input.heads)) return;
  input.piece = pieces.take(input.packs(p) * 16);
}

void pack(const Exec& exec, const AttentionProblem& p, const Input& input, const Pieces& pieces) {
  const int64_t packs = input.packs(p);
  if (input.piece < 0 || packs == 0) return;
  auto* const memory = pieces.at<uint16_t>(input.piece);
  simt::launch(attention_pack_rows_kernel, {.grid = ceil_div(packs, kThreads), .block = kThreads},
               exec, *input.view, memory, packs, input.rows, static_cast<int>(input.heads),
               static_cast<int>(p.head_size));
  const int64_t row_size = ceil_div(p.head_size, 8) * 8;
  *input.view = {memory, input.rows * input.heads * row_size, input.heads * row_size, row_size};
}

template <typename Args>
AttentionParams make_params(const char* op, const Args& args) {
  AttentionParams p{attention_problem(op, args)};
  constexpr double kLog2E = 1.4426950408889634;
  p.scale_log2 = static_cast<float>(p.scale * kLog2E);
  if (p.softcap > 0) {
    const double scale = p.scale, softcap = p.softcap;
    p.cap_in = static_cast<float>(scale / softcap);
    p.cap_out = static_cast<float>(softcap / scale);
    p.cap_log2 = static_cast<float>(1 / (softcap * kLog2E));
  }
  // Kernels count rows in 32 bits and may go one tile beyond the last row.
  constexpr int64_t kMost = INT_MAX / 4;
  if (p.queries > kMost || p.keys > kMost) {
    throw ShapeError(cat(op, ": q is ", args.q, ", k is ", args.k, ", expected at most ", kMost,
                         " queries and keys"));
  }
  return p;
}

// Row size of AttentionParams::dq_sums, which depends on the backward kernel.
int sums_row_size(const Exec& exec, const AttentionProblem& p) {
  int columns = static_cast<int>(p.head_size);
  if (has_attention90(exec, p)) return columns;
  dispatch_head_size(p.head_size, [&]<int kHeadSize>() { columns = kHeadSize; });
  return columns;
}

template <typename T>
void launch_fwd(const Exec& exec, const AttentionParams& p) {
  if constexpr (sizeof(T) == 2) {
    // Only the portable kernel has tiles other than the default.
    if (p.tile == AttentionTile::kOfHeadSize && has_attention90(exec, p)) {
      return launch_attention90_fwd<T>(exec, p);
    }
  }
  launch_attention_fwd<T>(exec, p);
}

template <typename T>
void launch_bwd_keys(const Exec& exec, const AttentionParams& p) {
  if constexpr (sizeof(T) == 2) {
    if (has_attention90(exec, p)) return launch_attention90_bwd_keys<T>(exec, p);
  }
  launch_attention_bwd_keys<T>(exec, p);
}

template <typename T>
void launch_bwd_queries(const Exec& exec, const AttentionParams& p) {
  if constexpr (sizeof(T) == 2) {
    if (has_attention90(exec, p)) return launch_attention90_bwd_queries<T>(exec, p);
  }
  launch_attention_bwd_queries<T>(exec, p);
}

template <typename T>
void backward(const Exec& exec, const AttentionParams& p) {
  const int row_size = sums_row_size(exec, p);
  const int64_t padded_rows = p.batch * p.heads * p.padded_queries;
  if (padded_rows > 0) {
    simt::launch(attention_bwd_rows_kernel<T>,
                 {.grid = ceil_div(padded_rows * 16, kThreads), .block = kThreads}, exec, p,
                 padded_rows, row_size);
  }
  launch_bwd_keys<T>(exec, p);
  if (p.dq_sums == nullptr) return launch_bwd_queries<T>(exec, p);
  if constexpr (sizeof(T) == 2) {
    const int64_t fragments = padded_rows / 16 * (row_size / 8);
    if (fragments == 0) return;
    simt::launch(attention_bwd_round_kernel<T>,
                 {.grid = ceil_div(fragments * kWarpSize, kThreads), .block = kThreads}, exec, p,
                 fragments, row_size);
  }
}

// ---- Order of blocks ----

// Number of heads whose data fits half of an A100's L2 cache of 40 MiB.
int heads_at_once(int64_t heads, int64_t bytes_of_head) {
  constexpr int64_t kCached = int64_t{20} << 20;
  return static_cast<int>(std::clamp<int64_t>(kCached / std::max<int64_t>(bytes_of_head, 1), 1,
                                              std::max<int64_t>(heads, 1)));
}

int64_t row_bytes(const AttentionProblem& p) {
  return 2 * p.head_size * dtype_size(p.dtype);  // bytes of a row of K and of V, or of Q and of dO
}

}  // namespace

BlockOrder order_by_queries(const AttentionProblem& p, int tile) {
  BlockOrder order;
  order.tiles = static_cast<int>(ceil_div(p.queries, tile));
  order.heads = static_cast<int>(p.batch * p.heads);
  // The heads of a group read the same keys.
  const int64_t group = p.kv_heads == 0 ? 1 : std::max<int64_t>(p.heads / p.kv_heads, 1);
  order.heads_at_once = heads_at_once(order.heads, p.keys * row_bytes(p) / group);
  order.last_first = p.causal;
  return order;
}

BlockOrder order_by_keys(const AttentionProblem& p, int tile) {
  BlockOrder order;
  order.tiles = static_cast<int>(ceil_div(p.keys, tile));
  order.heads = static_cast<int>(p.batch * p.kv_heads);
  const int64_t group = p.kv_heads == 0 ? 1 : p.heads / p.kv_heads;
  order.heads_at_once = heads_at_once(order.heads, group * p.queries * row_bytes(p));
  return order;
}

bool has_attention90(const Exec& exec, const AttentionProblem& p) {
  constexpr std::array<int64_t, 5> kHeadSizes = {64, 96, 128, 192, 256};
  const bool has_lists = p.keys_of_queries.begins != nullptr;
  return is_hopper(exec.device) && p.dtype != DType::kF32 && !has_lists &&
         std::ranges::find(kHeadSizes, p.head_size) != kHeadSizes.end() && p.batch > 0 &&
         p.heads > 0 && p.queries > 0 && p.keys > 0;
}

template <>
void run(const Exec& exec, const AttentionFwdArgs& args) {
  constexpr const char* kOp = "attention_fwd";
  AttentionParams p = make_params(kOp, args);
  Input inputs[] = {
      {&p.q, p.queries, p.heads}, {&p.k, p.keys, p.kv_heads}, {&p.v, p.keys, p.kv_heads}};
  Pieces pieces;
  for (Input& input : inputs) plan_packing(p, input, pieces);
  const HiddenPieces hidden(p, /*backward=*/false, pieces);
  pieces.reserve(kOp, exec);
  for (const Input& input : inputs) pack(exec, p, input, pieces);
  hidden.fill(exec, p, pieces);
  dispatch_float(p.dtype, [&]<typename T>() { launch_fwd<T>(exec, p); });
}

template <>
void run(const Exec& exec, const AttentionBwdArgs& args) {
  constexpr const char* kOp = "attention_bwd";
  AttentionParams p = make_params(kOp, args);
  p.padded_queries = ceil_div(p.queries, kQueryPadding) * kQueryPadding;
  Input inputs[] = {{&p.q, p.queries, p.heads},
                    {&p.k, p.keys, p.kv_heads},
                    {&p.v, p.keys, p.kv_heads},
                    {&p.dout, p.queries, p.heads}};
  Pieces pieces;
  for (Input& input : inputs) plan_packing(p, input, pieces);
  const int64_t rows = p.batch * p.heads * p.padded_queries;
  const int64_t lse2 = pieces.take(rows * 4), delta = pieces.take(rows * 4);
  // The f32 kernels have only the variant without atomics.
  const bool atomic = !exec.deterministic && p.dtype != DType::kF32;
  const int64_t sums = atomic ? pieces.take(rows * sums_row_size(exec, p) * 4) : 0;
  const HiddenPieces hidden(p, /*backward=*/true, pieces);
  pieces.reserve(kOp, exec);
  for (const Input& input : inputs) pack(exec, p, input, pieces);
  hidden.fill(exec, p, pieces);
  p.lse2 = pieces.at<float>(lse2);
  p.delta = pieces.at<float>(delta);
  if (atomic && rows > 0) p.dq_sums = pieces.at<float>(sums);
  dispatch_float(p.dtype, [&]<typename T>() { backward<T>(exec, p); });
}

}  // namespace shale::kernels::SHALE_BACKEND
