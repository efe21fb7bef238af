#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/comm/mpi_internal.h"
#include "shale/comm/watch/issued_calls.h"

namespace shale::comm {

// Lets ranks know of each other's progress where collectives run on devices, which neither compare
// what they are asked for nor end when a peer stays away: over MPI, by one non-blocking all-gather
// after another, which somebody has to drive by calling exchange(). One thread at a time.
class GroupProgress {
 public:
  GroupProgress(MpiComm comm, std::vector<int> world_ranks);
  GroupProgress(const GroupProgress&) = delete;  // MPI knows its address
  GroupProgress& operator=(const GroupProgress&) = delete;

  // This rank has issued a collective.
  void issued(const Fingerprint& call) { calls_.add(call, mine_); }
  void finished() { ++mine_.finished; }
  uint64_t in_flight() const { return mine_.issued - mine_.finished; }

  // Takes what has arrived and sends what is new. Never waits. Throws CommError if a rank has
  // issued other collectives than this one, naming it and the last call of this rank that both
  // agree on; or if the counts of an all_to_all_v do not fit, as soon as all ranks have issued
  // equally many.
  void exchange();

  // Names who has not issued the collective that this rank waits for: "rank 3 has not called it (11
  // of 12)"; if all have, who has not finished it.
  std::string late_ranks() const;

  // At the end of a group, until it returns true: all ranks have come here. After an exchange that
  // will never end there must not be an MPI_Finalize: pending().
  bool leave();
  bool pending() const { return request_ != MPI_REQUEST_NULL; }

 private:
  MpiComm comm_;
  std::vector<int> world_ranks_;
  Progress mine_;
  IssuedCalls calls_;
  Progress sent_;
  std::vector<Progress> arriving_;
  std::vector<Progress> seen_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace shale::comm
