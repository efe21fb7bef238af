#pragma once

#include <algorithm>
#include <cstdint>

#include "shale/kernels/attention.h"

// Attention's arguments after all checks, as the implementations take them.
namespace shale::kernels {

inline constexpr int64_t kMaxHeadSize = 256;

// A [B, T, heads, D] view with stride 1 along D; other strides in elements.
struct HeadView {
  void* data = nullptr;
  int64_t batch_stride = 0, row_stride = 0, head_stride = 0;

  template <typename T>
  T* row(int64_t batch, int64_t row_index, int64_t head) const {
    return static_cast<T*>(data) + batch * batch_stride + row_index * row_stride +
           head * head_stride;
  }
};

// The key tiles over which a kernel iterates for one query tile, or the query tiles over which it
// iterates for one key tile. They are all tiles, or only the tiles of the blocks in `blocks`. A
// step is one iteration, which handles one tile.
struct TileList {
  const int32_t* blocks = nullptr;  // numbers of the listed blocks, ascending
  int count = -1;                   // number of listed blocks; negative: all tiles
  int tiles = 1;                    // tiles per block

  constexpr int tile(int step) const {
    if (count < 0) return step;
    const auto of_block = static_cast<unsigned>(tiles), at = static_cast<unsigned>(step);
    return static_cast<int>(static_cast<unsigned>(blocks[at / of_block]) * of_block +
                            at % of_block);
  }
  // Returns the number of steps whose tiles are before `tile`.
  constexpr int steps_before(int tile) const {
    if (count < 0 || tile == 0) return tile;
    const int block = tile / tiles;
    int begin = 0, end = count;
    while (begin < end) {
      const int middle = (begin + end) / 2;
      if (blocks[middle] < block) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    const bool is_listed = begin < count && blocks[begin] == block;
    return begin * tiles + (is_listed ? tile % tiles : 0);
  }
  constexpr bool has(int tile) const { return steps_before(tile + 1) > steps_before(tile); }
};

// One half of BlockLists: the list of key blocks of each query block, or the list of query blocks
// of each key block.
struct BlockRows {
  const int32_t* begins = nullptr;  // null: all blocks
  const int32_t* blocks = nullptr;
  int head_stride = 0;  // entries of `begins` per head; 0: all heads share one list

  // Returns the tiles over which a kernel iterates for the tile that starts at row `row` of a head.
  // Each of them has `rows` rows, a divisor of kAttentionBlock.
  constexpr TileList tiles(int head, int row, int rows) const {
    if (begins == nullptr) return {};
    const int32_t* const at =
        begins + int64_t{head} * head_stride + row / static_cast<int>(kAttentionBlock);
    return {blocks + at[0], at[1] - at[0], static_cast<int>(kAttentionBlock) / rows};
  }
};

struct AttentionProblem {
  DType dtype = DType::kF32;
  int64_t batch = 0, queries = 0, keys = 0, heads = 0, kv_heads = 0, head_size = 0;
  float scale = 0;
  float softcap = 0;  // 0: no softcap
  bool causal = false;
  AttentionTile tile = AttentionTile::kOfHeadSize;  // used by forward only
  HeadView q, k, v, out;
  HeadView dout, dq, dk, dv;  // used by backward only
  float* lse = nullptr;
  int64_t lse_batch_stride = 0, lse_head_stride = 0, lse_row_stride = 0;
  // number of queries of each sequence, in device memory; null: all have `queries`
  const int32_t* q_lengths = nullptr;
  // number of keys of each sequence, in device memory; null: all have `keys`
  const int32_t* k_lengths = nullptr;
  int64_t window = 0;                         // 0: no window
  // [batch, queries]: first_keys of the call, in device memory; null: not given
  const int32_t* given_first_keys = nullptr;
  TokenPlaces query_places, key_places;       // positions that window and given_first_keys refer to

  BlockRows keys_of_queries, queries_of_keys;

  bool hides_first_keys() const { return window > 0 || given_first_keys != nullptr; }
  // Arrays that implementations fill in from HiddenKeys for their kernels; null: no key is hidden.
  const int32_t* first_keys = nullptr;   // [batch, queries]: first key that the query sees
  const int32_t* end_queries = nullptr;  // [batch, keys]: one past the last query that sees the key
};

// The keys that a window and given_first_keys hide from the queries of one sequence, whose lengths
// are `queries` and `keys`. first_key() is the first key that a query sees, at most `keys`.
struct HiddenKeys {
  int queries = 0, keys = 0;
  int window = 0;                  // 0: no window
  const int32_t* given = nullptr;  // [queries] of this sequence; null: not given
  TokenPlaces query_places{}, key_places{};

  constexpr int first_key(int query) const {
    int first = window > 0 ? place_of(query) + 1 - window : 0;
    if (given != nullptr && given[query] > first) first = given[query];
    if (key_places.run > 0) first = static_cast<int>(key_places.before(first, keys));
    return first < 0 ? 0 : first < keys ? first : keys;
  }
  // Returns one past the last query whose first_key() is at most `key`; first_key() never
  // decreases.
  constexpr int end_query(int key) const {
    int begin = 0, end = queries;
    while (begin < end) {
      const int middle = (begin + end) / 2;
      if (first_key(middle) <= key) {
        begin = middle + 1;
      } else {
        end = middle;
      }
    }
    return begin;
  }

 private:
  constexpr int place_of(int query) const {
    if (query_places.run > 0) return static_cast<int>(query_places.of(query));
    return query + keys - queries;
  }
};

// Weights with which attention_merge adds two softmax sums, computed from their log-sum-exps.
struct MergeWeights {
  float lse, sum, part;

  // exp and log are the device's functions for f32.
  template <typename Exp, typename Log>
  constexpr MergeWeights(float of_sum, float of_part, const Exp& exp, const Log& log)
      : lse(of_sum > of_part ? of_sum : of_part), sum(0), part(0) {
    if (of_sum == of_part && of_sum < -3.5e38) return;  // both -inf: neither sum has a key
    const float largest = lse;
    sum = exp(of_sum - largest), part = exp(of_part - largest);
    const float total = sum + part;
    lse = largest + log(total);
    sum /= total, part /= total;
  }
};

// Check the arguments and convert them. Throw ShapeError and DTypeError.
AttentionProblem attention_problem(const char* op, const AttentionFwdArgs& args);
AttentionProblem attention_problem(const char* op, const AttentionBwdArgs& args);

}  // namespace shale::kernels
