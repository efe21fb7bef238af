#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "shale/comm/mpi_internal.h"
#include "shale/comm/watch/issued_calls.h"

namespace shale::comm {

// Exchanges progress between ranks for collectives on devices, which neither compare their
// arguments nor end if a peer is missing. Uses one non-blocking MPI all-gather after another;
// the caller must call exchange() repeatedly to drive them. One thread at a time.
class GroupProgress {
 public:
  GroupProgress(MpiComm comm, std::vector<int> world_ranks);
  GroupProgress(const GroupProgress&) = delete;  // MPI holds its address
  GroupProgress& operator=(const GroupProgress&) = delete;

  // Counts a collective that this rank has issued.
  void issued(const Fingerprint& call) { calls_.add(call, mine_); }
  void finished() { ++mine_.finished; }
  uint64_t in_flight() const { return mine_.issued - mine_.finished; }

  // Receives what has arrived and sends what is new, without waiting. Throws CommError if a rank
  // has issued other collectives than this one, naming it and the last call on which both agree;
  // also if counts of an all_to_all_v do not match, once all ranks have issued equally many.
  void exchange();

  // Names the ranks that have not issued the collective for which this rank waits: "rank 3 has not
  // called it (11 of 12)"; if all have issued it, the ranks that have not finished it.
  std::string late_ranks() const;

  // Called at the end of a group until it returns true: all ranks have called it. If an exchange
  // can never end (pending()), MPI_Finalize must not be called.
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
