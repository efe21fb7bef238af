#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "shale/base/fibers.h"
#include "shale/runtime/tensor/context.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::comm {

// Mesh ranks of the tensor and context axes in this process. A model is written for one mesh rank.
// With several mesh ranks per process, fewer processes give the same bits. Each mesh rank runs
// forward and backward of its model on a fiber (base/fibers.h), and waits wherever it exchanges
// data with other mesh ranks. The process calls each collective once for all its mesh ranks.
class HostedRanks {
 public:
  // context: shared by all mesh ranks in this process; it must outlive this object.
  HostedRanks(Context& context, int count);

  int count() const { return count_; }
  // Index, in this process, of the rank that runs now; -1 outside of run().
  int current() const { return fibers_.current(); }

  // Calls body(rank) once for each rank, on fibers that run one at a time; a single rank runs
  // without a fiber. Each rank has its own autograd state, a copy of the context's. Throws the
  // first exception of a rank. If ranks wait for each other for ever, throws CommError, naming the
  // collectives in which they wait.
  void run(const std::function<void(int rank)>& body);

  // Inside run(): wait() returns when all `members` ranks have called it with the same `what`; the
  // last one calls `act`. Outside of run(), or with one member, wait() only calls `act`. Throws
  // CommError if `what` differs.
  class Meeting {
   public:
    Meeting(HostedRanks& ranks, int members) : ranks_(ranks), members_(members) {}
    Meeting(const Meeting&) = delete;
    Meeting& operator=(const Meeting&) = delete;
    void wait(std::string_view what, const std::function<void()>& act);

   private:
    struct Round {
      std::string what;
      int first = 0;  // first rank to arrive
      int arrived = 0;
      bool is_done = false;
    };
    HostedRanks& ranks_;
    const int members_;
    std::shared_ptr<Round> round_;  // round that some ranks have reached; null: none
  };

  // Waits until all mesh ranks in this process have called once(). The last one calls `act`, so it
  // runs once per process.
  void once(std::string_view what, const std::function<void()>& act) { all_.wait(what, act); }

 private:
  Context& context_;
  const int count_;
  Fibers fibers_;
  Meeting all_;
};

}  // namespace shale::comm
