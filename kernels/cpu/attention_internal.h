#pragma once

#include <algorithm>
#include <cstdint>

#include "shale/kernels/attention_problem.h"

// Declarations that the driver (attention.cpp) and the per-instruction-set kernels
// (attention_fwd.cpp, attention_bwd.cpp) share.
namespace shale::kernels::attention {

// Number of queries in a block and of keys in a tile. A tile of scores is 64 × 64 f32, 16 KiB, and
// so are the tiles of K, V, Q and the output at head size 64: two of them fit a 32 KiB L1 cache,
// all of them fit L2.
inline constexpr int64_t kTile = 64;
// Number of f32 lanes of the widest vector. Leading dimensions are rounded up to a multiple of it
// on every machine, so that the scratch layout does not depend on the instruction set.
inline constexpr int64_t kMaxLanes = 16;
// Maximum number of queries for which vectors run along the head instead of along queries.
inline constexpr int64_t kFewQueries = 4;
// Number of query blocks that reuse a packed tile of K and V. Reading rows of K and V is slow if
// they are slices of longer rows: each row is on another page, and all rows compete for few cache
// sets.
inline constexpr int64_t kGroupBlocks = 4;
// Minimum number of tasks. If there would be fewer, tasks are made smaller, which costs more
// packing (forward) or two more matmuls (backward). The bits of the results are the same.
inline constexpr int64_t kEnoughTasks = 8;

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
constexpr int64_t round_up(int64_t a, int64_t b) {
  return ceil_div(a, b) * b;
}

// A problem whose sequences all have the same length; attention.cpp ensures this.
struct Problem : AttentionProblem {
  int64_t group() const { return heads / kv_heads; }  // query heads of one kv head
  int64_t query_blocks() const { return ceil_div(queries, kTile); }
  int64_t key_tiles() const { return ceil_div(keys, kTile); }
  // Leading dimension of packed rows, in floats.
  int64_t ld() const { return round_up(head_size, kMaxLanes); }
  // Query i sees keys j <= i + offset(), or all keys without a causal mask.
  int64_t offset() const { return causal ? keys - queries : keys; }
  // Returns the first key that query i of sequence b sees.
  int64_t first_key(int64_t b, int64_t query) const {
    return first_keys == nullptr ? 0 : first_keys[b * queries + query];
  }
  // Return the key tiles of a query block, and the query blocks of a key tile.
  TileList key_tiles_of(int64_t head, int64_t query_block) const {
    return keys_of_queries.tiles(static_cast<int>(head), static_cast<int>(query_block * kTile),
                                 kTile);
  }
  TileList query_blocks_of(int64_t head, int64_t key_tile) const {
    return queries_of_keys.tiles(static_cast<int>(head), static_cast<int>(key_tile * kTile), kTile);
  }
  // Returns the number of keys that at least one query before `query_end` sees.
  int64_t keys_seen(int64_t query_end) const {
    return std::clamp<int64_t>(query_end + offset(), 0, keys);
  }
  float& lse_at(int64_t b, int64_t h, int64_t row) const {
    return lse[b * lse_batch_stride + h * lse_head_stride + row * lse_row_stride];
  }
};

// Iterates in ascending order over the key tiles in [first, end) that at least one of `count` query
// blocks of a head sees:
//   while (walk.next()) ... walk.tile() ... walk.sees(i) ...
class TileWalk {
 public:
  TileWalk(const Problem& p, int64_t head, int64_t first_block, int64_t count, int64_t first,
           int64_t end)
      : count_(count) {
    for (int64_t i = 0; i < count; ++i) {
      lists_[i] = p.key_tiles_of(head, first_block + i);
      steps_[i] = lists_[i].steps_before(static_cast<int>(first));
      ends_[i] = lists_[i].steps_before(static_cast<int>(std::max(first, end)));
    }
  }
  bool next() {
    const int64_t before = tile_;
    tile_ = -1;
    for (int64_t i = 0; i < count_; ++i) {
      if (before >= 0 && sees(i, before)) ++steps_[i];
      if (steps_[i] == ends_[i]) continue;
      const int64_t next = lists_[i].tile(steps_[i]);
      tile_ = tile_ < 0 ? next : std::min(tile_, next);
    }
    return tile_ >= 0;
  }
  int64_t tile() const { return tile_; }
  bool sees(int64_t i) const { return sees(i, tile_); }

 private:
  bool sees(int64_t i, int64_t tile) const {
    return steps_[i] < ends_[i] && lists_[i].tile(steps_[i]) == tile;
  }

  int64_t count_, tile_ = -1;
  TileList lists_[kGroupBlocks];
  int steps_[kGroupBlocks], ends_[kGroupBlocks];
};

// Runs one task. The result depends only on the problem and the task's number. Tasks of one
// function write disjoint parts of the outputs. `scratch` is 64-byte aligned.
using TaskFn = void (*)(const Problem&, int64_t task, float* scratch);
struct TaskKind {
  TaskFn run = nullptr;
  int64_t tasks = 0;
  int64_t scratch_floats = 0;  // f32 of scratch memory per thread
};

constexpr TaskFn pick_dtype(DType dtype, TaskFn f32, TaskFn bf16, TaskFn f16) {
  return dtype == DType::kF32 ? f32 : dtype == DType::kBF16 ? bf16 : f16;
}

TaskKind fwd_blocks(const Problem& p);   // one task per (batch, head, group of query blocks)
TaskKind fwd_few(const Problem& p);      // for few queries: one task per (batch, kv head)
TaskKind bwd_heads(const Problem& p);    // dq, dk and dv: one task per (batch, kv head)
TaskKind bwd_keys(const Problem& p);     // dk and dv: one task per (batch, kv head, key tile)
TaskKind bwd_queries(const Problem& p);  // dq: one task per (batch, head, query block)

}  // namespace shale::kernels::attention
