#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/error.h"

namespace shale::comm {

// Thrown where this rank waits for one that has failed. That one tells the user why.
class PeerFailure : public CommError {
 public:
  PeerFailure(const std::string& message, int job_code) : CommError(message), job_code_(job_code) {}
  // The exit code of the rank that failed first, which is the job's.
  int job_code() const { return job_code_; }

 private:
  int job_code_;
};

// Told that a rank has failed by itself: the job's exit code, and why.
using FailureListener = std::function<void(int code, const std::string& message)>;

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
  // After a failure of its own it returns when those who listen on other ranks have been told, or
  // after a second: the job may end then.
  void post(int code, std::string_view message, bool caused);
  std::vector<Report> reports() const;  // by rank
  // The first of them that no other rank's failure has caused.
  std::optional<Report> cause() const;
  // Throws PeerFailure if a rank has posted.
  void check() const;

  // Names whom tell() tells in this process; tell() returns when that is done. The watchdog calls
  // it, on its own thread, as the main one may be busy for long; only the first call counts.
  void listen(FailureListener listener);  // empty: nobody
  void tell(int code, const std::string& message);

 private:
  struct Ear;
  struct Entry;
  void wait_for_listeners() const;
  struct Table;
  Table* table() const { return static_cast<Table*>(memory_); }

  void* memory_ = nullptr;  // null: one rank, nobody to tell
  int rank_ = 0;
  int ranks_ = 1;
  std::shared_ptr<Ear> ear_ = make_ear();

  static std::shared_ptr<Ear> make_ear();
};

}  // namespace shale::comm
