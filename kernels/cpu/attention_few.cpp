// Attention forward for a few queries and many keys, as in generation. It is memory-bound: a task
// reads each row of K and V once, in place, and vectors run along the head.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/attention_few.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "shale/kernels/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::attention::HWY_NAMESPACE {
namespace {

// Computes the dot products of `query` (packed) with kRows rows of k, which are `stride` elements
// apart.
template <typename T, int kRows>
HWY_INLINE void dot_rows(const float* query, const T* k, int64_t stride, int64_t head_size,
                         float* scores) {
  const F32Tag d;
  F32Vec acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = hn::Zero(d);
  int64_t c = 0;
  for (; c + kF32Lanes <= head_size; c += kF32Lanes) {
    const auto q = hn::Load(d, query + c);
    for (int r = 0; r < kRows; ++r) {
      acc[r] = hn::MulAdd(simd::load(d, k + r * stride + c), q, acc[r]);
    }
  }
  if (c < head_size) {
    const auto q = hn::Load(d, query + c);
    for (int r = 0; r < kRows; ++r) {
      acc[r] = hn::MulAdd(simd::load_n(d, k + r * stride + c, head_size - c), q, acc[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) scores[r] = simd::sum_lanes(d, acc[r]);
}

// Applies the softcap to whole vectors; the row of scores is padded.
void cap_row(int64_t keys, float limit, float* scores) {
  const F32Tag d;
  const auto most = hn::Set(d, limit), inverse = hn::Set(d, 1.f / limit);
  for (int64_t k = 0; k < keys; k += kF32Lanes) {
    hn::Store(capped(hn::Load(d, scores + k), most, inverse), d, scores + k);
  }
}

// Updates one query's softmax with `keys` scores, and replaces them by 2^(score - maximum). Returns
// the factor by which the sums of earlier keys must be multiplied.
float softmax_row(int64_t keys, float* scores, float& maximum_so_far, float& sum_so_far) {
  const F32Tag d;
  const int64_t padded = round_up(keys, kF32Lanes);
  for (int64_t k = keys; k < padded; ++k) scores[k] = kNegInf;
  auto m = hn::Set(d, maximum_so_far);
  for (int64_t k = 0; k < padded; k += kF32Lanes) m = hn::Max(m, hn::Load(d, scores + k));
  const float maximum = simd::max_lanes(d, m);
  const auto shift = hn::Set(d, maximum == kNegInf ? 0.f : maximum);
  auto sum = hn::Zero(d);
  for (int64_t k = 0; k < padded; k += kF32Lanes) {
    const auto p = exp2_nonpositive(hn::Sub(hn::Load(d, scores + k), shift));
    hn::Store(p, d, scores + k);
    sum = hn::Add(sum, p);
  }
  const float rescale = hn::GetLane(exp2_nonpositive(hn::Sub(hn::Set(d, maximum_so_far), shift)));
  maximum_so_far = maximum;
  sum_so_far = sum_so_far * rescale + simd::sum_lanes(d, sum);
  return rescale;
}

// Computes out = out * rescale + sum of weights[key] * v[key], for kVecs vectors of a row; the last
// one has `count` elements.
template <typename T, int kVecs>
HWY_INLINE void add_rows(const float* weights, int64_t keys, const T* v, int64_t stride,
                         int64_t count, float rescale, float* out) {
  const F32Tag d;
  const bool partial = count < kF32Lanes;
  F32Vec acc[kVecs];
  for (int i = 0; i < kVecs; ++i) {
    acc[i] = hn::Mul(hn::Load(d, out + i * kF32Lanes), hn::Set(d, rescale));
  }
  for (int64_t k = 0; k < keys; ++k, v += stride) {
    const auto w = hn::Set(d, weights[k]);
    for (int i = 0; i + 1 < kVecs; ++i) {
      acc[i] = hn::MulAdd(w, simd::load(d, v + i * kF32Lanes), acc[i]);
    }
    const T* last = v + (kVecs - 1) * kF32Lanes;
    const auto x = partial ? simd::load_n(d, last, count) : simd::load(d, last);
    acc[kVecs - 1] = hn::MulAdd(w, x, acc[kVecs - 1]);
  }
  for (int i = 0; i < kVecs; ++i) hn::Store(acc[i], d, out + i * kF32Lanes);
}

template <typename T>
void accumulate_row(const float* weights, int64_t keys, const T* v, int64_t stride,
                    int64_t head_size, float rescale, float* out) {
  int64_t c = 0;
  for (; c + 4 * kF32Lanes <= head_size; c += 4 * kF32Lanes) {
    add_rows<T, 4>(weights, keys, v + c, stride, kF32Lanes, rescale, out + c);
  }
  for (; c < head_size; c += kF32Lanes) {
    const int64_t count = std::min(kF32Lanes, head_size - c);
    add_rows<T, 1>(weights, keys, v + c, stride, count, rescale, out + c);
  }
}

// Returns the number of query heads per task. They share a kv head, so its rows are read from
// memory once. If there would be too few tasks, each head is its own task.
int64_t few_heads(const Problem& p) {
  return p.batch * p.kv_heads >= kEnoughTasks ? p.group() : 1;
}

// Scratch memory of a task. Row r of its arrays belongs to query r % queries of head r / queries,
// counted from the task's first head.
struct FewScratch {
  float *q, *out, *maximum, *sum, *factor, *scores;

  FewScratch(float* begin, int64_t rows, int64_t ld) {
    Scratch s(begin);
    q = s.take(rows * ld), out = s.take(rows * ld);
    maximum = s.take(rows), sum = s.take(rows), factor = s.take(rows);
    scores = s.take(kTile);
  }
  static int64_t floats(int64_t rows, int64_t ld) {
    return 2 * rows * ld + 3 * round_up(rows, kMaxLanes) + kTile;
  }
};

template <typename T>
void add_tile(const Problem& p, const T* k, const T* v, int64_t keys, int64_t r,
              const FewScratch& s) {
  const float* query = s.q + r * p.ld();
  const int64_t stride = p.k.row_stride;
  int64_t j = 0;
  for (; j + 4 <= keys; j += 4) {
    dot_rows<T, 4>(query, k + j * stride, stride, p.head_size, s.scores + j);
  }
  for (; j < keys; ++j) {
    dot_rows<T, 1>(query, k + j * stride, stride, p.head_size, s.scores + j);
  }
  if (p.softcap > 0) cap_row(keys, score_limit(p), s.scores);
  const float rescale = softmax_row(keys, s.scores, s.maximum[r], s.sum[r]);
  accumulate_row(s.scores, keys, v, p.v.row_stride, p.head_size, rescale, s.out + r * p.ld());
}

template <typename T>
void run_few(const Problem& p, int64_t task, float* scratch) {
  const int64_t heads = few_heads(p), tasks_per_batch = p.heads / heads, ld = p.ld();
  const int64_t b = task / tasks_per_batch, first_head = task % tasks_per_batch * heads;
  const int64_t kv_head = first_head / p.group(), rows = heads * p.queries;
  const FewScratch s(scratch, rows, ld);
  const auto scale = static_cast<float>(p.scale * kLog2E);
  for (int64_t h = 0; h < heads; ++h) {
    pack_rows<T>(p.q, b, 0, first_head + h, p.queries, p.head_size, s.q + h * p.queries * ld, ld);
  }
  for (int64_t i = 0; i < rows * ld; ++i) s.q[i] = i % ld < p.head_size ? s.q[i] * scale : 0.f;
  zero(s.out, rows * ld);
  std::fill_n(s.maximum, rows, kNegInf);
  std::fill_n(s.sum, rows, 0.f);

  const int64_t first_tile = p.first_key(b, 0) / kTile;
  for (int64_t key = first_tile * kTile; key < p.keys_seen(p.queries); key += kTile) {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t query = r % p.queries, begin = std::max(key, p.first_key(b, query));
      const int64_t keys = std::min(key + kTile, p.keys_seen(query + 1)) - begin;
      if (keys <= 0) continue;
      const TileList tiles = p.key_tiles_of(first_head + r / p.queries, /*query_block=*/0);
      if (!tiles.has(static_cast<int>(key / kTile))) continue;
      add_tile(p, p.k.row<T>(b, begin, kv_head), p.v.row<T>(b, begin, kv_head), keys, r, s);
    }
  }
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t r = h * p.queries;
    write_rows<T>(p, b, first_head + h, 0, p.queries, s.out + r * ld, s.maximum + r, s.sum + r,
                  s.factor + r);
  }
}

}  // namespace

TaskKind fwd_few_kind(const Problem& p) {
  if (p.batch * p.heads * p.queries == 0) return {};
  const int64_t heads = few_heads(p);
  return {pick_dtype(p.dtype, run_few<float>, run_few<bf16>, run_few<f16>),
          p.batch * p.heads / heads, FewScratch::floats(heads * p.queries, p.ld())};
}

}  // namespace shale::kernels::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels::attention {

HWY_EXPORT(fwd_few_kind);

TaskKind fwd_few(const Problem& p) {
  return HWY_DYNAMIC_DISPATCH(fwd_few_kind)(p);
}

}  // namespace shale::kernels::attention
#endif
