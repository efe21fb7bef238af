#pragma once

#include <memory>

namespace shale::comm {

struct WorkState;

// A collective in flight, or done. Copyable; all copies are the same collective.
//
// The buffers of a collective must stay alive, and must not be written (inputs) or touched
// (outputs), until wait() has returned on this rank. Dropping the handle does not wait.
class Work {
 public:
  Work() = default;  // one that is done
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}

  bool done() const;  // true also after a failure

  // Blocks until the collective is done on this rank: its outputs are complete and no peer touches
  // its buffers any more. Throws what the collective threw, each time it is called.
  void wait() const;

 private:
  std::shared_ptr<WorkState> state_;
};

}  // namespace shale::comm
