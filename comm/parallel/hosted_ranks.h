#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "shale/base/fibers.h"
#include "shale/runtime/tensor/context.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::comm {

// Mesh ranks of the tensor and context axes that this process hosts. A model is written for one
// mesh rank, and a process may have several of them, so that fewer processes give the same bits:
// each runs forward and backward of its own model, on a fiber (base/fibers.h), and waits where it
// meets the others. Collectives of the process itself are called once for all of its mesh ranks.
class HostedRanks {
 public:
  // `context` is what all of them compute on; it outlives this.
  HostedRanks(Context& context, int count);

  int count() const { return count_; }
  // The one that runs, by its number in this process; -1 outside of run().
  int current() const { return fibers_.current(); }

  // Calls body(rank) once for each, in turns. With one rank it is called as it is. Each has its own
  // state of autograd, which begins as the context's. Throws what one of them threw first;
  // CommError where they wait for each other, naming in what.
  void run(const std::function<void(int rank)>& body);

  // Inside of run(): waits for all ranks of `members` to call this with equal `what`; the last one
  // calls `act`. Outside of run(), or with one member: act(). Throws CommError for others.
  class Meeting {
   public:
    Meeting(HostedRanks& ranks, int members) : ranks_(ranks), members_(members) {}
    Meeting(const Meeting&) = delete;
    Meeting& operator=(const Meeting&) = delete;
    void wait(std::string_view what, const std::function<void()>& act);

   private:
    struct Round {
      std::string what;
      int first = 0;  // who came first
      int arrived = 0;
      bool is_done = false;
    };
    HostedRanks& ranks_;
    const int members_;
    std::shared_ptr<Round> round_;  // that some have arrived at; null: none has
  };

  // All ranks meet, and the last one calls `act`: for what is done once in the process.
  void once(std::string_view what, const std::function<void()>& act) { all_.wait(what, act); }

 private:
  Context& context_;
  const int count_;
  Fibers fibers_;
  Meeting all_;
};

}  // namespace shale::comm
