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

// Thrown when this rank waits for a rank that has failed. The failed rank reports the cause itself.
class PeerFailure : public CommError {
 public:
  PeerFailure(const std::string& message, int job_code) : CommError(message), job_code_(job_code) {}
  // Exit code of the rank that failed first, which becomes the exit code of the job.
  int job_code() const { return job_code_; }

 private:
  int job_code_;
};

// Called when a rank has failed by itself, with the job's exit code and the reason.
using FailureListener = std::function<void(int code, const std::string& message)>;

// Failure reports of the ranks of one node: a table in memory that all of them map and that every
// waiting rank reads. Ranks that fail for the same reason report it only once. Ranks that wait for
// a failed rank stop immediately, long before MPI would notice.
class FailureBoard {
 public:
  static size_t bytes(int ranks);

  FailureBoard() = default;
  // memory: bytes(ranks), initially zero, shared by the ranks.
  FailureBoard(void* memory, int rank, int ranks) : memory_(memory), rank_(rank), ranks_(ranks) {}

  struct Report {
    int rank = 0;  // index on this node
    int code = 0;
    int64_t time_ns = 0;
    bool caused = false;  // true: another rank failed first and caused this failure
    std::string message;
  };

  bool any() const;
  // Posts this rank's failure. Unless `caused`, waits until the listeners of other ranks have been
  // called, but at most a second, because the job may end afterwards.
  void post(int code, std::string_view message, bool caused);
  std::vector<Report> reports() const;  // reports of failed ranks, by rank
  // Returns the first report of a failure that no other rank's failure caused.
  std::optional<Report> cause() const;
  // Throws PeerFailure if a rank has posted a failure.
  void check() const;

  // Sets the function that tell() calls in this process, at most once; a call of tell() ends after
  // that of the function. The watchdog calls tell() on its own thread, because the main thread may
  // be busy.
  void listen(FailureListener listener);  // empty: no listener
  void tell(int code, const std::string& message);

 private:
  struct Ear;
  struct Entry;
  void wait_for_listeners() const;
  struct Table;
  Table* table() const { return static_cast<Table*>(memory_); }

  void* memory_ = nullptr;  // null: the node has one rank
  int rank_ = 0;
  int ranks_ = 1;
  std::shared_ptr<Ear> ear_ = make_ear();

  static std::shared_ptr<Ear> make_ear();
};

}  // namespace shale::comm
