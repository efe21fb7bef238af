// Building blocks of attention on f32 tiles in scratch memory: packing, small register-blocked
// matmuls, 2^x. Included once per instruction set.
//
// Tiles: rows of K, V, Q, dO, O are packed, [rows][ld], padded with zeros to whole vectors. Scores
// are stored transposed, [key][query] with kTile columns: vectors run along queries, so that the
// softmax over keys needs no operation across lanes.
#if defined(SHALE_KERNELS_CPU_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SHALE_KERNELS_CPU_ATTENTION_TILE_INL_H_
#undef SHALE_KERNELS_CPU_ATTENTION_TILE_INL_H_
#else
#define SHALE_KERNELS_CPU_ATTENTION_TILE_INL_H_
#endif

#include <cmath>
#include <limits>

#include "shale/kernels/cpu/attention_internal.h"
#include "shale/kernels/cpu/math-inl.h"
#include "shale/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::attention::HWY_NAMESPACE {

namespace simd = shale::kernels::HWY_NAMESPACE;
namespace hn = hwy::HWY_NAMESPACE;
using simd::F32Tag;
using simd::F32Vec;
using simd::kF32Lanes;

inline constexpr float kNegInf = -std::numeric_limits<float>::infinity();
inline constexpr double kLog2E = 1.4426950408889634;
inline constexpr int64_t kTileVecs = kTile / kF32Lanes;

// Matmuls keep a micro-tile of kMicroRows × kMicroVecs accumulators, plus kMicroVecs + 1 operands,
// in registers. AVX-512 has 32 vector registers, other instruction sets have 16.
inline constexpr int kMicroRows = 6;
inline constexpr int kMicroVecs = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

// Computes 2^x for x <= 0. x may be slightly positive: a score may exceed its rounded maximum.
// Error at most 1 ulp; 2^0 is 1; the result is 0 below 2^-125; NaN gives NaN.
HWY_INLINE F32Vec exp2_nonpositive(F32Vec x) {
  const F32Tag d;
  const hn::RebindToSigned<F32Tag> di;
  const auto low = hn::Set(d, -125.f);
  const auto vanishes = hn::Lt(x, low);
  x = hn::IfThenElse(vanishes, low, x);
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const auto magic = hn::Set(d, 0x1.8p23f);
  const auto shifted = hn::Add(x, magic);
  const auto f = hn::Sub(x, hn::Sub(shifted, magic));  // f is in [-1/2, 1/2]
  // 2^f = 1 + f q(f); q interpolates at Chebyshev nodes, error 2^-27.
  auto q = hn::MulAdd(f, hn::Set(d, 0x1.44138ap-13f), hn::Set(d, 0x1.5f0890p-10f));
  q = hn::MulAdd(q, f, hn::Set(d, 0x1.3b2a54p-7f));
  q = hn::MulAdd(q, f, hn::Set(d, 0x1.c6af6cp-5f));
  q = hn::MulAdd(q, f, hn::Set(d, 0x1.ebfbe0p-3f));
  q = hn::MulAdd(q, f, hn::Set(d, 0x1.62e430p-1f));
  q = hn::MulAdd(q, f, hn::Set(d, 1.f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
  const auto power = hn::BitCast(d, hn::Add(hn::BitCast(di, q), exponent));
  return hn::IfThenZeroElse(vanishes, power);
}

// Returns the softcap for scores in units of log2.
inline float score_limit(const Problem& p) {
  return static_cast<float>(p.softcap * kLog2E);
}

// Computes limit * tanh(scores / limit).
HWY_INLINE F32Vec capped(F32Vec scores, F32Vec limit, F32Vec inverse_limit) {
  return hn::Mul(simd::tanh_f32(F32Tag(), hn::Mul(scores, inverse_limit)), limit);
}

// ---- Packing ----

// Packs rows [row, row + count) of a head to to[count][ld] in f32, with zeros up to whole vectors.
template <typename T>
void pack_rows(const HeadView& from, int64_t batch, int64_t row, int64_t head, int64_t count,
               int64_t head_size, float* HWY_RESTRICT to, int64_t ld) {
  const F32Tag d;
  const int64_t whole = head_size / kF32Lanes * kF32Lanes;
  for (int64_t r = 0; r < count; ++r, to += ld) {
    const T* source = from.row<T>(batch, row + r, head);
    for (int64_t c = 0; c < whole; c += kF32Lanes) {
      hn::Store(simd::load(d, source + c), d, to + c);
    }
    if (whole < head_size) {
      hn::Store(simd::load_n(d, source + whole, head_size - whole), d, to + whole);
    }
  }
}

// Unpacks rows to a head, each multiplied by factors[r], or by `factor` if factors is null.
template <typename T>
void unpack_rows(const float* HWY_RESTRICT from, int64_t ld, const float* factors, float factor,
                 const HeadView& to, int64_t batch, int64_t row, int64_t head, int64_t count,
                 int64_t head_size) {
  const F32Tag d;
  const int64_t whole = head_size / kF32Lanes * kF32Lanes;
  for (int64_t r = 0; r < count; ++r, from += ld) {
    T* target = to.row<T>(batch, row + r, head);
    const auto f = hn::Set(d, factors ? factors[r] : factor);
    for (int64_t c = 0; c < whole; c += kF32Lanes) {
      simd::store(hn::Mul(hn::Load(d, from + c), f), d, target + c);
    }
    if (whole < head_size) {
      simd::store_n(hn::Mul(hn::Load(d, from + whole), f), d, target + whole, head_size - whole);
    }
  }
}

// Finishes forward for `count` queries: out = sums / softmax sum; lse = ln of the softmax sum plus
// the maximum, which is in units of log2. `factors` is scratch.
template <typename T>
void write_rows(const Problem& p, int64_t batch, int64_t head, int64_t row, int64_t count,
                const float* sums, const float* maximum, const float* sum, float* factors) {
  constexpr float kLn2 = 0.693147181f;
  for (int64_t i = 0; i < count; ++i) {
    const bool saw_keys = sum[i] != 0.f;  // also true if the sum is NaN
    p.lse_at(batch, head, row + i) = saw_keys ? (maximum[i] + std::log2(sum[i])) * kLn2 : kNegInf;
    factors[i] = saw_keys ? 1.f / sum[i] : 0.f;
  }
  unpack_rows<T>(sums, p.ld(), factors, 0.f, p.out, batch, row, head, count, p.head_size);
}

inline void zero(float* to, int64_t count) {
  const F32Tag d;
  for (int64_t i = 0; i < count; i += kF32Lanes) hn::Store(hn::Zero(d), d, to + i);
}

// Computes to[c][r] = from[r][c] * factor for r < rows, c < cols; `to` has kTile columns. Rows of
// `to` are padded with zeros to a whole vector. Writes up to 3 rows of `to` beyond `cols`.
inline void pack_transposed(const float* HWY_RESTRICT from, int64_t ld, int64_t rows, int64_t cols,
                            float factor, float* HWY_RESTRICT to) {
  const hn::CappedTag<float, 4> d;
  const hn::Repartition<uint64_t, decltype(d)> d64;
  const auto f = hn::Set(d, factor);
  const auto row = [=](int64_t r, int64_t c) HWY_ATTR {
    return r < rows ? hn::Mul(hn::Load(d, from + r * ld + c), f) : hn::Zero(d);
  };
  for (int64_t r = 0; r < round_up(rows, kF32Lanes); r += 4) {
    for (int64_t c = 0; c < cols; c += 4) {
      const auto v0 = row(r, c), v1 = row(r + 1, c), v2 = row(r + 2, c), v3 = row(r + 3, c);
      const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, v0, v1));
      const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, v2, v3));
      const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, v0, v1));
      const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, v2, v3));
      float* block = to + c * kTile + r;
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, block);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, block + kTile);
      hn::Store(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, block + 2 * kTile);
      hn::Store(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, block + 3 * kTile);
    }
  }
}

// ---- Matmuls in registers ----

// Computes c (+)= a b. Each element of c is one chain of FMAs in the order of `depth`, for any
// division of rows and columns into micro-tiles, so the bits of a gradient do not depend on the
// parallel scheme.
struct Product {
  const float* a;  // [rows][lda], or [depth][lda] if transposed
  int64_t lda;
  const float* b;  // [depth][ldb]
  int64_t ldb;
  float* c;  // [rows][ldc]
  int64_t ldc;
  int64_t depth;
  bool accumulate;         // false: c starts at zero
  const float* row_scale;  // optional: c starts at c * row_scale[row]
};

template <int kRows, int kVecs, bool kTransposed>
void micro_product(const Product& p) {
  const F32Tag d;
  // Local copies, because the compiler must assume that stores to c change what p points to.
  const float* HWY_RESTRICT a = p.a;
  const float* HWY_RESTRICT b = p.b;
  float* HWY_RESTRICT c = p.c;
  const int64_t ldb = p.ldb, ldc = p.ldc, depth = p.depth;
  const int64_t row_step = kTransposed ? 1 : p.lda, depth_step = kTransposed ? p.lda : 1;

  F32Vec acc[kRows][kVecs];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::Zero(d);
  }
  if (p.accumulate) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::Load(d, c + r * ldc + v * kF32Lanes);
    }
    if (p.row_scale != nullptr) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const auto scale = hn::Set(d, p.row_scale[r]);
#pragma GCC unroll 8
        for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::Mul(acc[r][v], scale);
      }
    }
  }
  for (int64_t k = 0; k < depth; ++k, a += depth_step, b += ldb) {
    F32Vec row[kVecs];
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) row[v] = hn::Load(d, b + v * kF32Lanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(d, a[r * row_step]);
#pragma GCC unroll 8
      for (int v = 0; v < kVecs; ++v) acc[r][v] = hn::MulAdd(factor, row[v], acc[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVecs; ++v) hn::Store(acc[r][v], d, c + r * ldc + v * kF32Lanes);
  }
}

template <int kVecs, bool kTransposed>
HWY_INLINE void product_rows(const Product& p, int64_t rows) {
  switch (rows) {
    case 6: return micro_product<6, kVecs, kTransposed>(p);
    case 5: return micro_product<5, kVecs, kTransposed>(p);
    case 4: return micro_product<4, kVecs, kTransposed>(p);
    case 3: return micro_product<3, kVecs, kTransposed>(p);
    case 2: return micro_product<2, kVecs, kTransposed>(p);
    default: return micro_product<1, kVecs, kTransposed>(p);
  }
}

// Requires 1 <= rows <= kMicroRows, 1 <= vecs <= kMicroVecs.
template <bool kTransposed>
HWY_INLINE void product(const Product& p, int64_t rows, int64_t vecs) {
  if constexpr (kMicroVecs > 2) {
    if (vecs == 4) return product_rows<4, kTransposed>(p, rows);
    if (vecs == 3) return product_rows<3, kTransposed>(p, rows);
  }
  if (vecs == 2) return product_rows<2, kTransposed>(p, rows);
  product_rows<1, kTransposed>(p, rows);
}

// Returns the number of vectors of the panel that starts at `begin`: the vectors up to `end` are
// divided into as few and as even panels as possible.
inline int64_t panel_vecs(int64_t begin, int64_t end) {
  const int64_t left = end - begin;
  return ceil_div(left, ceil_div(left, kMicroVecs));
}

// ---- The three matmuls on tiles. Query i of the block sees keys j <= i + diagonal of the tile,
// starting with first_keys[i]. Fully masked parts are neither computed nor read. ----

struct TileShape {
  int64_t queries, keys;  // sizes of this tile; keys == 0: no query sees it
  int64_t head_size, ld;
  int64_t diagonal;
  int64_t key;              // first key of the tile
  // [kTile]: first key that each query sees, counted from the sequence's first key; null: no key is
  // hidden
  const float* first_keys;

  int64_t query_vecs() const { return ceil_div(queries, kF32Lanes); }
  int64_t head_vecs() const { return ceil_div(head_size, kF32Lanes); }
  // Returns the number of keys that query i sees; earlier queries see at most as many.
  int64_t keys_of(int64_t query) const {
    return std::clamp<int64_t>(query + diagonal + 1, 0, keys);
  }
  int64_t first_query_of(int64_t row) const { return std::max<int64_t>(row - diagonal, 0); }
  int64_t first_key_of(int64_t query) const {
    if (first_keys == nullptr) return 0;
    return std::clamp<int64_t>(static_cast<int64_t>(first_keys[query]) - key, 0, keys);
  }
  // Returns one past the last query whose first key is at most key `row` of the tile.
  int64_t end_query_of(int64_t row) const {
    int64_t end = queries;
    while (end > 0 && first_key_of(end - 1) > row) --end;
    return end;
  }
};

// Computes scores[key][query] = rows[key] . columns[:, query].
inline void scores_product(const TileShape& t, const float* rows, const float* columns,
                           float* scores) {
  for (int64_t v = 0, vecs; v < t.query_vecs(); v += vecs) {
    vecs = panel_vecs(v, t.query_vecs());
    for (int64_t r = 0, count; r < t.keys; r += count) {
      count = std::min<int64_t>(kMicroRows, t.keys - r);
      const int64_t first = std::max(v, t.first_query_of(r) / kF32Lanes);
      if (first >= v + vecs) break;  // the vectors of this panel do not see later keys either
      const int64_t end = std::min(v + vecs, ceil_div(t.end_query_of(r + count - 1), kF32Lanes));
      if (end <= first) continue;
      const int64_t column = first * kF32Lanes;
      product<false>({rows + r * t.ld, t.ld, columns + column, kTile, scores + r * kTile + column,
                      kTile, t.head_size, false, nullptr},
                     count, end - first);
    }
  }
}

// Computes sums[query] = sums[query] * row_scale[query] + sum over keys of weights[key][query] *
// rows[key]. A null row_scale counts as 1.
inline void query_product(const TileShape& t, const float* weights, const float* rows, float* sums,
                          const float* row_scale) {
  for (int64_t v = 0, vecs; v < t.head_vecs(); v += vecs) {
    vecs = panel_vecs(v, t.head_vecs());
    const int64_t column = v * kF32Lanes;
    for (int64_t r = 0, count; r < t.queries; r += count) {
      count = std::min<int64_t>(kMicroRows, t.queries - r);
      const int64_t end = t.keys_of(r + count - 1), begin = std::min(t.first_key_of(r), end);
      product<true>(
          {weights + begin * kTile + r, kTile, rows + begin * t.ld + column, t.ld,
           sums + r * t.ld + column, t.ld, end - begin, true, row_scale ? row_scale + r : nullptr},
          count, vecs);
    }
  }
}

// Computes sums[key] += sum over queries of weights[key][query] * rows[query].
inline void key_product(const TileShape& t, const float* weights, const float* rows, float* sums) {
  for (int64_t v = 0, vecs; v < t.head_vecs(); v += vecs) {
    vecs = panel_vecs(v, t.head_vecs());
    const int64_t column = v * kF32Lanes;
    for (int64_t r = 0, count; r < t.keys; r += count) {
      count = std::min<int64_t>(kMicroRows, t.keys - r);
      const int64_t first = t.first_query_of(r);
      if (first >= t.queries) break;
      const int64_t end = t.end_query_of(r + count - 1);
      if (end <= first) continue;
      product<false>({weights + r * kTile + first, kTile, rows + first * t.ld + column, t.ld,
                      sums + r * t.ld + column, t.ld, end - first, true, nullptr},
                     count, vecs);
    }
  }
}

// Returns the mask of the queries of vector v that see key `row` of the tile.
HWY_INLINE hn::Mask<F32Tag> visible(const TileShape& t, int64_t v, int64_t row) {
  const F32Tag d;
  const auto query = hn::Iota(d, static_cast<float>(v * kF32Lanes));
  const auto late = hn::Ge(query, hn::Set(d, static_cast<float>(row - t.diagonal)));
  if (t.first_keys == nullptr) return late;
  const auto first = hn::Load(d, t.first_keys + v * kF32Lanes);
  return hn::And(late, hn::Ge(hn::Set(d, static_cast<float>(t.key + row)), first));
}

// The keys of a tile that the queries of vector v see. At least one query sees the keys [begin,
// end). All of them see the keys [all_begin, all_end).
struct SeenKeys {
  int64_t begin, all_begin, all_end, end;
};
inline SeenKeys seen_keys(const TileShape& t, int64_t v) {
  const int64_t first = v * kF32Lanes, last = first + kF32Lanes - 1;
  SeenKeys seen{t.first_key_of(first), t.first_key_of(last), t.keys_of(first), t.keys_of(last)};
  seen.begin = std::min(seen.begin, seen.end);
  seen.all_begin = std::min(seen.all_begin, seen.end);
  seen.all_end = std::clamp(seen.all_end, seen.all_begin, seen.end);
  return seen;
}

// Applies the softcap to the visible scores.
inline void cap_scores(const TileShape& t, float limit, float* scores) {
  const F32Tag d;
  const auto most = hn::Set(d, limit), inverse = hn::Set(d, 1.f / limit);
  for (int64_t v = 0; v < t.query_vecs(); ++v) {
    const SeenKeys seen = seen_keys(t, v);
    for (int64_t k = seen.begin; k < seen.end; ++k) {
      float* const at = scores + k * kTile + v * kF32Lanes;
      hn::Store(capped(hn::Load(d, at), most, inverse), d, at);
    }
  }
}

// Returns the TileShape of the scores of query block `block` of sequence b and key tile `tile`.
// first_keys: from write_first_keys(), for the queries of the block.
inline TileShape tile_shape(const Problem& p, int64_t b, int64_t block, int64_t tile,
                            const float* first_keys) {
  const int64_t query = block * kTile, key = tile * kTile;
  TileShape t;
  t.queries = std::min(kTile, p.queries - query);
  t.keys = std::min(kTile, p.keys_seen(query + t.queries) - key);
  t.head_size = p.head_size, t.ld = p.ld();
  t.diagonal = p.causal ? query + p.offset() - key : kTile;
  t.key = key;
  t.first_keys = p.first_keys != nullptr ? first_keys : nullptr;
  if (p.first_key(b, query) >= key + kTile) t.keys = 0;
  return t;
}

// Writes the first visible key of each of `count` queries from `row` on. Padding repeats the last
// one. f32 is exact up to 2^24 keys.
inline void write_first_keys(const Problem& p, int64_t b, int64_t row, int64_t count, float* to) {
  if (p.first_keys == nullptr) return;
  for (int64_t i = 0; i < kTile; ++i) {
    to[i] = static_cast<float>(p.first_key(b, row + std::min(i, count - 1)));
  }
}

// Divides a thread's scratch memory into aligned parts.
class Scratch {
 public:
  explicit Scratch(float* begin) : next_(begin) {}
  float* take(int64_t count) {
    float* const begin = next_;
    next_ += round_up(count, kMaxLanes);
    return begin;
  }

 private:
  float* next_;
};

}  // namespace shale::kernels::attention::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // include guard
