#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "shale/comm/comm_queue.h"
#include "shale/comm/hosts/heartbeats.h"
#include "shale/comm/hosts/rank_places.h"
#include "shale/comm/node/shared_memory.h"
#include "shale/comm/process_group.h"
#include "shale/comm/watch/failure_board.h"
#include "shale/comm/watch/recent_collectives.h"

namespace shale {
class Timeline;
}
namespace shale::comm {

// State that a World and its groups share in one process.
struct WorldContext {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  bool mpi = false;
  bool peers_can_map = true;      // processes of this node may map each other's memory
  bool requests_pending = false;  // true: requests are unfinished, and MPI_Finalize could hang
  bool crowded = false;           // more ranks on this node than cores
  std::vector<int> numa_nodes;    // NUMA node of each rank of the World; empty: not set
  SharedMemory memory;
  FailureBoard board;
  RecentCollectives recent;
  RankPlaces places;
  Heartbeats signs;
  std::atomic<Timeline*> timeline = nullptr;  // records device activity of groups; may be null
  // Memory of failed groups, to which peers and MPI may still write. Freed after MPI_Finalize.
  std::vector<std::shared_ptr<void>> kept;
  CommQueue& queue(Lane lane) { return queues[static_cast<size_t>(lane)]; }
  std::array<CommQueue, kLanes> queues;  // last member: its threads use the other members
};

}  // namespace shale::comm
