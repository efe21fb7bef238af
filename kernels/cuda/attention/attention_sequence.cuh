#pragma once

// Position of a block of an attention kernel, and the mask of its queries.

#include <algorithm>
#include <climits>

#include "shale/kernels/cuda/attention/attention_launch.h"
#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {

inline constexpr float kInfinity = INFINITY;

__device__ __forceinline__ int lane_id() {
  return static_cast<int>(threadIdx.x % kWarpSize);
}

// Tile, sequence and head of a block. Recomputing it is cheap if a kernel is short of registers.
struct BlockPlace {
  int tile, batch, head;
};
__device__ __forceinline__ BlockPlace place_in_order(const BlockOrder& order, int64_t heads,
                                                     int block) {
  const int heads_of_sequence = static_cast<int>(heads);
  const int section = block / (order.tiles * order.heads_at_once);
  const int first = section * order.heads_at_once;
  const int width = std::min(order.heads_at_once, order.heads - first);
  const int within = block - first * order.tiles;
  const int tile = within / width, head = first + within % width;
  return {order.last_first ? order.tiles - 1 - tile : tile, head / heads_of_sequence,
          head % heads_of_sequence};
}
__device__ __forceinline__ BlockPlace block_place(const BlockOrder& order, int64_t heads) {
  return place_in_order(order, heads, opaque(static_cast<int>(blockIdx.x)));
}

// One sequence of the batch: its lengths and mask.
struct Sequence {
  const AttentionProblem& problem;
  int batch, queries, keys;
  bool causal;

  __device__ __forceinline__ Sequence(const AttentionProblem& p, int number)
      : problem(p),
        batch(number),
        queries(length(p.q_lengths, number, p.queries)),
        keys(length(p.k_lengths, number, p.keys)),
        causal(p.causal) {}

  // Query i sees keys first_key(i) <= j < visible_keys(i), or none if visible_keys(i) < 1. Key j is
  // seen by queries first_query(j) <= i < end_query(j).
  __device__ __forceinline__ int visible_keys(int query) const {
    return causal ? std::min(keys, query + 1 + keys - queries) : keys;
  }
  __device__ __forceinline__ int first_query(int key) const {
    if (key >= keys) return queries;
    return causal ? key - (keys - queries) : 0;
  }
  // For queries beyond the sequence's end, first_key() returns the value of the last query. For
  // keys beyond the end, end_query() returns the value of the last key.
  __device__ __forceinline__ int first_key(int query) const {
    if (problem.first_keys == nullptr) return 0;
    return problem.first_keys[batch * problem.queries + std::max(0, std::min(query, queries - 1))];
  }
  __device__ __forceinline__ int end_query(int key) const {
    if (problem.end_queries == nullptr) return INT_MAX;
    return problem.end_queries[batch * problem.keys + std::max(0, std::min(key, keys - 1))];
  }

 private:
  __device__ __forceinline__ static int length(const int32_t* lengths, int batch, int64_t longest) {
    const int most = static_cast<int>(longest);
    if (lengths == nullptr) return most;
    const int own = lengths[batch];
    return own < 0 ? 0 : own < most ? own : most;
  }
};

// Returns the number of keys that a tile of queries iterates over.
__device__ __forceinline__ int seen_keys(const Sequence& sequence, int first_query, int queries) {
  const int last = std::min(first_query + queries, sequence.queries) - 1;
  return last < first_query ? 0 : std::max(0, sequence.visible_keys(last));
}

// The TileList of problems without BlockLists: all tiles, known at compile time, because iterating
// over a list costs registers.
struct AllTiles {
  static constexpr int tile(int step) { return step; }
  static constexpr int steps_before(int tile) { return tile; }
};

template <bool kLists>
__device__ __forceinline__ auto tiles_of(const BlockRows& blocks, int head, int row, int rows) {
  if constexpr (kLists) {
    return blocks.tiles(head, row, rows);
  } else {
    return AllTiles{};
  }
}

// A tile of queries of one head, and the keys that these queries see. Recomputing it is cheap.
// kLists: the problem may have BlockLists.
template <bool kLists = false>
struct QueryTile {
  BlockPlace place;
  Sequence sequence;
  int kv_head, query, seen;  // query: first query; seen: one past the last key that queries see

  __device__ __forceinline__ QueryTile(const AttentionParams& p, const BlockPlace& at, int queries)
      : place(at),
        sequence(p, at.batch),
        kv_head(at.head / static_cast<int>(p.heads / p.kv_heads)),
        query(at.tile * queries),
        seen(seen_keys(sequence, query, queries)) {}

  // Returns the list of key tiles of `keys` keys each. The queries see keys of the tiles of steps
  // [first_step, end_step).
  __device__ __forceinline__ auto tiles(int keys) const {
    return tiles_of<kLists>(sequence.problem.keys_of_queries, place.head, query, keys);
  }
  __device__ __forceinline__ int end_step(int keys) const {
    return tiles(keys).steps_before((seen + keys - 1) / keys);
  }
  __device__ __forceinline__ int first_step(int keys) const {
    return std::min(tiles(keys).steps_before(sequence.first_key(query) / keys), end_step(keys));
  }
  __device__ __forceinline__ int key_of(int step, int keys) const {
    return tiles(keys).tile(step) * keys;
  }
};

// A tile of keys of one kv head, which `group` query heads share.
struct KeyTile {
  BlockPlace place;
  Sequence sequence;
  int group, key;  // group: query heads per kv head; key: first key of the tile

  __device__ __forceinline__ KeyTile(const AttentionParams& p, const BlockPlace& at, int keys)
      : place(at),
        sequence(p, at.batch),
        group(static_cast<int>(p.heads / p.kv_heads)),
        key(at.tile * keys) {}
};

// Iterates, for a block that owns kKeys keys from `key` on, over all tiles of kQueries queries that
// see these keys, head by head. kLists: the problem may have BlockLists.
template <int kKeys, int kQueries, bool kLists = false>
struct QueryStep {
  const Sequence& sequence;
  int key, head, first, end, step;  // first, end, step: of the tile list of head `head`

  __device__ __forceinline__ QueryStep(const Sequence& of, int first_key, int first_head)
      : sequence(of), key(first_key), head(first_head) {
    begin_head();
  }
  // Goes to the first step. Returns the total number of steps of `heads` heads, of which the
  // current head is the first.
  __device__ __forceinline__ int count(int heads) {
    if (!tiles_of_heads_differ()) return std::max(0, end - first) * heads;
    const int first_head = head, end_head = head + heads;
    int steps = 0;
    for (; head < end_head; ++head) {
      begin_head();
      steps += std::max(0, end - first);
    }
    head = first_head;
    begin_head();
    if (steps > 0) skip_heads();
    return steps;
  }
  __device__ __forceinline__ int query() const { return tiles().tile(step) * kQueries; }
  // Goes to the next step, which must exist.
  __device__ __forceinline__ void advance() {
    if (++step < end) return;
    ++head;
    if (tiles_of_heads_differ()) {
      begin_head();
      skip_heads();
    } else {
      step = first;
    }
  }

 private:
  __device__ __forceinline__ auto tiles() const {
    return tiles_of<kLists>(sequence.problem.queries_of_keys, head, key, kQueries);
  }
  __device__ __forceinline__ bool tiles_of_heads_differ() const {
    return kLists && sequence.problem.queries_of_keys.head_stride != 0;
  }
  __device__ __forceinline__ void begin_head() {
    const auto all = tiles();
    const int end_query = std::min(sequence.queries, sequence.end_query(key + kKeys - 1));
    first = all.steps_before(std::max(0, sequence.first_query(key)) / kQueries);
    end = all.steps_before((end_query + kQueries - 1) / kQueries);
    step = first;
  }
  __device__ __forceinline__ void skip_heads() {
    while (first >= end) {
      ++head;
      begin_head();
    }
  }
};

template <typename T>
__device__ __forceinline__ T* head_rows(const HeadView& view, int batch, int head) {
  return static_cast<T*>(view.data) + batch * view.batch_stride + head * view.head_stride;
}

}  // namespace shale::kernels::SHALE_BACKEND
