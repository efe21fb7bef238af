// Attention backward: the five matmuls of arXiv:2307.08691, algorithm 2, tile by tile, with
//   P = 2^(scores - lse), dS = P * (dO V^T - delta), delta = rowsum(dO * O)
// Scores are in units of log2: q is packed times scale * log2(e). With a softcap, dS is multiplied
// by the derivative of the cap, 1 - tanh^2.
//
// With enough heads, a task owns one kv head: for each query head of its group and each query
// block, it iterates over the key tiles once and accumulates dK and dV of the whole head in
// scratch. With few heads, one pass over (kv head, key tile) computes dK and dV, and a second one
// over (head, query block) computes dQ: seven matmuls instead of five. Gradients are added in the
// same order with few heads and with many, so the bits are equal.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/attention_bwd.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "shale/kernels/cpu/attention_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::attention::HWY_NAMESPACE {
namespace {

struct Block {
  // Block number; its queries are [row, row + rows).
  int64_t number, row, rows;
  float *q, *dout, *q_columns, *dout_columns, *dq;  // *_columns are [ld][kTile], others [kTile][ld]
  float *lse2, *delta, *first_keys;                 // [kTile]; lse2: lse in units of log2
};

struct BwdScratch {
  Block blocks[kGroupBlocks];
  float *k, *v;    // packed rows, [kTile][ld]
  float *p, *ds;   // [key][query]
  float *dk, *dv;  // [keys][ld]

  BwdScratch(float* begin, int64_t ld, int64_t count, int64_t keys) {
    Scratch s(begin);
    for (float** tile : {&k, &v}) *tile = s.take(kTile * ld);
    for (float** tile : {&p, &ds}) *tile = s.take(kTile * kTile);
    for (int64_t i = 0; i < count; ++i) {
      Block& b = blocks[i];
      for (float** tile : {&b.q, &b.dout, &b.q_columns, &b.dout_columns, &b.dq}) {
        *tile = s.take(kTile * ld);
      }
      for (float** per_query : {&b.lse2, &b.delta, &b.first_keys}) *per_query = s.take(kTile);
    }
    for (float** sums : {&dk, &dv}) *sums = s.take(keys * ld);
  }
  static int64_t floats(int64_t ld, int64_t count, int64_t keys) {
    return 2 * kTile * ld + 2 * kTile * kTile + count * (5 * kTile * ld + 3 * kTile) +
           2 * keys * ld;
  }
};

// Packs the data that backward needs of a query block.
template <typename T>
void load_block(const Problem& p, int64_t b, int64_t h, int64_t number, Block& block) {
  const F32Tag d;
  const int64_t ld = p.ld();
  block.number = number;
  block.row = number * kTile;
  block.rows = std::min(kTile, p.queries - block.row);
  // Block::dq is not in use yet and holds `out` for a while.
  pack_rows<T>(p.out, b, block.row, h, block.rows, p.head_size, block.dq, ld);
  pack_rows<T>(p.dout, b, block.row, h, block.rows, p.head_size, block.dout, ld);
  pack_rows<T>(p.q, b, block.row, h, block.rows, p.head_size, block.q, ld);
  const auto scale = static_cast<float>(p.scale * kLog2E);
  pack_transposed(block.q, ld, block.rows, p.head_size, scale, block.q_columns);
  pack_transposed(block.dout, ld, block.rows, p.head_size, 1.f, block.dout_columns);
  for (int64_t i = 0; i < block.rows; ++i) {
    auto sum = hn::Zero(d);
    for (int64_t c = i * ld; c < i * ld + p.head_size; c += kF32Lanes) {
      sum = hn::MulAdd(hn::Load(d, block.dout + c), hn::Load(d, block.dq + c), sum);
    }
    block.delta[i] = simd::sum_lanes(d, sum);
    const float lse = p.lse_at(b, h, block.row + i);
    // For a query that sees no key, lse2 = inf makes 2^(score - lse2) 0 for every score.
    block.lse2[i] = lse == kNegInf ? -kNegInf : lse * static_cast<float>(kLog2E);
  }
  for (int64_t i = block.rows; i < kTile; ++i)
    block.delta[i] = block.lse2[i] = 0.f;  // padding lanes of the last vector
  zero(block.dq, block.rows * ld);
  write_first_keys(p, b, block.row, block.rows, block.first_keys);
}

template <typename T>
void load_keys(const Problem& p, int64_t b, int64_t kv_head, int64_t key, int64_t count,
               const BwdScratch& s) {
  pack_rows<T>(p.k, b, key, kv_head, count, p.head_size, s.k, p.ld());
  pack_rows<T>(p.v, b, key, kv_head, count, p.head_size, s.v, p.ld());
}

// For the queries in vector v of a tile: replaces scores by P, and dP = dO V^T by dS. Both become 0
// where masked. limit: the softcap, in the units of the scores.
template <bool kCapped>
void softmax_grad_vec(const TileShape& t, int64_t v, float limit, const Block& block,
                      const BwdScratch& s) {
  const F32Tag d;
  const int64_t column = v * kF32Lanes;
  const auto [begin, all_begin, all_end, end] = seen_keys(t, v);
  float *p = s.p + column, *ds = s.ds + column;
  const auto lse2 = hn::Load(d, block.lse2 + column), delta = hn::Load(d, block.delta + column);
  const auto inverse = hn::Set(d, kCapped ? 1.f / limit : 0.f), one = hn::Set(d, 1.f);
  const auto gradient = [=](F32Vec score, F32Vec prob, F32Vec dp) HWY_ATTR {
    const auto grad = hn::Mul(prob, hn::Sub(dp, delta));
    if constexpr (!kCapped) return grad;
    const auto tanh = hn::Mul(score, inverse);
    return hn::Mul(grad, hn::NegMulAdd(tanh, tanh, one));
  };
  const auto clear = [&](int64_t from, int64_t to) HWY_ATTR {
    for (int64_t k = from; k < to; ++k, p += kTile, ds += kTile) {
      hn::Store(hn::Zero(d), d, p);
      hn::Store(hn::Zero(d), d, ds);
    }
  };
  const auto masked = [&, lse2](int64_t from, int64_t to) HWY_ATTR {
    for (int64_t k = from; k < to; ++k, p += kTile, ds += kTile) {
      const auto seen = visible(t, v, k);
      const auto score = hn::Load(d, p);
      const auto prob = exp2_nonpositive(hn::Sub(score, lse2));
      hn::Store(hn::IfThenElseZero(seen, prob), d, p);
      hn::Store(hn::IfThenElseZero(seen, gradient(score, prob, hn::Load(d, ds))), d, ds);
    }
  };
  clear(0, begin);
  masked(begin, all_begin);
  for (int64_t k = all_begin; k < all_end; ++k, p += kTile, ds += kTile) {
    const auto score = hn::Load(d, p), prob = exp2_nonpositive(hn::Sub(score, lse2));
    hn::Store(prob, d, p);
    hn::Store(gradient(score, prob, hn::Load(d, ds)), d, ds);
  }
  masked(all_end, end);
  clear(end, t.keys);
}

void softmax_grad(const Problem& p, const TileShape& t, const Block& block, const BwdScratch& s) {
  scores_product(t, s.k, block.q_columns, s.p);
  scores_product(t, s.v, block.dout_columns, s.ds);
  const float limit = score_limit(p);
  const auto softmax_grad_of = p.softcap > 0 ? softmax_grad_vec<true> : softmax_grad_vec<false>;
  if (p.softcap > 0) cap_scores(t, limit, s.p);
  for (int64_t v = 0; v < t.query_vecs(); ++v) softmax_grad_of(t, v, limit, block, s);
}

// Writes dK and dV of keys [key, key + count) from the first rows of the sums in scratch.
template <typename T>
void write_keys(const Problem& p, int64_t b, int64_t kv_head, int64_t key, int64_t count,
                const BwdScratch& s) {
  unpack_rows<T>(s.dk, p.ld(), nullptr, p.scale, p.dk, b, key, kv_head, count, p.head_size);
  unpack_rows<T>(s.dv, p.ld(), nullptr, 1.f, p.dv, b, key, kv_head, count, p.head_size);
}

template <typename T>
void write_block(const Problem& p, int64_t b, int64_t h, const Block& block) {
  unpack_rows<T>(block.dq, p.ld(), nullptr, p.scale, p.dq, b, block.row, h, block.rows,
                 p.head_size);
}

// Processes `count` query blocks, starting with number `first`, against all keys that their queries
// see.
template <typename T>
void run_group(const Problem& p, int64_t b, int64_t h, int64_t first, int64_t count,
               BwdScratch& s) {
  const int64_t ld = p.ld(), kv_head = h / p.group();
  for (int64_t i = 0; i < count; ++i) load_block<T>(p, b, h, first + i, s.blocks[i]);
  const Block& last = s.blocks[count - 1];
  const int64_t seen = p.keys_seen(last.row + last.rows);
  TileWalk walk(p, h, first, count, p.first_key(b, s.blocks[0].row) / kTile, ceil_div(seen, kTile));
  while (walk.next()) {
    const int64_t tile = walk.tile();
    load_keys<T>(p, b, kv_head, tile * kTile, std::min(kTile, seen - tile * kTile), s);
    for (int64_t i = 0; i < count; ++i) {
      const Block& block = s.blocks[i];
      const TileShape t = tile_shape(p, b, block.number, tile, block.first_keys);
      if (t.keys <= 0 || !walk.sees(i)) continue;
      softmax_grad(p, t, block, s);
      key_product(t, s.p, block.dout, s.dv + tile * kTile * ld);
      key_product(t, s.ds, block.q, s.dk + tile * kTile * ld);
      query_product(t, s.ds, s.k, block.dq, nullptr);
    }
  }
  for (int64_t i = 0; i < count; ++i) write_block<T>(p, b, h, s.blocks[i]);
}

template <typename T>
void run_head(const Problem& p, int64_t task, float* scratch) {
  const int64_t b = task / p.kv_heads, kv_head = task % p.kv_heads, ld = p.ld();
  BwdScratch s(scratch, ld, kGroupBlocks, p.keys);
  zero(s.dk, p.keys * ld);
  zero(s.dv, p.keys * ld);
  for (int64_t h = kv_head * p.group(); h < (kv_head + 1) * p.group(); ++h) {
    for (int64_t first = 0; first < p.query_blocks(); first += kGroupBlocks) {
      run_group<T>(p, b, h, first, std::min(kGroupBlocks, p.query_blocks() - first), s);
    }
  }
  write_keys<T>(p, b, kv_head, 0, p.keys, s);
}

template <typename T>
void run_keys(const Problem& p, int64_t task, float* scratch) {
  const int64_t tile = task % p.key_tiles(), pair = task / p.key_tiles(), ld = p.ld();
  const int64_t b = pair / p.kv_heads, kv_head = pair % p.kv_heads;
  const int64_t key = tile * kTile, keys = std::min(kTile, p.keys - key);
  BwdScratch s(scratch, ld, 1, kTile);
  Block& block = s.blocks[0];
  zero(s.dk, keys * ld);
  zero(s.dv, keys * ld);
  load_keys<T>(p, b, kv_head, key, keys, s);
  for (int64_t h = kv_head * p.group(); h < (kv_head + 1) * p.group(); ++h) {
    const TileList blocks = p.query_blocks_of(h, tile);
    const int end = blocks.steps_before(static_cast<int>(p.query_blocks()));
    for (int step = 0; step < end; ++step) {
      const int64_t number = blocks.tile(step);
      const TileShape t = tile_shape(p, b, number, tile, block.first_keys);
      if (t.keys <= 0) continue;
      load_block<T>(p, b, h, number, block);
      softmax_grad(p, t, block, s);
      key_product(t, s.p, block.dout, s.dv);
      key_product(t, s.ds, block.q, s.dk);
    }
  }
  write_keys<T>(p, b, kv_head, key, keys, s);
}

template <typename T>
void run_queries(const Problem& p, int64_t task, float* scratch) {
  const int64_t number = task % p.query_blocks(), pair = task / p.query_blocks();
  const int64_t b = pair / p.heads, h = pair % p.heads, kv_head = h / p.group();
  BwdScratch s(scratch, p.ld(), 1, 0);
  Block& block = s.blocks[0];
  load_block<T>(p, b, h, number, block);
  const int64_t seen = p.keys_seen(block.row + block.rows);
  TileWalk walk(p, h, number, 1, p.first_key(b, block.row) / kTile, ceil_div(seen, kTile));
  while (walk.next()) {
    const int64_t tile = walk.tile();
    const TileShape t = tile_shape(p, b, number, tile, block.first_keys);
    load_keys<T>(p, b, kv_head, tile * kTile, t.keys, s);
    softmax_grad(p, t, block, s);
    query_product(t, s.ds, s.k, block.dq, nullptr);
  }
  write_block<T>(p, b, h, block);
}

}  // namespace

TaskKind bwd_heads_kind(const Problem& p) {
  return {pick_dtype(p.dtype, run_head<float>, run_head<bf16>, run_head<f16>), p.batch * p.kv_heads,
          BwdScratch::floats(p.ld(), kGroupBlocks, p.keys)};
}

TaskKind bwd_keys_kind(const Problem& p) {
  return {pick_dtype(p.dtype, run_keys<float>, run_keys<bf16>, run_keys<f16>),
          p.batch * p.kv_heads * p.key_tiles(), BwdScratch::floats(p.ld(), 1, kTile)};
}

TaskKind bwd_queries_kind(const Problem& p) {
  return {pick_dtype(p.dtype, run_queries<float>, run_queries<bf16>, run_queries<f16>),
          p.batch * p.heads * p.query_blocks(), BwdScratch::floats(p.ld(), 1, 0)};
}

}  // namespace shale::kernels::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels::attention {

HWY_EXPORT(bwd_heads_kind);
HWY_EXPORT(bwd_keys_kind);
HWY_EXPORT(bwd_queries_kind);

TaskKind bwd_heads(const Problem& p) {
  return HWY_DYNAMIC_DISPATCH(bwd_heads_kind)(p);
}
TaskKind bwd_keys(const Problem& p) {
  return HWY_DYNAMIC_DISPATCH(bwd_keys_kind)(p);
}
TaskKind bwd_queries(const Problem& p) {
  return HWY_DYNAMIC_DISPATCH(bwd_queries_kind)(p);
}

}  // namespace shale::kernels::attention
#endif
