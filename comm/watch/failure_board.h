#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/error.h"

namespace shale::comm {

// Thrown where this rank waits for one that has failed. That one tells the user why.
class PeerFailure : public CommError {
 public:
  using CommError::CommError;
};

// Where the ranks of one node tell each other that they cannot go on: a table in memory that all of
// them map, looked at by everyone who waits. It lets ranks that fail for the same reason say so
// once, and ranks that wait for a failed one stop at once, before MPI would notice anything.
class FailureBoard {
 public:
  static size_t bytes(int ranks);

  FailureBoard() = default;
  // memory: bytes(ranks), zeros at first, shared by the ranks.
  FailureBoard(void* memory, int rank, int ranks) : memory_(memory), rank_(rank), ranks_(ranks) {}

  struct Report {
    int rank = 0;  // on this node
    int code = 0;
    int64_t time_ns = 0;
    bool caused = false;  // by the failure of another rank
    std::string message;
  };

  bool any() const;
  void post(int code, std::string_view message, bool caused);
  std::vector<Report> reports() const;  // by rank
  // Throws PeerFailure if a rank has posted.
  void check() const;

 private:
  struct Entry;
  struct Table;
  Table* table() const { return static_cast<Table*>(memory_); }

  void* memory_ = nullptr;  // null: one rank, nobody to tell
  int rank_ = 0;
  int ranks_ = 1;
};

}  // namespace shale::comm
