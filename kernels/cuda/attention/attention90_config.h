#pragma once

#include "shale/kernels/cuda/attention/attention90.h"

// Tiles of Hopper's attention kernels, by head size. What limits them: a block fills the
// multiprocessor, with 227 KiB of shared memory and 64K registers, of which the warpgroup that
// loads leaves most to those that compute. These sizes are reasoned from that, and to be measured.
namespace shale::kernels::SHALE_BACKEND {

// Forward: each of `consumers` warpgroups owns 64 queries and goes over tiles of `keys`, of which
// `stages` are in shared memory or on their way. A thread holds keys / 2 scores in f32 and, from
// the tile before, as many probabilities in half as many registers, besides head_size / 2 values of
// out:
//
//   head size   queries   keys   values of a thread   registers    shared memory
//   64          192       128    64 + 32 + 32         160 and 32   24 + 4 * 32 + 24 KiB
//   64, capped  192       96     48 + 24 + 32         160 and 32   24 + 4 * 24 + 24 KiB
//   96          128       128    64 + 32 + 48         232 and 40   32 + 2 * 64 + 32 KiB
//   128         128       128    64 + 32 + 64         232 and 40   32 + 2 * 64 + 32 KiB
//   192         128       96     48 + 24 + 96         232 and 40   48 + 2 * 72 KiB
//   256         128       64     32 + 16 + 128        232 and 40   64 + 2 * 64 KiB
//
// (registers of a thread that computes, and of one that loads; shared memory of Q, of the stages of
// K and V, and of out, which takes the place of Q from 192 on. Heads of 96 have the room of 128.
// Capped scores take registers.) At 64 a product takes half the time, and K and V come twice as fast:
// three warpgroups share each byte of them, which two could not draw from the second-level cache
// (128 queries: 32 KiB in some 1024 cycles of exponentials, which is more than the 24 bytes a cycle
// that a multiprocessor has there). The 504 registers of a place in three warpgroups, or the 512 in
// four, are all given out.
//
// There exponentials are the limit too: of a tile's, 12 warps keep their pipe busy for 1536 cycles,
// and the tensor cores are busy for as long. With every seventh by the FMA pipe it is 1296 cycles,
// and to issue all instructions takes 1317.
struct Fwd90Config {
  int consumers, keys, stages, producer_registers, consumer_registers;
  int by_fma;       // each so many-th exponential (attention90_exp2.cuh); 0: none
  bool out_over_q;  // a warpgroup's rows of out go through those of its queries
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

// Backward by keys: each of two warpgroups owns 64 keys, and both go over tiles of `queries` of all
// heads of the group. A thread holds head_size values of dK and dV and queries / 2 scores and as
// many of their gradients, which become operands in half as many registers, and then 32 values of
// dQ, besides those operands and then the scores of the next tile:
//
//   head size   queries   values of a thread        shared memory
//   64          128       64 + (128 or 64 + 32)     32 + 2 * 33 + 3 * 32 + 32 KiB
//   96          64        96 + (64 or 32 + 32)      64 + 2 * 32.5 + 3 * 16 + 32 KiB
//   128         64        128 + (64 or 32 + 32)     64 + 2 * 32.5 + 2 * 16 + 32 KiB
//
// (K and V; stages of Q, dO and their sums; dS; dQ on its way to memory). The warpgroups share a
// tile of dQ by rows at 64, else by columns: 64 by 64 each, of which the second one has 32 columns
// of zeros at 96. dS is there twice, so that one barrier a step is enough; three times where dQ
// waits for the step after, with that step's dS and the next one's scores under way, for which
// there are no registers at 128. At 64 that is all of the 227 KiB.
inline constexpr int kBwd90Consumers = 2, kBwd90Keys = 128;
inline constexpr int kBwd90Stages = 2;
inline constexpr int kBwd90Threads = 128 * (kBwd90Consumers + 1);
inline constexpr int kBwd90ProducerRegisters = 40, kBwd90ConsumerRegisters = 232;
constexpr int bwd90_queries(int head_size) {
  return head_size == 64 ? 128 : 64;
}
// Whether dQ waits for the step after.
constexpr bool bwd90_dq_is_late(int head_size) {
  return head_size == 64 || head_size == 96;
}

// Heads of 192 and 256 (attention90_bwd_keys_wide.cuh): dK and dV of 128 keys would take more
// registers than there are. So a block owns 64 keys and goes over tiles of 64 queries; of a tile
// each warpgroup has the scores of 32 queries, and sums of half of the head's columns, of 192 one
// box of 64 columns of dK and two of dV, or the other way round. A thread holds head_size / 2
// values of dK and dV, 16 scores and 16 gradients, which become operands in half as many registers,
// and then 32 values of dQ besides the scores of the next tile:
//
//   head size   values of a thread            shared memory
//   192         96 + (16 + 16 or 32 + 16)     48 + 2 * 48.5 + 2 * 8 + 32 KiB
//   256         128 + (16 + 16 or 32 + 16)    64 + 2 * 64.5 + 2 * 8 + 16 KiB
//
// (K and V; stages of Q, dO and their sums; P^T and dS^T; of each warp one piece or two of 16 by 32
// of dQ on its way to memory). At 256 that is all of the 227 KiB but one.
//
// There a step keeps the tensor cores busy for 2,560 cycles, but its 64 KiB of Q and dO and the 64
// KiB that are added to dQ go through the second-level cache at about 24 bytes a cycle, which takes
// 5,461: they are the limit, at half of the tensor cores' peak. At 192 it is 1,920 cycles and
// 4,096. That is a prediction, which no GPU has confirmed.
constexpr bool is_bwd90_wide(int head_size) {
  return head_size > 128;
}
inline constexpr int kBwd90WideKeys = 64, kBwd90WideQueries = 64;
constexpr int bwd90_wide_dq_ways(int head_size) {
  return head_size == 256 ? 1 : 2;
}

// Backward by queries, for dQ without atomics: a warpgroup owns 64 queries. A thread holds
// head_size / 2 values of dQ and keys / 2 scores and gradients each, and operands in a quarter:
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
