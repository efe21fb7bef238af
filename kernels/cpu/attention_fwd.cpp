// Attention forward. A task owns a few query blocks of one head and iterates over the key tiles
// that its queries see, with an online softmax (arXiv:2205.14135, algorithm 1). Scores are in units
// of log2: q is packed times scale * log2(e).

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/attention_fwd.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "shale/kernels/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::attention::HWY_NAMESPACE {
namespace {

// Softmax state of a query block, with one value per query.
struct Softmax {
  float* maximum;  // largest score so far
  float* sum;      // sum of 2^(score - maximum)
  float* rescale;  // factor for the sums of earlier keys, after the maximum has changed
};

// For the queries of vector v: updates the softmax and replaces scores by 2^(score - maximum), 0
// where masked.
void softmax_vec(const TileShape& t, int64_t v, float* scores, const Softmax& state) {
  const F32Tag d;
  const auto neg_inf = hn::Set(d, kNegInf);
  const int64_t column = v * kF32Lanes;
  float* s = scores + column;
  const auto [begin, all_begin, all_end, end] = seen_keys(t, v);
  const auto mask = [&, neg_inf](int64_t from, int64_t to) HWY_ATTR {
    for (int64_t k = from; k < to; ++k) {
      hn::Store(hn::IfThenElse(visible(t, v, k), hn::Load(d, s + k * kTile), neg_inf), d,
                s + k * kTile);
    }
  };
  mask(begin, all_begin);
  mask(all_end, end);
  for (int64_t k = 0; k < begin; ++k) hn::Store(hn::Zero(d), d, s + k * kTile);

  // Four independent maxima hide the latency of the instructions.
  F32Vec m[4] = {hn::Load(d, state.maximum + column), neg_inf, neg_inf, neg_inf};
  int64_t k = begin;
  for (; k + 4 <= end; k += 4) {
    for (int64_t i = 0; i < 4; ++i) m[i] = hn::Max(m[i], hn::Load(d, s + (k + i) * kTile));
  }
  for (; k < end; ++k) m[0] = hn::Max(m[0], hn::Load(d, s + k * kTile));
  const auto maximum = hn::Max(hn::Max(m[0], m[1]), hn::Max(m[2], m[3]));
  // A query that has seen no key keeps the maximum -inf; subtracting -inf from -inf would give NaN.
  const auto shift = hn::IfThenZeroElse(hn::Eq(maximum, neg_inf), maximum);

  F32Vec sum[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
  for (k = begin; k + 4 <= end; k += 4) {
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

struct Block {
  int64_t number, row, rows;  // block number; its queries are [row, row + rows)
  float *q, *out;             // q: [ld][kTile]; out: [kTile][ld]
  float* first_keys;          // [kTile]: first key that each query sees
  Softmax softmax;
};

struct FwdScratch {
  Block blocks[kGroupBlocks];
  float *k, *v, *scores;

  FwdScratch(float* begin, int64_t ld, int64_t count) {
    Scratch s(begin);
    for (float** tile : {&k, &v}) *tile = s.take(kTile * ld);
    scores = s.take(kTile * kTile);
    for (int64_t i = 0; i < count; ++i) {
      Block& block = blocks[i];
      for (float** tile : {&block.q, &block.out}) *tile = s.take(kTile * ld);
      Softmax& softmax = block.softmax;
      for (float** each : {&softmax.maximum, &softmax.sum, &softmax.rescale, &block.first_keys}) {
        *each = s.take(kTile);
      }
    }
  }
  static int64_t floats(int64_t ld, int64_t count) {
    return 2 * kTile * ld + kTile * kTile + count * (2 * kTile * ld + 4 * kTile);
  }
};

int64_t blocks_per_task(const Problem& p) {
  const int64_t groups = ceil_div(p.query_blocks(), kGroupBlocks);
  return p.batch * p.heads * groups >= kEnoughTasks ? kGroupBlocks : 1;
}

template <typename T>
void load_block(const Problem& p, int64_t b, int64_t h, Block& block) {
  const F32Tag d;
  const int64_t ld = p.ld();
  block.row = block.number * kTile;
  block.rows = std::min(kTile, p.queries - block.row);
  for (int64_t i = 0; i < kTile; i += kF32Lanes) {
    hn::Store(hn::Set(d, kNegInf), d, block.softmax.maximum + i);
    hn::Store(hn::Zero(d), d, block.softmax.sum + i);
  }
  write_first_keys(p, b, block.row, block.rows, block.first_keys);
  // Block::out is not in use yet and holds q until q is transposed.
  pack_rows<T>(p.q, b, block.row, h, block.rows, p.head_size, block.out, ld);
  const auto scale = static_cast<float>(p.scale * kLog2E);
  pack_transposed(block.out, ld, block.rows, p.head_size, scale, block.q);
  zero(block.out, block.rows * ld);
}

template <typename T>
void run_blocks(const Problem& p, int64_t task, float* scratch) {
  const int64_t heads = p.batch * p.heads, per_task = blocks_per_task(p), ld = p.ld();
  // The last query blocks see the most keys. They start first, so that threads end together.
  const int64_t group = ceil_div(p.query_blocks(), per_task) - 1 - task / heads;
  const int64_t b = task % heads / p.heads, h = task % p.heads, kv_head = h / p.group();
  const int64_t first = group * per_task, count = std::min(per_task, p.query_blocks() - first);
  FwdScratch s(scratch, ld, count);
  for (int64_t i = 0; i < count; ++i) {
    s.blocks[i].number = first + i;
    load_block<T>(p, b, h, s.blocks[i]);
  }

  const Block& last = s.blocks[count - 1];
  const int64_t seen = p.keys_seen(last.row + last.rows);
  TileWalk walk(p, h, first, count, p.first_key(b, s.blocks[0].row) / kTile, ceil_div(seen, kTile));
  while (walk.next()) {
    const int64_t tile = walk.tile(), key = tile * kTile, keys = std::min(kTile, seen - key);
    pack_rows<T>(p.k, b, key, kv_head, keys, p.head_size, s.k, ld);
    pack_rows<T>(p.v, b, key, kv_head, keys, p.head_size, s.v, ld);
    for (int64_t i = 0; i < count; ++i) {
      const Block& block = s.blocks[i];
      const TileShape t = tile_shape(p, b, block.number, tile, block.first_keys);
      if (t.keys <= 0 || !walk.sees(i)) continue;
      scores_product(t, s.k, block.q, s.scores);
      if (p.softcap > 0) cap_scores(t, score_limit(p), s.scores);
      for (int64_t v = 0; v < t.query_vecs(); ++v) softmax_vec(t, v, s.scores, block.softmax);
      query_product(t, s.scores, s.v, block.out, block.softmax.rescale);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    const Block& block = s.blocks[i];
    write_rows<T>(p, b, h, block.row, block.rows, block.out, block.softmax.maximum,
                  block.softmax.sum, block.softmax.rescale);
  }
}

}  // namespace

TaskKind fwd_blocks_kind(const Problem& p) {
  const int64_t per_task = blocks_per_task(p);
  return {pick_dtype(p.dtype, run_blocks<float>, run_blocks<bf16>, run_blocks<f16>),
          p.batch * p.heads * ceil_div(p.query_blocks(), per_task),
          FwdScratch::floats(p.ld(), per_task)};
}

}  // namespace shale::kernels::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels::attention {

HWY_EXPORT(fwd_blocks_kind);

TaskKind fwd_blocks(const Problem& p) {
  return HWY_DYNAMIC_DISPATCH(fwd_blocks_kind)(p);
}

}  // namespace shale::kernels::attention
#endif
