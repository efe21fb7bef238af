#pragma once

#include "shale/kernels/attention.h"
#include "shale/kernels/simt/backend.h"

// Tiles of the attention kernels, by the head size that they are compiled for. Other head sizes are
// padded with zeros to the next of 64, 96, 128 and 256 in shared memory. Limits: a thread has 255
// registers, an SM 64K registers and 163 KiB (sm_80) or 227 KiB (sm_90) of shared memory, from
// which it reads 128 bytes per cycle.
namespace shale::kernels::SHALE_BACKEND {

// Shared memory that a block may use: enough for the default tiles or, on GPUs with less, 99 KiB
// (graphics) or 64 KiB (compute capability 7.5).
enum class Room : uint8_t { kUsual, kGraphics, kLeast };

// True if this build has the tiles for 64 KiB: the emulator has them, and so have CUDA builds with
// 7.5 among SHALE_CUDA_ARCHITECTURES.
#if defined(__CUDACC__) && !defined(SHALE_TURING)
inline constexpr bool kHasLeastRoom = false;
#else
inline constexpr bool kHasLeastRoom = true;
#endif

// ---- 16-bit inputs, on tensor cores ----

// Forward: a block owns `queries`, the same number per warp, and iterates over tiles of `keys`.
// With heads of 64, 96, 128 and 256 a thread accumulates 128, 160, 160 and 160 values of out and
// scores, so that two blocks share an SM (three with heads of 64), and one block's matmuls overlap
// another's exponentials. Warps have 32 queries if registers allow it: a fragment of K or V from
// shared memory then serves two matmuls; otherwise shared memory would be the limit. Shared memory:
// 32, 48, 48 and 96 KiB.
//
// Heads of 128 can also use the tile 64x64, with 96 accumulators per thread, so that three blocks
// share an SM, and twice the keys between barriers; but a fragment from shared memory serves one
// matmul. 128 queries with 48 or 64 keys (FlashAttention-2's choice on an A100) do not fit the
// registers. Heads of 256 use 64x32 for 64 KiB.
struct FwdConfig {
  int queries, keys, warps;
};
constexpr AttentionTile fwd_tile(int head_size, Room room) {
  if (head_size == 256 && room == Room::kLeast) return AttentionTile::k64x32;
  switch (head_size) {
    case 64:
    case 96: return AttentionTile::k128x64;
    case 128: return AttentionTile::k128x32;
    default: return AttentionTile::k64x64;
  }
}
constexpr FwdConfig fwd_config(AttentionTile tile) {
  return {.queries = tile == AttentionTile::k64x64 || tile == AttentionTile::k64x32 ? 64 : 128,
          .keys = tile == AttentionTile::k128x32 || tile == AttentionTile::k64x32 ? 32 : 64,
          .warps = 4};
}

// Backward by keys: a block owns `keys` rows of dK and dV and iterates over tiles of `queries`. It
// has key_warps × query_warps × head_warps warps:
//   key_warps    own keys / key_warps rows each;
//   query_warps  share the queries of a tile; their dK and dV are added up at the end. Small heads
//                leave enough registers for this, and it gives a warp 32 keys instead of 16;
//   head_warps   share the columns of dK and dV, which would not fit for a large head;
//                each computes all scores, so there are seven matmuls instead of five.
// A warp processes its queries of a tile in `passes`, so that fewer scores are in registers at a
// time. The warps compute dQ of a tile in a grid with dq_row_warps rows of warps. With heads of 64,
// 96, 128 and 256 a thread accumulates 128, 96, 128 and 128 values of dK and dV besides 32, 32, 32
// and 16 scores and their gradients: one block of 8 warps per SM. Shared memory: 81, 113, 145 and
// 133 KiB.
struct BwdKeysConfig {
  int queries, keys, key_warps, query_warps, head_warps, dq_row_warps, passes;
  constexpr int warps() const { return key_warps * query_warps * head_warps; }
};
// With 99 KiB of shared memory, heads of 96, 128 and 256 use 81, 69 and 98 KiB. With 64 KiB, heads
// of 64, 96 and 128 use 57, 53 and 51 KiB; 256 is not supported. Blocks have fewer keys, so they
// add to dQ more often.
constexpr BwdKeysConfig bwd_keys_config(int head_size, Room room) {
  BwdKeysConfig config{.queries = 64,
                       .keys = 128,
                       .key_warps = 8,
                       .query_warps = 1,
                       .head_warps = 1,
                       .dq_row_warps = 4,
                       .passes = 2};
  if (head_size == 64) {
    config.key_warps = 4, config.query_warps = 2;
  } else if (head_size == 128) {
    config.dq_row_warps = 2;
  } else if (head_size == 256) {
    config.queries = 32, config.keys = 64;
    config.key_warps = 4, config.head_warps = 2, config.dq_row_warps = 2;
  }
  if (room != Room::kUsual) {
    if (head_size == 128) config.passes = 1;
    config.keys = head_size == 256 ? 32 : 64, config.key_warps = config.keys / 16;
    if (head_size < 256) config.query_warps = 2;
    if (head_size == 256) config.head_warps = 4;
    if (head_size > 96) config.queries = 32, config.dq_row_warps = 2;
  }
  if (room == Room::kLeast && (head_size == 96 || head_size == 128)) {
    config.passes = 1;
    if (head_size == 96) config.queries = 32, config.query_warps = 1, config.dq_row_warps = 2;
    if (head_size == 128) config.keys = 32, config.key_warps = 2;
  }
  return config;
}

// Backward by queries, for dQ without atomics: like forward with a third matmul. For heads of 64,
// 96, 128 and 256 a thread has 96, 112, 128 and 160 accumulators, and a block uses 48, 72, 96 and
// 128 KiB of shared memory. With 99 KiB, heads of 256 use 96 KiB. With 64 KiB, heads of 96 and 128
// use 48 KiB, and 256 is not supported.
struct BwdQueriesConfig {
  int queries, keys, warps;
};
constexpr BwdQueriesConfig bwd_queries_config(int head_size, Room room) {
  if (room == Room::kUsual) return {.queries = 64, .keys = head_size > 128 ? 32 : 64, .warps = 4};
  const bool twice = room == Room::kLeast && head_size <= 96;
  return {.queries = 64, .keys = twice ? 32 : 16, .warps = 4};
}

// Backward pads the number of queries to a multiple of this number, which is a multiple of every
// tile, also Hopper's.
inline constexpr int kQueryPadding = 128;

// ---- f32, by FMA: 16 × 16 threads; each has a square of the tile's scores ----

// Number of queries and of keys in a tile. Backward of heads above 128 does not support 64 KiB.
constexpr int f32_tile(int head_size, Room room) {
  if (room == Room::kLeast) return head_size > 64 ? 16 : 32;
  return room == Room::kGraphics ? 16 : head_size > 64 ? 32 : 64;
}

}  // namespace shale::kernels::SHALE_BACKEND
