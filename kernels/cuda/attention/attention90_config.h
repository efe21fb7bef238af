#pragma once

#include "shale/kernels/cuda/attention/attention90.h"

// Tiles of Hopper's attention kernels, by head size. They are limited as follows: a block fills the
// multiprocessor, with 227 KiB of shared memory and 64K registers, most of which the loading
// warpgroup leaves to the computing ones. The sizes are derived from these limits and not measured.
namespace shale::kernels::SHALE_BACKEND {

// Forward: each of `consumers` warpgroups owns 64 queries and iterates over tiles of `keys`, with
// `stages` tiles in shared memory or in flight. A thread holds keys / 2 scores in f32 and, from the
// tile before, as many probabilities in half as many registers, and head_size / 2 values of out:
//
//   head size   queries   keys   values of a thread   registers    shared memory
//   64          192       128    64 + 32 + 32         160 and 32   24 + 4 * 32 + 24 KiB
//   64, capped  192       96     48 + 24 + 32         160 and 32   24 + 4 * 24 + 24 KiB
//   96          128       128    64 + 32 + 48         232 and 40   32 + 2 * 64 + 32 KiB
//   128         128       128    64 + 32 + 64         232 and 40   32 + 2 * 64 + 32 KiB
//   192         128       96     48 + 24 + 96         232 and 40   48 + 2 * 72 KiB
//   256         128       64     32 + 16 + 128        232 and 40   64 + 2 * 64 KiB
//
// (Registers of a computing and of a loading thread. Shared memory of Q, of the stages of K and V,
// and of out, which reuses Q's memory from 192 on. Heads of 96 use the memory of 128. A softcap
// needs registers.) At 64 a matmul takes half the time, and K and V are needed twice as fast: three
// warpgroups share each byte of them, because two would need more than the L2 cache delivers (128
// queries: 32 KiB in about 1024 cycles of exponentials, which exceeds the 24 bytes per cycle that a
// multiprocessor gets). All registers are used: 504 per thread position in three warpgroups, or 512
// in four.
//
// At 64, exponentials are the limit too: for one tile, 12 warps keep their pipe busy for 1536
// cycles, and the tensor cores are busy for as long. With every seventh exponential on the FMA pipe
// it is 1296 cycles, and issuing all instructions takes 1317.
struct Fwd90Config {
  int consumers, keys, stages, producer_registers, consumer_registers;
  int by_fma;       // every by_fma-th exponential is on the FMA pipe; 0: none
  bool out_over_q;  // a warpgroup's rows of out reuse the memory of its queries
  constexpr int queries() const { return 64 * consumers; }
  constexpr int threads() const { return 128 * (consumers + 1); }
};
constexpr Fwd90Config fwd90_config(int head_size, bool capped) {
  if (head_size == 64) {
    return {.consumers = 3,
            .keys = capped ? 96 : 128,
            .stages = 4,
            .producer_registers = 32,
            .consumer_registers = 160,
            .by_fma = capped ? 0 : 7,
            .out_over_q = false};
  }
  return {.consumers = 2,
          .keys = head_size == 256 ? 64 : head_size == 192 ? 96 : 128,
          .stages = 2,
          .producer_registers = 40,
          .consumer_registers = 232,
          .by_fma = 0,
          .out_over_q = head_size >= 192};
}

// Backward by keys: each of two warpgroups owns 64 keys, and both iterate over tiles of `queries`
// of all heads of the group. A thread holds head_size values of dK and dV, and queries / 2 scores
// and as many gradients, which become operands in half as many registers. Later it holds 32 values
// of dQ, besides those operands and the scores of the next tile:
//
//   head size   queries   values of a thread        shared memory
//   64          128       64 + (128 or 64 + 32)     32 + 2 * 33 + 3 * 32 + 32 KiB
//   96          64        96 + (64 or 32 + 32)      64 + 2 * 32.5 + 3 * 16 + 32 KiB
//   128         64        128 + (64 or 32 + 32)     64 + 2 * 32.5 + 2 * 16 + 32 KiB
//
// (K and V; stages of Q, dO and their sums; dS; dQ on its way to memory). The warpgroups divide a
// tile of dQ by rows at 64, else by columns: 64 by 64 each; at 96 the second part has 32 columns of
// zeros. There are two buffers of dS, so that one barrier per step is enough, and three if dQ is
// computed one step later, concurrently with that step's dS and the next one's scores, for which
// there are no registers at 128. At 64 this uses all of the 227 KiB.
inline constexpr int kBwd90Consumers = 2, kBwd90Keys = 128;
inline constexpr int kBwd90Stages = 2;
inline constexpr int kBwd90Threads = 128 * (kBwd90Consumers + 1);
inline constexpr int kBwd90ProducerRegisters = 40, kBwd90ConsumerRegisters = 232;
constexpr int bwd90_queries(int head_size) {
  return head_size == 64 ? 128 : 64;
}
// Returns whether a step computes dQ of the step before.
constexpr bool bwd90_dq_is_late(int head_size) {
  return head_size == 64 || head_size == 96;
}

// Heads of 192 and 256 (attention90_bwd_keys_wide.cuh): dK and dV of 128 keys would need more
// registers than there are. So a block owns 64 keys and iterates over tiles of 64 queries. Each
// warpgroup has the scores of 32 queries of a tile, and the sums of half of the head's columns; at
// 192, one box of 64 columns of dK and two of dV, or the other way round. A thread holds head_size
// / 2 values of dK and dV, 16 scores and 16 gradients, which become operands in half as many
// registers. Later it holds 32 values of dQ besides the scores of the next tile:
//
//   head size   values of a thread            shared memory
//   192         96 + (16 + 16 or 32 + 16)     48 + 2 * 48.5 + 2 * 8 + 32 KiB
//   256         128 + (16 + 16 or 32 + 16)    64 + 2 * 64.5 + 2 * 8 + 16 KiB
//
// (K and V; stages of Q, dO and their sums; P^T and dS^T; one or two pieces of 16 by 32 of dQ per
// warp on their way to memory). At 256 this is all but one of the 227 KiB.
//
// At 256 a step keeps the tensor cores busy for 2,560 cycles, but its 64 KiB of Q and dO and the 64
// KiB that are added to dQ pass the L2 cache at about 24 bytes per cycle, which takes 5,461 cycles.
// So the L2 cache is the limit, at half of the tensor cores' peak. At 192 it is 1,920 and 4,096
// cycles. This is a prediction that no GPU has confirmed.
constexpr bool is_bwd90_wide(int head_size) {
  return head_size > 128;
}
inline constexpr int kBwd90WideKeys = 64, kBwd90WideQueries = 64;
constexpr int bwd90_wide_dq_ways(int head_size) {
  return head_size == 256 ? 1 : 2;
}

// Backward by queries, for dQ without atomics: a warpgroup owns 64 queries. A thread holds
// head_size / 2 values of dQ, keys / 2 scores and as many gradients, and operands in a quarter of
// those registers:
//
//   head size   keys   values of a thread   shared memory
//   64          128    32 + 128 + 32        32 + 2 * 32 KiB
//   96          64     48 + 64 + 16         64 + 2 * 32 KiB
//   128         64     64 + 64 + 16         64 + 2 * 32 KiB
//   192         64     96 + 64 + 16         96 + 2 * 48 KiB
//   256         48     128 + 48 + 12        128 + 2 * 48 KiB
inline constexpr int kBwd90TileQueries = 64 * kBwd90Consumers;
constexpr int bwd90_keys_of_queries(int head_size) {
  return head_size == 64 ? 128 : head_size == 256 ? 48 : 64;
}

}  // namespace shale::kernels::SHALE_BACKEND
