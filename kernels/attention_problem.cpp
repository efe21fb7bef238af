#include "shale/kernels/attention_problem.h"

#include <cmath>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

// Checks an argument of shape [B, T, heads, D] and returns it as a HeadView.
HeadView head_view(const char* op, const char* arg, const View& view, const Shape& want,
                   DType dtype) {
  check_shape(op, arg, view, want);
  check_dtype(op, arg, view, dtype);
  if (view.size(3) > 1 && view.stride(3) != 1) {
    throw ShapeError(cat(op, ": ", arg, " is ", view, " with strides ", view.strides,
                         ", expected stride 1 in the last dimension"));
  }
  return {view.data, view.stride(0), view.stride(1), view.stride(2)};
}

void check_sizes(const char* op, const View& q, const View& k) {
  check_dtype(op, "q", q, kComputeDTypes);
  check_defined(op, "k", k);
  if (q.ndim() != 4) throw ShapeError(cat(op, ": q is ", q, ", expected shape [B,Tq,H,D]"));
  if (k.ndim() != 4) throw ShapeError(cat(op, ": k is ", k, ", expected shape [B,Tk,Hkv,D]"));
  if (q.size(3) < 1 || q.size(3) > kMaxHeadSize) {
    throw ShapeError(cat(op, ": q is ", q, ", expected a last dimension from 1 to ", kMaxHeadSize));
  }
  const int64_t heads = q.size(2), kv_heads = k.size(2);
  if (kv_heads == 0 ? heads != 0 : heads % kv_heads != 0) {
    throw ShapeError(
        cat(op, ": k is ", k, ", expected a number of heads that divides q's ", heads));
  }
}

const int32_t* lengths(const char* op, const char* arg, const View& view, int64_t batch) {
  if (!view.defined()) return nullptr;
  check_dense(op, arg, view, {batch}, DType::kI32);
  return view.as<int32_t>();
}

// Checks half of BlockLists and returns it: the lists of key blocks of all query blocks, or the
// lists of query blocks of all key blocks. `rows`: the number of queries or keys that have a list.
BlockRows block_rows(const char* op, const std::string& arg, const View& begins, const View& blocks,
                     int64_t rows, int64_t heads) {
  const std::string of_begins = cat("blocks.", arg, "_begins"),
                    of_blocks = cat("blocks.", arg, "s");
  check_dtype(op, of_begins.c_str(), begins, DType::kI32);
  const int64_t count = (rows + kAttentionBlock - 1) / kAttentionBlock;
  const int64_t patterns = begins.ndim() == 2 && begins.size(0) == heads ? heads : 1;
  check_dense(op, of_begins.c_str(), begins, {patterns, count + 1}, DType::kI32);
  check_dense(op, of_blocks.c_str(), blocks, {blocks.defined() ? blocks.numel() : 0}, DType::kI32);
  return {begins.as<int32_t>(), blocks.as<int32_t>(),
          patterns == 1 ? 0 : static_cast<int>(count + 1)};
}

// Checks the positions of a call's tokens.
TokenPlaces checked_places(const char* op, const char* arg, const TokenPlaces& places,
                           int64_t tokens) {
  const bool fits = tokens == places.run || tokens == 2 * places.run;
  if (!fits || places.first[0] < 0 ||
      (tokens > places.run && places.first[1] < places.first[0] + places.run)) {
    throw ShapeError(cat(op, ": ", arg, "_places has two runs of ", places.run,
                         " positions that start at ", places.first[0], " and ", places.first[1],
                         ", for ", tokens,
                         " tokens, expected one run, or two ascending runs without overlap"));
  }
  return places;
}

// Checks and converts the arguments that forward and backward share.
template <typename Args>
AttentionProblem common_problem(const char* op, const Args& a) {
  check_sizes(op, a.q, a.k);
  if (!(a.scale > 0 && std::isfinite(a.scale))) {
    throw ShapeError(cat(op, ": scale is ", a.scale, ", expected a positive number"));
  }
  if (a.softcap != 0 && !(a.softcap >= 1e-3f && a.softcap <= 1e3f)) {
    throw ShapeError(cat(op, ": softcap is ", a.softcap, ", expected 0, or 0.001 to 1000"));
  }
  AttentionProblem p;
  p.dtype = a.q.dtype;
  p.batch = a.q.size(0), p.queries = a.q.size(1), p.heads = a.q.size(2), p.head_size = a.q.size(3);
  p.keys = a.k.size(1), p.kv_heads = a.k.size(2);
  p.scale = a.scale, p.softcap = a.softcap, p.causal = a.causal;
  const Shape kv_shape{p.batch, p.keys, p.kv_heads, p.head_size};
  p.q = head_view(op, "q", a.q, a.q.shape, p.dtype);
  p.k = head_view(op, "k", a.k, kv_shape, p.dtype);
  p.v = head_view(op, "v", a.v, kv_shape, p.dtype);
  p.out = head_view(op, "out", a.out, a.q.shape, p.dtype);
  check_shape(op, "lse", a.lse, {p.batch, p.heads, p.queries});
  check_dtype(op, "lse", a.lse, DType::kF32);
  p.lse = a.lse.template as<float>();
  p.lse_batch_stride = a.lse.stride(0);
  p.lse_head_stride = a.lse.stride(1);
  p.lse_row_stride = a.lse.stride(2);
  p.q_lengths = lengths(op, "q_lengths", a.q_lengths, p.batch);
  p.k_lengths = lengths(op, "k_lengths", a.k_lengths, p.batch);
  const bool has_places = a.query_places.run > 0 || a.key_places.run > 0;
  if (a.window < 0 || (a.window > 0 && !a.causal && !has_places)) {
    throw ShapeError(cat(op, ": window is ", a.window, a.causal ? "" : " without a causal mask",
                         ", expected 0, or a number of keys and a causal mask"));
  }
  // A window of at least `keys` hides no key if the call has the whole sequence.
  if (a.window < p.keys || has_places) p.window = a.window;
  if (has_places) {
    if (p.q_lengths != nullptr || p.k_lengths != nullptr) {
      throw ShapeError(cat(op, ": has both places and lengths, expected at most one of them"));
    }
    p.query_places = checked_places(op, "query", a.query_places, p.queries);
    p.key_places = checked_places(op, "key", a.key_places, p.keys);
  }
  if (a.first_keys.defined()) {
    check_dense(op, "first_keys", a.first_keys, {p.batch, p.queries}, DType::kI32);
    p.given_first_keys = a.first_keys.template as<int32_t>();
  }
  if (a.blocks.defined()) {
    if (p.q_lengths != nullptr || p.k_lengths != nullptr) {
      throw ShapeError(cat(op, ": has blocks and ", p.q_lengths != nullptr ? "q" : "k",
                           "_lengths, expected one of them"));
    }
    const BlockLists& lists = a.blocks;
    p.keys_of_queries = block_rows(op, "key", lists.key_begins, lists.keys, p.queries, p.heads);
    p.queries_of_keys = block_rows(op, "query", lists.query_begins, lists.queries, p.keys, p.heads);
  }
  return p;
}

}  // namespace

void check_args(const AttentionMergeArgs& a) {
  constexpr const char* kOp = "attention_merge";
  check_dtype(kOp, "sum", a.sum, DType::kF32);
  if (a.sum.ndim() != 4) throw ShapeError(cat(kOp, ": sum is ", a.sum, ", expected [B,T,H,D]"));
  check_dtype(kOp, "part", a.part, kComputeDTypes);
  head_view(kOp, "sum", a.sum, a.sum.shape, DType::kF32);
  head_view(kOp, "part", a.part, a.sum.shape, a.part.dtype);
  for (const auto& [arg, lse] : {std::pair("lse", &a.lse), std::pair("part_lse", &a.part_lse)}) {
    check_shape(kOp, arg, *lse, {a.sum.size(0), a.sum.size(2), a.sum.size(1)});
    check_dtype(kOp, arg, *lse, DType::kF32);
  }
}

AttentionProblem attention_problem(const char* op, const AttentionFwdArgs& a) {
  AttentionProblem p = common_problem(op, a);
  p.tile = a.tile;
  return p;
}

AttentionProblem attention_problem(const char* op, const AttentionBwdArgs& a) {
  AttentionProblem p = common_problem(op, a);
  p.dout = head_view(op, "dout", a.dout, a.q.shape, p.dtype);
  p.dq = head_view(op, "dq", a.dq, a.q.shape, p.dtype);
  p.dk = head_view(op, "dk", a.dk, a.k.shape, p.dtype);
  p.dv = head_view(op, "dv", a.dv, a.k.shape, p.dtype);
  return p;
}

}  // namespace shale::kernels
