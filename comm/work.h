#pragma once

#include <memory>
#include <utility>

namespace shale::comm {

struct WorkState;

// A collective in flight, or done. Copyable; all copies are the same collective.
//
// The buffers of a collective must stay alive, and must not be written (inputs) or touched
// (outputs), until wait() has returned on this rank. Dropping the handle does not wait; but while
// an exception unwinds, it gives up all collectives in flight and waits until they have let go of
// their buffers, which may be about to disappear.
class Work {
 public:
  Work() = default;  // one that is done
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}
  ~Work();
  Work(const Work&) = default;
  Work& operator=(const Work&) = default;
  Work(Work&&) = default;
  Work& operator=(Work&&) = default;

  bool done() const;  // true also after a failure

  // Blocks until the collective is done on this rank: its outputs are complete and no peer touches
  // its buffers any more. Throws what the collective threw, each time it is called.
  void wait() const;

 private:
  std::shared_ptr<WorkState> state_;
};

}  // namespace shale::comm
