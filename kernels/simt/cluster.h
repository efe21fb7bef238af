#pragma once

// Clusters (PTX ISA, "Cluster of Cooperative Thread Arrays"): up to 8 blocks, neighbours in a grid
// that was launched with .cluster, that run at the same time on neighbouring multiprocessors and
// reach each other's shared memory. A place there is named by the block's own place and the rank of
// the other one, 0 to the cluster's size - 1, which is blockIdx.x modulo the size; a block's own
// rank is one too. All blocks lay out their shared memory in the same way.
//
//   cluster_rank()                       of this block
//   cluster_sync()                       by all threads of all blocks: who comes back from it sees
//                                        what the others wrote to shared memory before it
//   mbarrier_arrive_at(barrier, rank)    one arrival at that block's barrier, of a thread that has
//                                        read what it wanted; what it wrote need not be seen there
//   tma_load_multicast(to, map, full, blocks, x, y)
//                                        a box as by tma_load(), read once, to all blocks whose bit
//                                        in `blocks` is set; mbarrier `full` of each counts its
//                                        bytes
//   send_word(to, word, full, rank)      4 bytes, on their way when this returns, which mbarrier
//                                        `full` of that block counts
//
// Nobody reaches into a block before it has come to a cluster_sync() that follows its
// fence_mbarrier_init(), nor after it has ended: so a kernel of clusters begins and ends with one.

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/cluster.h"
#else
#include "shale/kernels/simt/emu/cluster.h"
#endif
