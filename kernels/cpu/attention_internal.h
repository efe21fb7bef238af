#pragma once

#include <algorithm>
#include <cstdint>

#include "shale/kernels/attention_problem.h"

// What the driver (attention.cpp) and the per-instruction-set kernels (attention_fwd.cpp,
// attention_bwd.cpp) share.
namespace shale::kernels::attention {

// Queries of a block and keys of a tile. A tile of scores is 64 × 64 f32, 16 KiB, and so are the
// tiles of K, V, Q and the output at head size 64: two of them at a time stay in a 32 KiB L1, all
// of them in L2.
inline constexpr int64_t kTile = 64;
// f32 lanes of the widest vector; leading dimensions are rounded up to it on every machine, so that
// the scratch layout does not depend on the instruction set.
inline constexpr int64_t kMaxLanes = 16;
// With so few queries, vectors run along the head instead of along queries.
inline constexpr int64_t kFewQueries = 4;
// Query blocks that use a tile of K and V once it is packed. Reading its rows is slow, where a row
// is a slice of a longer one: each is on another page, and they share few sets of the cache.
inline constexpr int64_t kGroupBlocks = 4;
// With fewer tasks than this, smaller ones are made, at the price of more packing (forward) or of
// two more products (backward). Bits are the same.
inline constexpr int64_t kEnoughTasks = 8;

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
constexpr int64_t round_up(int64_t a, int64_t b) {
  return ceil_div(a, b) * b;
}

// One sequence length for all of the batch: attention.cpp sees to that.
struct Problem : AttentionProblem {
  int64_t group() const { return heads / kv_heads; }  // query heads of one kv head
  int64_t query_blocks() const { return ceil_div(queries, kTile); }
  int64_t key_tiles() const { return ceil_div(keys, kTile); }
  int64_t ld() const { return round_up(head_size, kMaxLanes); }  // of packed rows
  // Query i sees keys j <= i + offset().
  int64_t offset() const { return causal ? keys - queries : keys; }
  // The first key that query i of sequence b sees.
  int64_t first_key(int64_t b, int64_t query) const {
    return first_keys == nullptr ? 0 : first_keys[b * queries + query];
  }
  // Tiles of keys for a block of queries, and blocks of queries for a tile of keys.
  TileList key_tiles_of(int64_t head, int64_t query_block) const {
    return keys_of_queries.tiles(static_cast<int>(head), static_cast<int>(query_block * kTile),
                                 kTile);
  }
  TileList query_blocks_of(int64_t head, int64_t key_tile) const {
    return queries_of_keys.tiles(static_cast<int>(head), static_cast<int>(key_tile * kTile), kTile);
  }
  // Keys that some query before `query_end` sees.
  int64_t keys_seen(int64_t query_end) const {
    return std::clamp<int64_t>(query_end + offset(), 0, keys);
  }
  float& lse_at(int64_t b, int64_t h, int64_t row) const {
    return lse[b * lse_batch_stride + h * lse_head_stride + row * lse_row_stride];
  }
};

// Goes over the tiles of keys in [first, end), ascending, that any of some query blocks of a head
// sees:
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

// One task: its arithmetic depends on the problem and the task's number only. Tasks of one function
// write disjoint parts of the outputs. `scratch` is 64-byte aligned.
using TaskFn = void (*)(const Problem&, int64_t task, float* scratch);
struct TaskKind {
  TaskFn run = nullptr;
  int64_t tasks = 0;
  int64_t scratch_floats = 0;  // for each thread
};

constexpr TaskFn pick_dtype(DType dtype, TaskFn f32, TaskFn bf16, TaskFn f16) {
  return dtype == DType::kF32 ? f32 : dtype == DType::kBF16 ? bf16 : f16;
}

TaskKind fwd_blocks(const Problem& p);   // a task is a (batch, head, group of query blocks)
TaskKind fwd_few(const Problem& p);      // few queries; a task is a (batch, kv head)
TaskKind bwd_heads(const Problem& p);    // a task is a (batch, kv head): all gradients
TaskKind bwd_keys(const Problem& p);     // a task is a (batch, kv head, key tile): dk and dv
TaskKind bwd_queries(const Problem& p);  // a task is a (batch, head, query block): dq

}  // namespace shale::kernels::attention
