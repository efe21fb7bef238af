#pragma once

// Clusters (PTX ISA, "Cluster of Cooperative Thread Arrays"): up to 8 neighbouring blocks of a grid
// that was launched with .cluster. They run at the same time on neighbouring multiprocessors and
// can access each other's shared memory. An object in another block is named by its address in this
// block and the other block's rank. The rank is blockIdx.x modulo the cluster size; a block's own
// rank is valid too. All blocks must lay out their shared memory in the same way.
//
//   cluster_rank()                       rank of this block
//   cluster_sync()                       barrier of all threads of the cluster; afterwards a thread
//                                        sees what other threads wrote to shared memory before it
//   mbarrier_arrive_at(barrier, rank)    one arrival at that block's barrier, from a thread
//                                        that has finished reading; its own writes need not be
//                                        visible there
//   tma_load_multicast(to, map, full, blocks, x, y)
//                                        loads a box like tma_load(), reads it once, and writes it
//                                        to all blocks whose bit in `blocks` is set; mbarrier
//                                        `full` of each counts its bytes
//   send_word(to, word, full, rank)      sends 4 bytes asynchronously; mbarrier `full` of that
//                                        block counts them
//
// No block may be accessed before a cluster_sync() that follows its fence_mbarrier_init(), nor
// after it has ended. So a kernel with clusters begins and ends with a cluster_sync().

#include "shale/kernels/simt/backend.h"

#ifdef __CUDACC__
#include "shale/kernels/simt/cuda/cluster.h"
#else
#include "shale/kernels/simt/emu/cluster.h"
#endif
