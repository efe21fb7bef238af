#pragma once

#include <mpi.h>

#include <algorithm>
#include <string>
#include <utility>

#include "shale/base/error.h"

namespace shale::comm {

// Throws CommError unless `result` is success. MPI's default error handler ends the job instead of
// returning an error, which is intended: with a handler that returns, one rank was seen to get an
// error while its peer continued. The check is for calls that return errors with any handler.
inline void check_mpi(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw CommError(cat(call, ": ", std::string(text, static_cast<size_t>(length))));
}

inline bool mpi_running() {
  int started = 0, finished = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&finished);
  return started != 0 && finished == 0;
}

// Throws an error unless a World can be a guest in this communicator (see World).
void check_for_guest(MPI_Comm comm);

// One round of a dissemination all-gather, which takes log2(ranks) rounds. Before the round, each
// rank has the values of `held` consecutive ranks, of which it is the first. In the round it
// receives the next `count` values from the rank `from`, which is `held` ranks after it.
struct GatherRound {
  GatherRound(int rank, int ranks, int held)
      : count(std::min(held, ranks - held)),
        from((rank + held) % ranks),
        to((rank - held + ranks) % ranks) {}
  int count, from, to;
};

// Owner of a communicator.
class MpiComm {
 public:
  MpiComm() = default;
  explicit MpiComm(MPI_Comm comm) : comm_(comm) {}
  ~MpiComm() {
    if (comm_ != MPI_COMM_NULL && mpi_running()) MPI_Comm_free(&comm_);
  }
  MpiComm(MpiComm&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}
  MpiComm& operator=(MpiComm&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }

  // Returns a null communicator for color MPI_UNDEFINED.
  static MpiComm split(MPI_Comm parent, int color, int key) {
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(parent, color, key, &comm), "MPI_Comm_split");
    return MpiComm(comm);
  }
  // Splits into groups of ranks that can share memory.
  static MpiComm split_by_node(MPI_Comm parent, int key) {
    MPI_Comm comm = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split_type(parent, MPI_COMM_TYPE_SHARED, key, MPI_INFO_NULL, &comm),
              "MPI_Comm_split_type");
    return MpiComm(comm);
  }

  MPI_Comm get() const { return comm_; }
  bool null() const { return comm_ == MPI_COMM_NULL; }
  int rank() const {
    int rank = 0;
    MPI_Comm_rank(comm_, &rank);
    return rank;
  }
  int size() const {
    int size = 0;
    MPI_Comm_size(comm_, &size);
    return size;
  }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace shale::comm
