// Forward. A task owns 64 queries of one head and goes over the key tiles they see, with an online
// softmax (arXiv:2205.14135, algorithm 1). Scores are in units of log2: q is packed times
// scale * log2(e).

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_fwd.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "kernels/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::attention::HWY_NAMESPACE {
namespace {

// One value per query of the block.
struct Softmax {
  float* maximum;  // of the scores so far
  float* sum;      // of 2^(score - maximum)
  float* rescale;  // what the new maximum makes of earlier sums
};

// Queries of vector v: updates the softmax and turns scores into 2^(score - maximum), 0 where masked.
void softmax_vec(const TileShape& t, int64_t v, float* scores, const Softmax& state) {
  const F32Tag d;
  const auto neg_inf = hn::Set(d, kNegInf);
  const int64_t column = v * kF32Lanes;
  float* s = scores + column;
  const int64_t end = keys_of_some(t, v);
  for (int64_t k = keys_of_all(t, v); k < end; ++k) {
    hn::Store(hn::IfThenElse(visible(t, v, k), hn::Load(d, s + k * kTile), neg_inf), d,
              s + k * kTile);
  }

  // Four chains each, or latency would set the pace.
  F32Vec m[4] = {hn::Load(d, state.maximum + column), neg_inf, neg_inf, neg_inf};
  int64_t k = 0;
  for (; k + 4 <= end; k += 4) {
    for (int64_t i = 0; i < 4; ++i) m[i] = hn::Max(m[i], hn::Load(d, s + (k + i) * kTile));
  }
  for (; k < end; ++k) m[0] = hn::Max(m[0], hn::Load(d, s + k * kTile));
  const auto maximum = hn::Max(hn::Max(m[0], m[1]), hn::Max(m[2], m[3]));
  // A query that has seen no key keeps -inf; subtracting that would give NaN.
  const auto shift = hn::IfThenZeroElse(hn::Eq(maximum, neg_inf), maximum);

  F32Vec sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (k = 0; k + 4 <= end; k += 4) {
    for (int64_t i = 0; i < 4; ++i) {
      const auto p = exp2_nonpositive(hn::Sub(hn::Load(d, s + (k + i) * kTile), shift));
      hn::Store(p, d, s + (k + i) * kTile);
      sum[i] = hn::Add(sum[i], p);
    }
  }
  for (; k < end; ++k) {
    const auto p = exp2_nonpositive(hn::Sub(hn::Load(d, s + k * kTile), shift));
    hn::Store(p, d, s + k * kTile);
    sum[0] = hn::Add(sum[0], p);
  }
  for (; k < t.keys; ++k) hn::Store(hn::Zero(d), d, s + k * kTile);

  const auto rescale = exp2_nonpositive(hn::Sub(hn::Load(d, state.maximum + column), shift));
  const auto total = hn::Add(hn::Add(sum[0], sum[1]), hn::Add(sum[2], sum[3]));
  hn::Store(maximum, d, state.maximum + column);
  hn::Store(rescale, d, state.rescale + column);
  hn::Store(hn::MulAdd(hn::Load(d, state.sum + column), rescale, total), d, state.sum + column);
}

struct BlockScratch {
  float *rows, *q, *k, *v, *scores, *out;
  Softmax softmax;

  BlockScratch(float* begin, int64_t ld) {
    Scratch s(begin);
    for (float** tile : {&q, &k, &v, &out}) *tile = s.take(kTile * ld);
    scores = s.take(kTile * kTile);
    for (float** per_query : {&softmax.maximum, &softmax.sum, &softmax.rescale}) {
      *per_query = s.take(kTile);
    }
    rows = out;  // q before it is transposed
  }
  static int64_t floats(int64_t ld) { return 4 * kTile * ld + kTile * kTile + 3 * kTile; }
};

template <typename T>
void run_block(const Problem& p, int64_t task, float* scratch) {
  const F32Tag d;
  const int64_t blocks = p.query_blocks();
  // The last block sees most keys: it goes first, so that the end is even.
  const int64_t block = blocks - 1 - task / (p.batch * p.heads);
  const int64_t b = task % (p.batch * p.heads) / p.heads, h = task % p.heads;
  const int64_t row = block * kTile, count = std::min(kTile, p.queries - row), ld = p.ld();
  const BlockScratch s(scratch, ld);

  for (int64_t i = 0; i < kTile; i += kF32Lanes) {
    hn::Store(hn::Set(d, kNegInf), d, s.softmax.maximum + i);
    hn::Store(hn::Zero(d), d, s.softmax.sum + i);
  }
  pack_rows<T>(p.q, b, row, h, count, p.head_size, s.rows, ld);
  pack_transposed(s.rows, ld, count, p.head_size, static_cast<float>(p.scale * kLog2E), s.q);
  zero(s.out, count * ld);

  const int64_t kv_head = h / p.group(), seen = p.keys_seen(row + count);
  for (int64_t tile = 0; tile * kTile < seen; ++tile) {
    const TileShape t = tile_shape(p, block, tile);
    pack_rows<T>(p.k, b, tile * kTile, kv_head, t.keys, p.head_size, s.k, ld);
    pack_rows<T>(p.v, b, tile * kTile, kv_head, t.keys, p.head_size, s.v, ld);
    scores_product(t, s.k, s.q, s.scores);
    for (int64_t v = 0; v < t.query_vecs(); ++v) softmax_vec(t, v, s.scores, s.softmax);
    query_product(t, s.scores, s.v, s.out, s.softmax.rescale);
  }
  write_rows<T>(p, b, h, row, count, s.out, s.softmax.maximum, s.softmax.sum, s.softmax.rescale);
}

}  // namespace

TaskKind fwd_blocks_kind(const Problem& p) {
  return {pick_dtype(p.dtype, run_block<float>, run_block<bf16>, run_block<f16>),
          p.batch * p.heads * p.query_blocks(), BlockScratch::floats(p.ld())};
}

}  // namespace shale::kernels::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels::attention {

HWY_EXPORT(fwd_blocks_kind);

TaskKind fwd_blocks(const Problem& p) { return HWY_DYNAMIC_DISPATCH(fwd_blocks_kind)(p); }

}  // namespace shale::kernels::attention
#endif
