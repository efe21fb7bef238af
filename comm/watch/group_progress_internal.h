#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "shale/comm/mpi_internal.h"
#include "shale/comm/watch/issued_calls.h"

namespace shale::comm {

// Exchanges progress between ranks for collectives on devices. Without it, nobody would compare the
// arguments of these collectives, and they would not end if a peer is missing. Gathers the progress
// of all ranks again and again, with log2(ranks) messages of each rank. The caller must call
// exchange() repeatedly, from one thread at a time.
class GroupProgress {
 public:
  GroupProgress(MpiComm comm, std::vector<int> world_ranks);
  GroupProgress(const GroupProgress&) = delete;  // MPI has the addresses of its members
  GroupProgress& operator=(const GroupProgress&) = delete;

  // Counts a collective that this rank has issued.
  void issued(const Fingerprint& call) { calls_.add(call, mine_); }
  void finished() { ++mine_.finished; }
  uint64_t in_flight() const { return mine_.issued - mine_.finished; }

  // Receives what has arrived and sends what is new, without waiting. Throws CommError if a rank
  // has issued other collectives than this one, naming it and the last call on which both agree.
  // Also throws if counts of an all_to_all_v do not match, once all ranks have issued the same
  // number of collectives.
  void exchange();

  // Names the ranks that have not issued the collective for which this rank waits, as in "rank 3
  // has not called it". If all have issued it, names the ranks that have not finished it.
  std::string late_ranks() const;

  // Called at the end of a group until it returns true, which means that all ranks have called it.
  // If pending() is still true and the exchange can never end, MPI_Finalize must not be called.
  bool leave();
  bool pending() const { return held_ > 0; }

 private:
  using Clock = std::chrono::steady_clock;

  // Continues one exchange of all ranks' progress, and begins it if none is running. Returns true
  // when seen_ has its result.
  bool gather();

  MpiComm comm_;
  std::vector<int> world_ranks_;
  Progress mine_;
  IssuedCalls calls_;
  std::vector<Progress> arriving_;  // values of the exchange that is running; this rank's is first
  std::vector<Progress> seen_;      // last complete values, by rank
  int held_ = 0;                    // number of values that have arrived; 0: no exchange
  int incoming_ = 0;                // number of values on their way
  MPI_Request requests_[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  Clock::time_point next_;  // earliest time of the next exchange
};

}  // namespace shale::comm
